//! What the documents name exists: files, headings, functions, tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Every document with its path, and every source file.
fn files(extension: &str) -> Vec<(PathBuf, String)> {
    fn collect(folder: &Path, extension: &str, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, extension, found);
            } else if path.extension().is_some_and(|its| its == extension) {
                let text = fs::read_to_string(&path).expect("text");
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    for folder in ["src", "tests", "benches", "examples"] {
        collect(Path::new(folder), extension, &mut found);
    }
    if extension == "md" {
        for path in ["README.md", "CHANGELOG.md"] {
            found.push((path.into(), fs::read_to_string(path).expect("text")));
        }
    }
    assert!(found.len() > 10, "the files are not where they were");
    found
}

fn complain(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The targets of a document's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// The code that a text names, in order.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().to_lowercase();
    let letters = letters.replace(' ', "-");
    let keeps = |letter: &char| letter.is_alphanumeric() || "-_".contains(*letter);
    letters.chars().filter(keeps).collect()
}

#[test]
fn the_versions_of_crates_are_those_of_the_manifest() {
    let read = |path| fs::read_to_string(path).expect("text");
    let (front, manifest) = (read("src/lib.rs"), read("Cargo.toml"));
    let (_, versions) = front.split_once("Their versions are ").expect("a list");
    let (versions, _) = versions.split_once(". ").expect("its end");
    let versions = versions.replace("//! ", "");
    let parts: Vec<_> = versions.split('`').skip(1).collect();
    assert_eq!(parts.len(), 24, "{versions}");
    for part in parts.chunks(2) {
        let version = part[1].split_whitespace().next().unwrap_or_default();
        let version = version.trim_end_matches(',');
        let line = format!("{} = ", part[0]);
        let mut lines = manifest.lines().filter_map(|it| it.strip_prefix(&line));
        let is_named = lines.any(|it| {
            it.contains(&format!("\"{version}.")) || it.contains(&format!("\"{version}\""))
        });
        assert!(is_named, "{part:?}");
    }
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut complaints = Vec::new();
    for (path, text) in files("md") {
        let folder = path.parent().expect("a file is in a folder");
        for link in links(&text).filter(|link| !link.starts_with("http")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = match file.split_once("::guide::") {
                Some((_, page)) => Path::new("src/guide").join(page).with_extension("md"),
                // rustdoc checks what else is of the crate.
                None if file.starts_with("crate") => continue,
                None if file.is_empty() => path.clone(),
                None => folder.join(file),
            };
            let has_heading = |text: String| {
                let mut lines = text.lines().filter(|line| line.starts_with('#'));
                lines.any(|line| anchor(line) == heading)
            };
            let leads = match heading {
                "" => file.exists(),
                _ => fs::read_to_string(&file).is_ok_and(has_heading),
            };
            if !leads {
                complaints.push(format!("{}: {link}", path.display()));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn the_main_of_each_program_returns_an_exit() {
    let documents = files("md").into_iter().chain(files("rs"));
    let shown = |path: &Path| {
        let is_ours = path.starts_with("src/bin") || path.starts_with("benches");
        !is_ours && !path.starts_with("tests")
    };
    let (mut complaints, mut programs) = (Vec::new(), 0);
    for (path, text) in documents.filter(|(path, _)| shown(path)) {
        let lines = text
            .lines()
            .map(|line| line.trim_start_matches(['/', '!', ' ']));
        for line in lines.filter(|line| line.starts_with("fn main(")) {
            programs += 1;
            if !line.ends_with("Exit {") {
                complaints.push(format!("{}: {line}", path.display()));
            }
        }
    }
    assert!(programs > 10, "the programs are not where they were");
    complain(&complaints);
}

/// A function is named as `name()` after its file.
#[test]
fn the_design_page_names_files_and_functions_that_exist() {
    let page = fs::read_to_string("src/guide/design.md").expect("text");
    let (mut complaints, mut functions) = (Vec::new(), 0);
    let (mut path, mut text) = ("", String::new());
    for name in code(&page) {
        if name.starts_with("src/") {
            path = name;
            text = fs::read_to_string(path).unwrap_or_default();
            if !Path::new(path).exists() {
                complaints.push(path.to_owned());
            }
        } else if let Some(function) = name.strip_suffix("()") {
            functions += 1;
            let function = function.rsplit("::").next().unwrap_or_default();
            if !text.contains(&format!("fn {function}(")) {
                complaints.push(format!("{path}: {name}"));
            }
        }
    }
    assert!(functions > 5, "no functions are named");
    complain(&complaints);
}

/// A test, or a module of tests.
#[test]
fn the_tests_that_keep_the_promises_exist() {
    let page = fs::read_to_string("tests/README.md").expect("text");
    let promises = page
        .split("\n## ")
        .find(|it| it.starts_with("The promises"));
    let sources = files("rs");
    let is_there = |name: &str| {
        let test = format!("fn {name}(");
        let file = format!("{name}.rs");
        let is_it = |(path, text): &(PathBuf, String)| {
            text.contains(&test) || path.iter().any(|part| part == name || *part == *file)
        };
        sources.iter().any(is_it)
    };
    let (mut complaints, mut tests) = (Vec::new(), 0);
    for path in code(promises.expect("the promises")).filter(|name| name.contains("::")) {
        tests += 1;
        if !path.split("::").all(is_there) {
            complaints.push(path.to_owned());
        }
    }
    assert!(tests > 20, "no tests are named");
    complain(&complaints);
}

/// The names that the root of the library exports.
fn exports(root: &str) -> impl Iterator<Item = &str> {
    let paths = root
        .split("\npub use crate::")
        .skip(1)
        .filter_map(|rest| rest.split(';').next());
    let names = paths.filter_map(|path| path.rsplit("::").next());
    names.flat_map(|names| {
        names
            .split(['{', '}', ',', ' ', '\n'])
            .filter(|name| !name.is_empty())
    })
}

/// The items of a file, each with its comments. rustfmt indents all lines inside of an item.
fn items(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for part in text.split("\n\n") {
        match items.last_mut() {
            Some(item) if part.starts_with(' ') => item.push_str(&format!("\n\n{part}")),
            _ => items.push(part.to_owned()),
        }
    }
    items
}

/// Whether an item declares this name or has methods of it.
fn is_of(item: &str, name: &str) -> bool {
    let kinds = ["const", "enum", "fn", "struct", "trait", "type"];
    let mut lines = item.lines().map(str::trim_start);
    lines.any(|line| {
        let declared = line
            .strip_prefix("pub ")
            .and_then(|line| line.split_once(' '));
        let declared = declared.filter(|(kind, _)| kinds.contains(kind));
        let methods = line
            .strip_prefix("impl ")
            .filter(|line| !line.contains(" for "));
        let rest = declared
            .map(|(_, rest)| rest)
            .or(methods)
            .unwrap_or_default();
        rest.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            == Some(name)
    })
}

#[test]
fn each_item_that_is_exported_has_an_example() {
    let root = fs::read_to_string("src/lib.rs").expect("text");
    let sources = files("rs")
        .into_iter()
        .filter(|(path, _)| path.starts_with("src"));
    let items: Vec<_> = sources.flat_map(|(_, text)| items(&text)).collect();
    let has_example = |name: &&str| {
        let mut its = items.iter().filter(|item| is_of(item, name));
        its.any(|item| {
            item.lines()
                .any(|line| line.trim_start().starts_with("/// ```"))
        })
    };
    let (shown, bare): (Vec<_>, Vec<_>) = exports(&root).partition(has_example);
    assert!(
        shown.len() > 50,
        "the exports are not where they were: {shown:?}"
    );
    complain(&bare.into_iter().map(str::to_owned).collect::<Vec<_>>());
}

/// The words that may be metrics: in the guide's table, in the dashboard, in the alerts.
fn metrics(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let words = text.split(move |letter| !is_part(letter));
    words.filter(|word| word.starts_with("prefork_") || word.starts_with("http_server_"))
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let read = |path: &str| fs::read_to_string(path).expect("text");
    let guide = read("src/guide/metrics.md");
    let known: Vec<&str> = metrics(&guide).collect();
    let mut complaints = Vec::new();
    for path in ["grafana-dashboard.json", "prometheus-alerts.yaml"] {
        let text = read(&format!("examples/deploy/{path}"));
        assert!(metrics(&text).count() > 5, "{path}");
        let unknown = metrics(&text).filter(|metric| {
            let base = metric.strip_suffix("_bucket").unwrap_or(metric);
            !known.contains(&base)
        });
        complaints.extend(unknown.map(|metric| format!("{path}: {metric}")));
    }
    complain(&complaints);
    let dashboard = read("examples/deploy/grafana-dashboard.json");
    serde_json::from_str::<serde_json::Value>(&dashboard).expect("JSON");
}
