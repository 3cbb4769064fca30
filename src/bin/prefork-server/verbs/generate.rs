//! Completions and manual pages.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

use super::definition;
use crate::cli::Options;

const NAME: &str = "prefork-server";

/// The whole command line: the options of the server, and the verbs.
fn whole() -> Command {
    let verbs = definition();
    let verbs = verbs.get_subcommands().cloned();
    let command = Options::command().subcommands(verbs);
    command
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
}

pub(super) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole(), NAME, &mut script);
    let script = String::from_utf8(script).expect("a script is text");
    match shell {
        // clap_complete 4.6 writes the `-` of the name in two ways, so that what belongs to a
        // verb is never found (https://github.com/clap-rs/clap/issues/6421).
        Shell::Bash => script.replace("prefork__subcmd__server", "prefork__server"),
        Shell::Zsh => zsh(&script),
        Shell::Fish => fish(&script),
        _ => script,
    }
}

fn verbs() -> Vec<String> {
    let definition = definition();
    let names = definition.get_subcommands().map(Command::get_name);
    names.map(str::to_owned).collect()
}

/// clap_complete takes the first word for DIR and the second for the verb, so zsh never finds what
/// belongs to a verb. Here the first word is a verb or DIR, and options may follow DIR.
fn zsh(script: &str) -> String {
    let is_dir = |line: &&str| line.starts_with("'::dir -- ");
    let lines = script.lines().filter(|line| !is_dir(line));
    let script: String = lines.flat_map(|line| [line, "\n"]).collect();
    let verbs = verbs().join("|");
    let verb = format!("    local ret=1 verb=${{(M)words[2]:#({verbs})}}\n");
    let names = "    _describe -t commands 'prefork-server commands' commands \"$@\"\n";
    let names_or_directories = "    local unmatched=1
    (( CURRENT == 2 )) && _describe -t commands 'verb' commands \"$@\" && unmatched=0
    _files -/ && unmatched=0
    return unmatched\n";
    let rest = "\"*::: :->prefork-server\" \\\n";
    let rest_of_verb = "${verb:+\"*::: :->prefork-server\"} \\\n";
    script
        .replacen("    local ret=1\n", &verb, 1)
        .replacen(names, names_or_directories, 1)
        .replacen(rest, rest_of_verb, 1)
        .replace("$line[2]", "$line[1]")
}

/// clap_complete takes DIR for a verb, and completes no option whose value is missing. It offers
/// and finds verbs after DIR and after options too, but a verb is the first word.
fn fish(script: &str) -> String {
    let verbs = verbs().join(" ");
    let is_verb = format!("    if contains -- \"$cmd[1]\" {verbs}\n");
    let name = "-n \"__fish_prefork_server_needs_command\" -a ";
    let name_as_first_word = "-n \"test (count (commandline -opc)) = 1\" -a ";
    let script = script
        .replacen("    or return\n", "    or return 0\n", 1)
        .replacen("    if set -q argv[1]\n", &is_verb, 1)
        .replace(name, name_as_first_word);
    script + &shells_for_fish()
}

/// clap_complete writes no values of arguments without a name for fish, which then offers files.
fn shells_for_fish() -> String {
    let shells = Shell::value_variants().iter().map(Shell::to_string);
    let shells = shells.collect::<Vec<_>>().join(" ");
    let is_next = "__fish_prefork_server_using_subcommand generate; \
                   and __fish_seen_subcommand_from completions";
    format!("complete -c {NAME} -n \"{is_next}\" -f -a \"{shells}\"\n")
}

/// Writes `prefork-server.1` and a page for each verb, such as `prefork-server-logs-reopen.1`.
pub(super) fn man(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory).map_err(|error| named(directory, &error))?;
    let mut whole = whole();
    whole.build();
    write(directory, &[NAME], whole)
}

/// Writes the page of a command with this name, and those of its verbs.
fn write(directory: &Path, name: &[&str], command: Command) -> io::Result<()> {
    for verb in command.get_subcommands() {
        let name = [name, &[verb.get_name()]].concat();
        write(directory, &name, verb.clone())?;
    }
    let page = name.join("-");
    let command = command.display_name(&page).bin_name(name.join(" "));
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let mut text = Vec::new();
    Man::new(command).source(source).render(&mut text)?;
    let text = String::from_utf8(text).expect("a page is text");
    let path = directory.join(format!("{page}.1"));
    fs::write(&path, with_columns(&text)).map_err(|error| named(&path, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Keeps the lines of a page that begin with spaces as they are: roff(7) would fill them with what
/// follows.
fn with_columns(page: &str) -> String {
    let is_kept = |line: &&str| line.starts_with("  ");
    let lines: Vec<_> = page.lines().collect();
    let runs = lines.chunk_by(|one, next| is_kept(one) == is_kept(next));
    let blocks = runs.map(|run| match is_kept(&run[0]) {
        true => format!(".nf\n{}\n.fi\n", run.join("\n")),
        false => run.join("\n") + "\n",
    });
    blocks.collect()
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
    fn bash_finds_what_belongs_to_each_verb() {
        let script = completions(Shell::Bash);
        let chosen = script.split("cmd=\"").skip(1);
        let chosen = chosen.filter_map(|rest| rest.split_once('"'));
        let verbs: Vec<_> = chosen.filter(|(verb, _)| !verb.is_empty()).collect();
        assert!(verbs.len() > 10, "{script}");
        for (verb, _) in verbs {
            assert!(script.contains(&format!(" {verb})\n")), "{verb}: {script}");
        }
    }

    #[test]
    fn zsh_and_fish_tell_a_verb_from_a_directory() {
        let zsh = completions(Shell::Zsh);
        let verbs = verbs();
        let is_verb = format!("local ret=1 verb=${{(M)words[2]:#({})}}\n", verbs.join("|"));
        let rest = "${verb:+\"*::: :->prefork-server\"}";
        for part in [
            &is_verb,
            rest,
            "case $line[1] in",
            "(( CURRENT == 2 )) && _describe",
        ] {
            assert!(zsh.contains(part), "{part}: {zsh}");
        }
        for part in ["'::dir ", "$line[2]", "\n\"*::: :->prefork-server\""] {
            assert!(!zsh.contains(part), "{part}: {zsh}");
        }
        let fish = completions(Shell::Fish);
        let is_verb = format!("if contains -- \"$cmd[1]\" {}\n", verbs.join(" "));
        assert!(
            fish.contains(&is_verb) && fish.contains("or return 0\n"),
            "{fish}"
        );
        let as_first_word = "-n \"test (count (commandline -opc)) = 1\" -a ";
        let offered = fish.matches(as_first_word).count();
        assert_eq!(offered, verbs.len(), "{fish}");
    }

    /// Without fish it tests nothing.
    #[test]
    fn fish_offers_what_can_follow() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prefork-server.fish");
        fs::write(&path, completions(Shell::Fish)).unwrap();
        fs::write(directory.path().join("completions.file"), "").unwrap();
        let offers = |line: &str| {
            let script = format!("source {}; complete -C '{line}'", path.display());
            let mut fish = std::process::Command::new("fish");
            let fish = fish.args(["--no-config", "-c", &script]);
            let fish = fish.current_dir(directory.path());
            let output = fish.env("HOME", directory.path()).output().ok()?;
            Some(String::from_utf8(output.stdout).unwrap())
        };
        for (line, word, is_offered) in [
            ("prefork-server rel", "reload", true),
            ("prefork-server public rel", "reload", false),
            ("prefork-server --echo rel", "reload", false),
            ("prefork-server --workers 3 rel", "reload", false),
            ("prefork-server reload --w", "--wait", true),
            ("prefork-server reload --drain-t", "--drain-timeout", false),
            ("prefork-server public --drain-t", "--drain-timeout", true),
            ("prefork-server --echo reload --w", "--wait", false),
            ("prefork-server generate completions ", "fish", true),
            (
                "prefork-server generate completions ",
                "completions.file",
                false,
            ),
            ("prefork-server generate man comp", "completions.file", true),
        ] {
            let Some(offered) = offers(line) else {
                eprintln!("fish is not installed");
                return;
            };
            let is_word = |it: &str| it.split('\t').next() == Some(word);
            assert_eq!(
                offered.lines().any(is_word),
                is_offered,
                "{line}: {offered}"
            );
        }
    }

    #[test]
    fn there_is_each_page_that_a_page_names() {
        let directory = tempfile::tempdir().unwrap();
        man(directory.path()).unwrap();
        let read = |name: &str| {
            let page = fs::read_to_string(directory.path().join(name)).unwrap();
            page.replace("\\-", "-")
        };
        let server = read("prefork-server.1");
        assert!(server.contains("hang-timeout"));
        let example = ".nf\n  prefork-server ./public      ";
        assert!(server.contains(example), "{server}");
        assert!(read("prefork-server-logs-reopen.1").contains("--wait"));
        let mut named = 1;
        for entry in fs::read_dir(directory.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let page = read(&name);
            let title = name.trim_end_matches(".1");
            let version = concat!("\"prefork-server ", env!("CARGO_PKG_VERSION"), "\"");
            let head = format!(".TH {title} 1  {version}");
            assert!(page.contains(&head), "{head} is not in {page}");
            assert!(page.contains("Exit codes: 0 "), "{page}");
            let is_name = |line: &&str| line.starts_with("prefork-server-") && !line.contains(' ');
            let others = page.lines().filter(is_name);
            for other in others.filter_map(|line| line.strip_suffix("(1)")) {
                read(&format!("{other}.1"));
                named += 1;
            }
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), named);
    }
}
