//! The tables of the guide's options page are made from the definition of the command line.

use std::fmt::Write;

use clap::{Arg, CommandFactory};

use super::Options;
use super::config::is_repeatable;

const PAGE: &str = include_str!("../../../guide/options.md");

#[test]
fn the_guide_has_the_options_of_the_command_line() {
    let tables = tables();
    let path = "src/guide/options.md";
    assert!(
        PAGE.contains(&tables),
        "replace the tables of {path}, from the first `##` to the last table row, by:\n\n{tables}"
    );
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    assert_eq!(
        rows.count(),
        Options::command().get_arguments().count(),
        "{path}"
    );
}

#[test]
fn the_guide_has_the_variables_that_take_several_values() {
    let command = Options::command();
    for option in command.get_arguments().filter(|it| is_repeatable(it)) {
        let between = match option.get_id().as_str() {
            "header" => '\n',
            _ => ',',
        };
        assert_eq!(option.get_value_delimiter(), Some(between), "{option:?}");
        let variable = option.get_env().unwrap_or_default().to_string_lossy();
        assert!(PAGE.contains(&format!("`{variable}`")), "{variable}");
    }
}

/// One table for each heading of `--help`.
fn tables() -> String {
    let mut text = String::new();
    let mut last = None;
    for arg in Options::command().get_arguments() {
        // `--help` lists DIR by itself.
        let heading = arg.get_help_heading().unwrap_or("Serving").to_owned();
        if last.as_ref() != Some(&heading) {
            let line = if last.is_some() { "\n" } else { "" };
            write!(text, "{line}## {heading}\n\n{HEAD}").expect("a string takes everything");
            last = Some(heading);
        }
        text.push_str(&row(arg));
    }
    text
}

const HEAD: &str = "| option | default | meaning |\n|---|---|---|\n";

fn row(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default().join(" ");
    let option = match arg.get_long() {
        Some(long) if arg.get_action().takes_values() => format!("--{long} {values}"),
        Some(long) => format!("--{long}"),
        None => values,
    };
    let help = arg.get_help().expect("each option has a text").to_string();
    // What clap does not know as a default, the text tells at its end.
    let (meaning, told) = help.split_once(" [default: ").unwrap_or((&help, ""));
    let known = arg.get_default_values().first();
    let default = match known {
        Some(value) => format!("`{}`", value.to_string_lossy()),
        None => told.trim_end_matches(']').to_owned(),
    };
    let mut meaning = meaning.replace('[', r"\[").replace('*', r"\*");
    if arg.get_action().takes_values() {
        let values = arg.get_possible_values();
        let values: Vec<_> = values.iter().map(|value| value.get_name()).collect();
        // Some texts explain each value.
        if !values
            .iter()
            .all(|value| meaning.contains(&format!("{value}: ")))
        {
            write!(meaning, " (`{}`)", values.join("`, `")).expect("a string takes everything");
        }
    }
    format!("| `{option}` | {default} | {meaning} |\n")
}
