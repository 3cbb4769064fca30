//! Which process model answers with the least CPU time, the most throughput and the shortest tail?
//!
//! The same handlers, the same load and the same allocator in four models: this crate with a
//! listener for each worker (`prefork`) and with one for all (`prefork_shared`), tokio's
//! multi-threaded runtime (`multi_thread`), and threads with a runtime and a listener each
//! (`current_threads`). Each file here but the last few is one question, and says in its head what
//! it does not answer.
//!
//! First criterion measures each case for itself, in time per request, which is right for following
//! one of them over time and wrong for comparing them: the machine drifts in between. So the tables
//! come from rounds in which every server has its turn, and show medians of what happened within a
//! round.
//!
//! Not measured anywhere here: a network, HTTP/2, request bodies.

mod churn;
mod computing;
mod files;
mod idle;
mod keep_alive;
mod mixed;
mod neighbour;
mod pipelined;
mod tls;
mod waiting;

mod case;
mod command_line;
mod progress;
mod question;
mod turns;

#[allow(dead_code, unused_imports, reason = "shared by several benches")]
#[path = "../support/load/mod.rs"]
mod load;
#[allow(dead_code, unused_imports, reason = "shared by several benches")]
#[path = "../support/results/mod.rs"]
mod results;
#[allow(dead_code, unused_imports, reason = "shared by several benches")]
#[path = "../support/server/mod.rs"]
mod server;

use std::time::Duration;

use criterion::{Criterion, SamplingMode};

use self::case::Case;
use self::command_line::{CommandLine, Extent};
use self::progress::Progress;
use self::question::Question;
use self::server::Model;
use self::turns::Turns;

fn main() {
    server::become_server_if_asked();

    let command_line = CommandLine::of_process();
    let directory = files::Directory::new();
    let mut questions: Vec<Question> = [
        keep_alive::questions(),
        neighbour::questions(),
        churn::questions(),
        tls::questions(),
        pipelined::questions(),
        waiting::questions(),
        computing::questions(),
        mixed::questions(),
        idle::questions(command_line.extent),
        directory.questions(),
    ]
    .into_iter()
    .flatten()
    .collect();
    questions.retain(|question| !command_line.models(question.name).is_empty());

    if command_line.criterion {
        under_criterion(&command_line, &questions);
    }
    if command_line.tables {
        in_turn(&command_line, &questions);
    }
}

fn under_criterion(command_line: &CommandLine, questions: &[Question]) {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    // Idle connections are in the tables only: they must be new ones each time.
    let questions = questions.iter().filter(|question| question.idle == 0);
    let cases = questions.clone();
    let cases = cases.map(|question| command_line.models(question.name).len());
    let mut progress = Progress::new("criterion", cases.sum());
    for question in questions {
        let mut group = criterion.benchmark_group(question.name);
        group.sampling_mode(SamplingMode::Flat);
        let (_neighbour, workers) = question.place.prepare();
        for model in command_line.models(question.name) {
            progress.step(question.name, model.name());
            // Started by the first batch: what criterion leaves out starts no server.
            let mut case = None;
            group.bench_function(model.name(), |bencher| {
                let case = case.get_or_insert_with(|| Case::start(question, model, workers));
                bencher.iter_custom(|requests| case.batch(requests));
            });
            if let Some(case) = case {
                case.tell_failures();
            }
        }
        group.finish();
    }
    progress.end();
    criterion.final_summary();
}

fn in_turn(command_line: &CommandLine, questions: &[Question]) {
    let turns = Turns::of(command_line.extent);
    let path = results::path(command_line.extent.suffix());
    let mut results = results::Results::of_this_commit(&path);
    if command_line.extent != Extent::Smoke {
        println!("{}\n{turns}\n", results.machine);
    }
    let cases = questions.iter();
    let cases = cases.map(|question| command_line.models(question.name).len());
    let mut progress = Progress::new("in turn", cases.sum::<usize>() * turns.all_rounds());
    for question in questions {
        let models = command_line.models(question.name);
        let cases = turns.take(question, &models, &mut progress);
        progress.clear();
        if command_line.extent == Extent::Smoke {
            let failed: u64 = cases.iter().map(results::Case::failed).sum();
            assert_eq!(failed, 0, "failed requests: {}", question.name);
            continue;
        }
        results::print(question.name, &cases, Model::YARDSTICK.name());
        cases.into_iter().for_each(|case| results.put(case));
        let written = results.write(&path);
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    progress.end();
    if command_line.extent != Extent::Smoke {
        println!("kept in {}", path.display());
    }
}
