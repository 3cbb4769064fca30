//! Options that the environment sets.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::client::get;
use crate::support::{Server, binary, refused};

tests! {
    the_error_for_a_bad_value_names_its_source,
    the_error_for_a_value_that_is_no_text_names_its_source,
    an_error_about_two_options_names_the_variables,
    the_command_line_wins_over_the_variables_of_what_is_served,
    a_variable_that_turns_the_echo_off_leaves_what_the_file_serves,
    an_empty_variable_counts_as_unset,
    an_unknown_variable_is_logged_with_the_nearest_known_name,
}

fn on_a_free_port() -> Command {
    let mut command = binary();
    command.args(["--listen", "127.0.0.1:0", "--announce-fd", "1"]);
    command
}

fn the_error_for_a_bad_value_names_its_source() {
    let said = |variable: &str, arguments: &[&str]| {
        let mut command = on_a_free_port();
        command
            .env("PREFORK_DRAIN_TIMEOUT", variable)
            .args(arguments);
        refused(&mut command)
    };
    let of_variable = said("soon", &[]);
    assert!(
        of_variable.contains("'soon' for 'PREFORK_DRAIN_TIMEOUT'"),
        "{of_variable}"
    );
    assert!(!of_variable.contains("--drain-timeout"), "{of_variable}");
    let mut of_file = on_a_free_port();
    let of_file = refused(of_file.env("PREFORK_CONFIG", "/no-such-file"));
    let told = "PREFORK_CONFIG=/no-such-file: No such file";
    assert!(of_file.contains(told), "{of_file}");
    for variable in ["soon", "1s", ""] {
        let of_option = said(variable, &["--drain-timeout", "later"]);
        assert!(
            of_option.contains("'later' for '--drain-timeout"),
            "{of_option}"
        );
    }
}

fn the_error_for_a_value_that_is_no_text_names_its_source() {
    let value = OsStr::from_bytes(b"caf\xe9");
    let mut of_variable = on_a_free_port();
    of_variable.env("PREFORK_USER", value);
    let mut of_option = on_a_free_port();
    of_option.arg("--user").arg(value);
    let mut of_flag = on_a_free_port();
    of_flag.env("PREFORK_ECHO", value);
    let mut two = on_a_free_port();
    two.arg("--user").arg(value).env("PREFORK_RESPOND", value);
    for (mut command, source) in [
        (of_variable, "'PREFORK_USER'"),
        (of_option, "'--user <USER>'"),
        (of_flag, "invalid UTF-8"),
        (two, "invalid UTF-8"),
    ] {
        let said = refused(&mut command);
        assert!(said.contains(source), "{said}");
    }
}

fn an_error_about_two_options_names_the_variables() {
    for (variables, told) in [
        (
            &["PREFORK_RESPOND", "PREFORK_ECHO"][..],
            "PREFORK_RESPOND and PREFORK_ECHO exclude each other",
        ),
        (
            &["PREFORK_ECHO", "PREFORK_LISTING"],
            "about the files of DIR: leave it out, or give DIR in place of PREFORK_ECHO",
        ),
        (
            &["PREFORK_LISTING"],
            "PREFORK_LISTING is about the files of DIR: give DIR too",
        ),
    ] {
        let mut command = on_a_free_port();
        command.envs(variables.iter().map(|name| (name, "1")));
        let said = refused(&mut command);
        assert!(said.contains(told), "{said}");
    }
}

fn the_command_line_wins_over_the_variables_of_what_is_served() {
    let mut command = on_a_free_port();
    command
        .env("PREFORK_DIR", "/no-such-directory")
        .env("PREFORK_ECHO", "true");
    let mut server = Server::spawn(command.args(["--respond", "hi"]));
    assert_eq!(get(server.address(), "/").body, "hi");
}

fn a_variable_that_turns_the_echo_off_leaves_what_the_file_serves() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("server.toml");
    std::fs::write(&file, "respond = \"hi\"").expect("a new name");
    let mut command = on_a_free_port();
    command.env("PREFORK_ECHO", "false");
    let mut server = Server::spawn(command.arg("--config").arg(&file));
    assert_eq!(get(server.address(), "/").body, "hi");
}

fn an_empty_variable_counts_as_unset() {
    let mut command = on_a_free_port();
    for name in [
        "PREFORK_DRAIN_TIMEOUT",
        "PREFORK_ECHO",
        "PREFORK_WORKERS",
        "PREFORK_USER",
    ] {
        command.env(name, "");
    }
    Server::spawn(&mut command).address();
}

fn an_unknown_variable_is_logged_with_the_nearest_known_name() {
    let mut command = on_a_free_port();
    command
        .env("PREFORK_DRAIN_TIMEOT", "1s")
        .env("PREFORK_XYZZY", "1")
        .env("PREFORK_WORKERS", "1");
    let mut server = Server::spawn(&mut command);
    server.address();
    let log = server.log();
    let told = "unknown variable PREFORK_DRAIN_TIMEOT: did you mean PREFORK_DRAIN_TIMEOUT?";
    assert_eq!(log.matches(told).count(), 1, "by the master alone: {log}");
    assert!(log.contains("unknown variable PREFORK_XYZZY\n"), "{log}");
    assert!(
        !log.contains("PREFORK_WORKERS is") && !log.contains("PREFORK_SERVER"),
        "{log}"
    );
}
