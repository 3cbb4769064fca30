//! Completions and manual pages.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Verbs;
use crate::cli::Options;

const NAME: &str = "prefork-server";

/// The whole command line: the options of the server, and the verbs.
fn whole() -> Command {
    let verbs = Verbs::command();
    let verbs = verbs.get_subcommands().cloned();
    let command = Options::command().subcommands(verbs);
    command
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
}

pub(super) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole(), NAME, &mut script);
    String::from_utf8(script).expect("a script is text")
}

/// Writes `prefork-server.1` and a page for each verb, such as `prefork-server-reload.1`.
pub(super) fn man(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut whole = whole();
    whole.build();
    write(directory, NAME, NAME, whole.clone())?;
    for verb in whole.get_subcommands() {
        let name = verb.get_name();
        let (page, shown) = (format!("{NAME}-{name}"), format!("{NAME} {name}"));
        write(directory, &page, &shown, verb.clone())?;
    }
    Ok(())
}

fn write(directory: &Path, page: &str, shown: &str, command: Command) -> io::Result<()> {
    let command = command
        .display_name(page.to_owned())
        .bin_name(shown.to_owned());
    let mut text = Vec::new();
    Man::new(command).title(page).render(&mut text)?;
    fs::write(directory.join(format!("{page}.1")), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_completes_options_and_verbs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell);
            for word in ["reload", "recycle", "drain-timeout", "wait"] {
                assert!(script.contains(word), "{shell}: no {word}");
            }
        }
    }

    #[test]
    fn there_is_a_page_for_the_server_and_one_for_each_verb() {
        let directory = tempfile::tempdir().unwrap();
        man(directory.path()).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(read("prefork-server.1").contains("hang\\-timeout"));
        assert!(read("prefork-server-reload.1").contains("\\-\\-wait"));
        let pages = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(pages, 1 + Verbs::command().get_subcommands().count());
    }
}
