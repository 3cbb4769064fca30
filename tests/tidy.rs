//! Style as a test: which room may import which, where `unsafe` may be, how large a room may grow,
//! and which words we do not use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A file that grows beyond this has more than one concept in it.
const FILE_LINES_MAX: usize = 500;
const MEDIAN_LINES_MAX: usize = 200;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Floors of the library, by module. A room may use rooms below it, and of its own floor those
/// drawn in [`BESIDE`].
const FLOORS: &[(&str, u8)] = &[
    ("address", 0),
    ("config", 0),
    ("drain", 0),
    ("error", 0),
    ("exit", 0),
    ("guide", 0),
    ("handle", 0),
    ("hooks", 0),
    ("id", 0),
    ("named", 0),
    ("one_line", 0),
    ("policy", 0),
    ("pool", 0),
    ("proxy", 0),
    ("keyring", 0),
    ("moved", 0),
    ("secret", 0),
    ("stats", 0),
    ("status", 0),
    ("codec", 0),
    ("control", 1),
    ("sys", 1),
    ("supervisor", 1),
    ("protocol", 2),
    ("http", 3),
    ("files", 4),
    ("master", 4),
    ("worker", 4),
    ("admin", 5),
    ("prefork", 6),
];

/// Rooms of one floor that may use each other.
const BESIDE: &[(&str, &str)] = &[
    ("config", "address"),
    ("config", "named"),
    ("config", "policy"),
    ("config", "proxy"),
    ("drain", "codec"),
    ("error", "address"),
    ("error", "one_line"),
    ("exit", "error"),
    ("handle", "address"),
    ("handle", "codec"),
    ("handle", "id"),
    ("handle", "policy"),
    ("handle", "status"),
    ("hooks", "address"),
    ("hooks", "codec"),
    ("hooks", "error"),
    ("hooks", "id"),
    ("hooks", "policy"),
    ("hooks", "stats"),
    ("policy", "named"),
    ("proxy", "address"),
    ("status", "address"),
    ("status", "codec"),
    ("status", "handle"),
    ("status", "hooks"),
    ("status", "id"),
    ("status", "policy"),
    ("status", "stats"),
    ("moved", "secret"),
    ("secret", "codec"),
    ("codec", "address"),
    ("codec", "id"),
];

/// Imports that a floor allows and the house does not: the pure room knows only what things are
/// called; HTTP knows nothing of processes; master and worker meet only in the protocol; the
/// builder only calls master and worker.
const FORBIDDEN: &[(&str, &str)] = &[
    ("supervisor", "config"),
    ("supervisor", "error"),
    ("supervisor", "handle"),
    ("supervisor", "hooks"),
    ("http", "sys"),
    ("http", "supervisor"),
    ("http", "protocol"),
    ("http", "handle"),
    ("http", "hooks"),
    ("worker", "supervisor"),
    ("prefork", "sys"),
    ("prefork", "protocol"),
];

/// Floors of the rooms in `src/http`; none uses one beside it.
const HTTP_FLOORS: &[(&str, u8)] = &[
    ("info", 0),
    ("options", 1),
    ("registry", 2),
    ("exchange", 3),
    ("conn", 4),
    ("http1", 5),
    ("http2", 5),
    ("no_tls", 5),
    ("tls", 5),
    ("server", 6),
    // Tests of the whole.
    ("fuzz", 7),
    ("tests", 7),
];

/// Calls that a room which decides must not make.
const IMPURE: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "tracing::",
    "tokio::",
    "nix::",
];

/// Words and phrases that other words stand for: worker, slot, spawn, drain, reload, upgrade, ...
const PHRASES: &[&str] = &[
    "graceful stop",
    "quiesce",
    "zombie worker",
    "parent process",
    "child process",
    "watchdog timer",
    "see the module's head",
    "beaten path",
    "last words",
    ", be it ",
];

/// Whole words that the plain ones have replaced: the table of names is in `src/lib.rs`. A server
/// answers a request by a response: `answers` and `answered` are plain, the noun is not.
const OLD_WORDS: &[&str] = &[
    "answer", "arbiter", "murder", "suicide", "phased", "bequeath", "bury", "desk", "ears",
    "fallen", "farewell", "heed", "heir", "heirs", "luggage", "obey", "obeys", "obituary",
    "patrol", "somebody", "whoever", "whom",
];

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The module in this folder that the file belongs to.
    fn room(&self, folder: &str) -> Option<String> {
        let path = self.path.strip_prefix(folder).ok()?;
        let first = path.components().next()?.as_os_str().to_str()?;
        let is_room = !["bin", "lib.rs", "mod.rs"].contains(&first);
        is_room.then(|| first.trim_end_matches(".rs").to_owned())
    }

    /// The file's module in this folder, with `/` between its parts.
    fn module(&self, folder: &str) -> Option<String> {
        let path = self.path.strip_prefix(folder).ok()?.with_extension("");
        Some(path.to_str()?.trim_end_matches("/mod").to_owned())
    }

    /// The text before a module of tests at the end.
    fn without_tests(&self) -> &str {
        let tests = self.text.find("\n#[cfg(test)]\nmod tests {");
        &self.text[..tests.unwrap_or(self.text.len())]
    }

    /// The lines before a module of tests at the end.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.without_tests()
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line))
    }

    fn is_test(&self) -> bool {
        self.path.starts_with("tests")
            || self
                .path
                .iter()
                .any(|part| part == "tests" || part == "tests.rs")
    }
}

fn sources(folders: &[&str]) -> Vec<Source> {
    fn collect(folder: &Path, sources: &mut Vec<Source>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                sources.push(Source { path, text });
            }
        }
    }
    // Tests run in the package's folder.
    let mut found = Vec::new();
    folders
        .iter()
        .for_each(|folder| collect(Path::new(folder), &mut found));
    assert!(
        found.len() > folders.len(),
        "the sources are not where they were"
    );
    found
}

fn complain(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_room_keeps_to_its_floor() {
    complain(&strays("src", "crate::", FLOORS));
    complain(&strays("src/http", "crate::http::", HTTP_FLOORS));
}

/// Uses of a room on the same floor or a higher one, in a folder whose rooms are named after this
/// path.
fn strays(folder: &str, path: &str, floors: &[(&str, u8)]) -> Vec<String> {
    let floors: BTreeMap<_, _> = floors.iter().copied().collect();
    let mut complaints = Vec::new();
    for source in sources(&[folder]) {
        let Some(room) = source.room(folder) else {
            continue;
        };
        let Some(&floor) = floors.get(room.as_str()) else {
            complaints.push(format!("{}: no floor is drawn for it", source.name()));
            continue;
        };
        for (number, used) in uses(&source.text, path) {
            let used = used.split("::").next().unwrap_or_default();
            let Some(&below) = floors.get(used) else {
                continue;
            };
            let pair = (room.as_str(), used);
            let allowed = used == room
                || (below < floor && !FORBIDDEN.contains(&pair))
                || BESIDE.contains(&pair);
            if !allowed {
                complaints.push(format!("{}:{number}: {room} uses {used}", source.name()));
            }
        }
    }
    complaints
}

/// What a text names after this path, in one level of braces too, with the number of the line.
fn uses(text: &str, path: &str) -> Vec<(usize, String)> {
    let word = |text: &str| -> String {
        let is_part = |c: &char| c.is_alphanumeric() || ['_', ':'].contains(c);
        text.chars().take_while(is_part).collect()
    };
    let mut found = Vec::new();
    for (at, matched) in text.match_indices(path) {
        let line = text[..at].lines().count();
        let rest = &text[at + matched.len()..];
        match rest.strip_prefix('{') {
            None => found.push((line, word(rest))),
            Some(group) => {
                let group = group.split('}').next().unwrap_or_default();
                found.extend(group.split(',').map(|part| (line, word(part.trim()))));
            }
        }
    }
    found
}

#[test]
fn no_files_of_http_import_each_other_in_a_circle() {
    const FOLDER: &str = "src/http";
    let sources = sources(&[FOLDER]);
    let sources: Vec<_> = sources.iter().filter(|source| !source.is_test()).collect();
    let modules: Vec<_> = sources
        .iter()
        .map(|source| source.module(FOLDER).expect("it is in the folder"))
        .collect();
    // A name belongs to the longest module that it begins with.
    let owner = |name: &str| {
        let name = name.replace("::", "/");
        let is_in = |module: &str| {
            let rest = name.strip_prefix(module);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let owners = (0..modules.len()).filter(|&at| is_in(&modules[at]));
        owners.max_by_key(|&at| modules[at].len())
    };
    let imports: Vec<BTreeSet<_>> = sources
        .iter()
        .enumerate()
        .map(|(at, source)| {
            let names = uses(source.without_tests(), "crate::http::");
            let owners = names.iter().filter_map(|(_, name)| owner(name));
            owners.filter(|&other| other != at).collect()
        })
        .collect();
    assert!(imports.iter().any(|imports| imports.len() > 3));
    // What imports nothing that is left is in no circle.
    let mut left: BTreeSet<_> = (0..modules.len()).collect();
    loop {
        let free: Vec<_> = left
            .iter()
            .filter(|&&at| imports[at].is_disjoint(&left))
            .copied()
            .collect();
        if free.is_empty() {
            break;
        }
        free.iter().for_each(|at| {
            left.remove(at);
        });
    }
    let circles: Vec<_> = left.iter().map(|&at| modules[at].clone()).collect();
    complain(&circles);
}

#[test]
fn unsafe_lives_in_sys_alone_and_is_argued() {
    let mut complaints = Vec::new();
    for source in sources(&["src", "tests", "benches", "examples"]) {
        let in_sys = source.path.starts_with("src/sys");
        let lines: Vec<_> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let blocks = ["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"];
            if !blocks.iter().any(|block| code.contains(block)) || code.contains('"') {
                continue;
            }
            let place = format!("{}:{}", source.name(), index + 1);
            if !in_sys {
                complaints.push(format!("{place}: unsafe outside src/sys"));
            } else if !code.contains("allow(") {
                let argued = lines[index.saturating_sub(5)..=index]
                    .iter()
                    .any(|line| line.contains("SAFETY:"));
                if !argued {
                    complaints.push(format!("{place}: no SAFETY argument"));
                }
            }
        }
    }
    complain(&complaints);
}

#[test]
fn rooms_and_functions_stay_small() {
    let mut complaints = Vec::new();
    let mut lengths = Vec::new();
    for source in sources(&["src", "tests", "benches", "examples"]) {
        let length = source.text.lines().count();
        lengths.push(length);
        if length > FILE_LINES_MAX {
            complaints.push(format!("{}: {length} lines", source.name()));
        }
        for (number, line) in source.text.lines().enumerate() {
            if line.chars().count() > COLUMNS_MAX {
                complaints.push(format!("{}:{}: a long line", source.name(), number + 1));
            }
        }
        complaints.extend(long_functions(&source));
    }
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    if median > MEDIAN_LINES_MAX {
        complaints.push(format!("the median file has {median} lines"));
    }
    complain(&complaints);
}

/// Relies on rustfmt: a function ends at the first `}` indented as its `fn` line is.
fn long_functions(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<(usize, usize, String)> = None;
    for (number, line) in source.text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim_start();
        let begins = words.starts_with("fn ")
            || words.contains(" fn ") && !words.starts_with("//") && !words.contains('"');
        if open.is_none() && begins {
            open = Some((number, indent, words.to_owned()));
        } else if let Some((start, at, name)) = &open
            && indent == *at
            && (words.starts_with('}') || words.ends_with(';'))
        {
            let length = number - start + 1;
            if length > FUNCTION_LINES_MAX {
                found.push(format!(
                    "{}:{}: {length} lines: {name}",
                    source.name(),
                    start + 1
                ));
            }
            open = None;
        }
    }
    found
}

#[test]
fn who_decides_asks_no_clock_and_no_kernel() {
    let mut complaints = Vec::new();
    for source in sources(&["src/supervisor"]) {
        for (number, line) in source.code() {
            if IMPURE.iter().any(|call| line.contains(call)) {
                complaints.push(format!("{}:{number}: {}", source.name(), line.trim()));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn one_word_for_one_thing() {
    let mut complaints = Vec::new();
    let mut texts: Vec<_> = sources(&["src", "tests", "benches", "examples"])
        .into_iter()
        .map(|source| (source.path, source.text))
        .filter(|(path, _)| path != Path::new("tests/tidy.rs"))
        .collect();
    for folder in [".", "src/guide", "tests", "benches", "examples"] {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).expect("text");
                texts.push((path, text));
            }
        }
    }
    for (path, text) in texts {
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            let mut words = line.split(|c: char| !c.is_alphabetic());
            let old = words.find(|word| OLD_WORDS.contains(word));
            let phrase = PHRASES.iter().find(|phrase| line.contains(**phrase));
            if let Some(found) = old.or(phrase.copied()) {
                complaints.push(format!("{}:{}: says `{found}`", path.display(), number + 1));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn no_test_waits_for_time_and_nothing_is_unfinished() {
    let mut complaints = Vec::new();
    let unfinished = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
    ];
    for source in sources(&["src", "tests", "benches"]) {
        for (number, line) in source.text.lines().enumerate() {
            let sleeps = source.is_test() && line.contains(concat!("sle", "ep("));
            if sleeps || unfinished.iter().any(|mark| line.contains(mark)) {
                complaints.push(format!("{}:{}: {}", source.name(), number + 1, line.trim()));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn unwrap_is_for_tests() {
    let mut complaints = Vec::new();
    for source in sources(&["src"])
        .into_iter()
        .filter(|source| !source.is_test())
    {
        for (number, line) in source.code() {
            if line.contains(".unwrap()") && !line.trim_start().starts_with("//") {
                complaints.push(format!("{}:{number}: {}", source.name(), line.trim()));
            }
        }
    }
    complain(&complaints);
}
