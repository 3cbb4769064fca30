//! What to run. The options are criterion's, which reads the same command line again.

use std::env;

use crate::server::Model;

/// With `no` there are only the tables.
const CRITERION: &str = "PREFORK_BENCH_CRITERION";

/// Criterion's options that take a value, which is not the name of a case.
const WITH_VALUE: [&str; 18] = [
    "-b",
    "-c",
    "-s",
    "--baseline",
    "--baseline-lenient",
    "--color",
    "--confidence-level",
    "--format",
    "--load-baseline",
    "--measurement-time",
    "--noise-threshold",
    "--nresamples",
    "--output-format",
    "--profile-time",
    "--sample-size",
    "--save-baseline",
    "--significance-level",
    "--warm-up-time",
];

/// Those that ask for something other than figures.
const NO_FIGURES: [&str; 3] = ["--list", "--load-baseline", "--profile-time"];

/// How much of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything once, no figures.
    Smoke,
    /// Figures that say whether everything works, and little else.
    Quick,
    Full,
}

impl Extent {
    /// Of the file with the results: figures of a quick run do not replace others.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Smoke => "-smoke",
            Self::Quick => "-quick",
            Self::Full => "",
        }
    }
}

pub(crate) struct CommandLine {
    pub(crate) extent: Extent,
    pub(crate) criterion: bool,
    pub(crate) tables: bool,
    filter: Option<String>,
}

impl CommandLine {
    pub(crate) fn of_process() -> Self {
        let arguments: Vec<String> = env::args().skip(1).collect();
        let has = |name: &str| {
            arguments
                .iter()
                .any(|it| it.split('=').next() == Some(name))
        };
        let extent = match (has("--test") || !has("--bench"), has("--quick")) {
            (true, _) => Extent::Smoke,
            (false, true) => Extent::Quick,
            (false, false) => Extent::Full,
        };
        let figures = !NO_FIGURES.into_iter().any(has);
        let tables_only = env::var(CRITERION).is_ok_and(|it| it == "no");
        Self {
            extent,
            // Its quick mode takes a second for each case, which is not quick here.
            criterion: !figures || extent != Extent::Quick && !tables_only,
            tables: figures,
            filter: filter(&arguments),
        }
    }

    /// The models of a question that are wanted: as criterion does it, by a part of
    /// `question/model`, but without its regular expressions.
    pub(crate) fn models(&self, question: &str) -> Vec<Model> {
        let wanted = |model: &Model| {
            let name = format!("{question}/{}", model.name());
            self.filter.as_ref().is_none_or(|part| name.contains(part))
        };
        Model::ALL.into_iter().filter(wanted).collect()
    }
}

fn filter(arguments: &[String]) -> Option<String> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let name = argument.as_str();
        if WITH_VALUE.contains(&name) {
            arguments.next();
        } else if !name.starts_with('-') {
            return Some(argument.clone());
        }
    }
    None
}
