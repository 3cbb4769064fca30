use std::fs;

use clap::CommandFactory;

use super::*;
use crate::cli::{Options, files};

/// Values of each option, as they are in a file.
const VALUES: &[(&str, &[&str])] = &[
    ("dir", &["\"public\"", "\"-odd\"", "\"a b\""]),
    ("respond", &["\"\"", "\"it's\\n\\\"\u{e4}\\\"\"", "\"-x\""]),
    ("echo", &["true", "false"]),
    ("delay", &["\"250ms\"", "3"]),
    ("listen", &["[\"127.0.0.1:1\", \"unix:/a b\"]", "8080"]),
    ("health-path", &["\"/healthz\""]),
    ("worker-header", &["true", "false"]),
    ("clean-urls", &["true", "false"]),
    ("fallback", &["\"index.html\""]),
    ("not-found-page", &["\"404.html\""]),
    ("listing", &["true"]),
    ("compress", &["true"]),
    ("safe-caching", &["true"]),
    ("header", &["[\"**: x-a: b, c\", \"*.js: x-b: 1\"]"]),
    ("allow-origin", &["\"*\"", "[\"https://a.example\"]"]),
    ("symlinks", &["\"never\""]),
    ("cache-size", &["\"1MiB\"", "0"]),
    ("sendfile", &["true"]),
    ("workers", &["4", "\"auto\""]),
    ("listeners", &["\"shared\""]),
    ("balance", &["\"off\""]),
    ("defer-accept", &["\"on\"", "\"off\""]),
    ("drain-timeout", &["\"5m\""]),
    ("pre-stop-delay", &["\"5s\""]),
    ("reload-batch", &["2"]),
    ("hang-timeout", &["0"]),
    ("crash-limit", &["\"1/2s\""]),
    ("user", &["\"www\""]),
    ("group", &["33"]),
    ("unix-mode", &["\"660\""]),
    ("pid-file", &["\"/run/a.pid\""]),
    (
        "admin",
        &["\"off\"", "\"unix:/a\"", "[\"127.0.0.1:1\", \"auto\"]"],
    ),
    ("sandbox", &["\"off\""]),
    ("header-timeout", &["\"1s\""]),
    ("body-timeout", &["\"1s\""]),
    ("write-timeout", &["\"1s\""]),
    ("idle-timeout", &["\"1s\""]),
    ("max-target-size", &["\"4KiB\""]),
    ("max-header-size", &["\"32KiB\""]),
    ("max-body-size", &["\"1MiB\""]),
    ("http2", &["\"off\""]),
    ("max-connections", &["9"]),
    ("max-connections-per-client", &["9"]),
    ("max-connection-requests", &["9"]),
    ("max-connection-age", &["\"1h\""]),
    ("proxy-protocol", &["[\"10.0.0.0/8\", \"unix\"]"]),
    ("max-warm", &["9"]),
    ("max-requests", &["9"]),
    ("max-worker-age", &["\"1h\""]),
    ("tls-cert", &["[\"a.pem\", \"b.pem\"]"]),
    ("tls-key", &["[\"a.key\", \"b.key\"]"]),
    ("tls-ocsp", &["[\"none\", \"b.ocsp\"]"]),
    ("tls-min-version", &["\"1.3\""]),
    ("tls-ciphers", &["[\"TLS13_AES_128_GCM_SHA256\"]"]),
    ("tls-client-ca", &["\"ca.pem\""]),
    ("tls-client-auth", &["\"optional\""]),
    ("redirect-to-https", &["\"127.0.0.1:80\""]),
    ("access-log", &["\"-\"", "\"/a\""]),
    ("log-format", &["\"json\""]),
    ("log-level", &["\"warn\""]),
    ("slow-request", &["\"1s\""]),
    ("announce-fd", &["2"]),
];

/// Whether the option is about the files of a directory.
fn is_of_files(key: &str) -> bool {
    let command = Options::command();
    option(&command, key).is_ok_and(|it| it.get_help_heading() == Some(files::HEADING))
}

fn parse(args: &[&str]) -> Result<Options, clap::Error> {
    Options::parse_from_args([&["prefork-server"], args].concat(), None)
}

/// The file as TOML, after it was read.
fn printed(path: &Path) -> String {
    let path = path.to_str().unwrap();
    let options = parse(&["--config", path, "--print-config=toml"]);
    options
        .unwrap_or_else(|error| panic!("{error}"))
        .printed
        .unwrap()
}

fn has(key: &str) -> bool {
    let command = Options::command();
    option(&command, key).is_ok()
}

#[test]
fn whatever_a_file_has_is_printed_so_that_it_reads_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (file, again) = (dir.path().join("a.toml"), dir.path().join("b.toml"));
    let mut chance = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let mut lines = Vec::new();
        let has_tls = chance.bool();
        let source = chance.choice(SOURCES).unwrap();
        for (key, values) in VALUES.iter().filter(|(key, _)| has(key)) {
            let is_chosen = match *key {
                key if SOURCES.contains(&key) => key == source,
                key if is_of_files(key) => source == "dir" && chance.bool(),
                // They need each other.
                key if key.starts_with("tls-") => has_tls,
                "redirect-to-https" => has_tls && chance.bool(),
                _ => chance.bool(),
            };
            let value = chance.choice(*values).unwrap();
            if is_chosen {
                lines.push(format!("{key} = {value}\n"));
            }
        }
        chance.shuffle(&mut lines);
        fs::write(&file, lines.concat()).unwrap();
        let first = printed(&file);
        fs::write(&again, &first).unwrap();
        assert_eq!(first, printed(&again), "{lines:?}");
        for line in &lines {
            let key = line.split(' ').next().unwrap();
            let is_set = first.lines().any(|it| it.starts_with(&format!("{key} = ")));
            assert!(
                is_set || line.ends_with("false\n"),
                "{line} is not in {first}"
            );
        }
    }
}

#[test]
fn each_option_has_values_in_the_test() {
    for option in Options::command().get_arguments() {
        let id = option.get_id().as_str();
        let key = id.replace('_', "-");
        let is_tested = VALUES.iter().any(|(tested, _)| *tested == key);
        assert_eq!(is_tested, !NOT_IN_FILE.contains(&id), "{key}");
        // They need each other, so a reload changes all of them or none.
        assert!(OF_MASTER.contains(&id) || !id.starts_with("tls_"), "{key}");
    }
    let command = Options::command();
    let is_option = |id: &str| command.get_arguments().any(|it| it.get_id().as_str() == id);
    let known = OF_MASTER.iter().filter(|id| is_option(id)).count();
    assert!(
        known == OF_MASTER.len() || cfg!(not(feature = "tls")),
        "{known}"
    );
}

#[test]
fn the_command_line_wins_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    fs::write(
        &file,
        "workers = 2\nrespond = \"file\"\nlisten = [\"127.0.0.1:1\"]\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let options = parse(&[
        "--config",
        file,
        "--workers",
        "3",
        "--listen",
        "127.0.0.1:2",
        "--echo",
    ]);
    let page = parse(&["--config", file, "--workers", "3", "--print-config"]);
    let options = options.unwrap();
    assert_eq!(options.serving.serve(), crate::cli::Serve::Echo);
    assert_eq!(options.serving.listen.len(), 1);
    assert_eq!(options.serving.listen[0].to_string(), "127.0.0.1:2");
    let page = page.unwrap().printed.unwrap();
    let row = |key: &str| page.lines().find(|line| line.starts_with(key)).unwrap();
    assert!(
        row("workers ").ends_with("3            command line"),
        "{page}"
    );
    assert!(row("respond").ends_with(file), "{page}");
    assert!(row("max-warm").ends_with("default"), "{page}");
}

#[test]
fn an_error_names_the_key_and_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    let path = file.to_str().unwrap();
    for (content, told) in [
        (
            "wrokers = 2",
            "wrokers in PATH: no such option: did you mean workers?",
        ),
        ("zzz = 2", "zzz in PATH: no such option"),
        (
            "workers = \"many\"",
            "'workers in PATH': it must be a number",
        ),
        (
            "admin = [\"off\"]\nlisten = [1, 9223372036854775808, 1e999]",
            "'9223372036854775808' for 'listen in PATH': ",
        ),
        (
            "max-warm = 0xFFFF_FFFF_FFFF_FFFF",
            "'0xFFFFFFFFFFFFFFFF' for 'max-warm in PATH'",
        ),
        (
            "max-warm = 99_999_999_999_999_999_999 # more",
            "'99999999999999999999' for 'max-warm in PATH': it is too large",
        ),
        ("workers = true", "workers in PATH: true is no text"),
        (
            "delay = 0.5",
            "delay in PATH: 0.5 is no text and no whole number",
        ),
        (
            "unix-mode = 0o660",
            "unix-mode in PATH: a mode is a text, such as \"660\"",
        ),
        ("workers = [1, 2]", "workers in PATH: [1, 2] is no text"),
        (
            "workers = 2\nadmin = []",
            "admin in PATH: the list is empty: give a value, or leave the key out",
        ),
        ("echo = 1", "echo in PATH: it is true or false"),
        (
            "config = \"b\"",
            "config in PATH: it is for the command line only",
        ),
        (
            "workers = 1\nworkers = 2",
            "PATH: TOML parse error at line 2, column 1: duplicate key",
        ),
        (
            "[server]\nworkers = 1",
            "server in PATH: the file has no sections and no tables, only KEY = VALUE",
        ),
        (
            "workers.count = 2",
            "workers in PATH: the file has no sections and no tables",
        ),
        (
            "sandbox = true",
            "sandbox in PATH: true is not one of \"on\", \"off\"",
        ),
    ] {
        fs::write(&file, content).unwrap();
        let error = parse(&["--config", path]).unwrap_err().to_string();
        let told = told.replace("PATH", path);
        assert!(error.contains(&told), "{content}: {error}");
    }
}

#[test]
fn an_option_of_the_file_may_need_one_that_is_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    let path = file.to_str().unwrap();
    for (content, told) in [
        (
            "listing = true",
            "listing in PATH is about the files of DIR",
        ),
        (
            "tls-min-version = \"1.3\"",
            "tls-min-version in PATH needs --tls-cert",
        ),
    ] {
        fs::write(&file, content).unwrap();
        let error = parse(&["--config", path, "--echo"]).unwrap_err();
        let told = told.replace("PATH", path);
        assert!(error.to_string().contains(&told), "{error}");
    }
    fs::write(&file, "tls-cert = \"c.pem\"\ntls-key = \"k.pem\"").unwrap();
    for needs_both in ["--tls-min-version=1.3", "--redirect-to-https=8080"] {
        let parsed = parse(&["--config", path, needs_both]);
        assert!(parsed.is_ok(), "the file has what {needs_both} needs");
    }
}

#[test]
fn a_file_that_is_too_long_or_not_utf8_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    let path = file.to_str().unwrap();
    for (content, told) in [
        (vec![b'#'; 70_000], "it is longer than 64 KiB"),
        // A character of three bytes is cut at the limit.
        ("\u{2026}".repeat(30_000).into(), "it is longer than 64 KiB"),
        (
            b"workers = 2\r\nrespond = \"\xe4\"".to_vec(),
            "line 2 is not UTF-8: save the file as UTF-8",
        ),
        (b"\xff\xfea\0=\x001\0".to_vec(), "line 1 is not UTF-8"),
    ] {
        fs::write(&file, content).unwrap();
        let error = parse(&["--config", path]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("--config {path}: {told}")),
            "{error}"
        );
    }
}

#[test]
fn workers_of_a_reload_get_what_can_change() {
    let read = |content: &str| {
        let (path, name) = ("a.toml".into(), String::new());
        ConfigFile::parse(path, name, content, Source::File).unwrap()
    };
    let old = read("workers = 2\nuser = \"www\"\nrespond = \"a\"");
    let new = read("workers = 3\nrespond = \"b\"\nadmin = \"off\"\ndelay = 1");
    let (merged, kept) = new.for_workers_after(&old);
    assert_eq!(kept, ["workers", "user", "admin"]);
    assert_eq!(
        merged,
        read("workers = 2\nuser = \"www\"\nrespond = \"b\"\ndelay = 1")
    );
    assert_eq!(merged.content().parse::<Table>().unwrap(), merged.values);
}
