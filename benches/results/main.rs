//! What did `models` find, and what has changed between two commits?
//!
//!     cargo bench --bench results -- compare A.json B.json
//!     cargo bench --bench results -- report [A.json]
//!
//! Nothing is measured here: this reads the files that `models` keeps (`compare` those of `peers`
//! too). `compare` prints ratios and their noise. `report` writes `benches/RESULTS.md`, from the
//! newest file if none is named.

mod columns;
mod compare;
mod document;
#[path = "../support/mod.rs"]
mod support;

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::support::report::{Results, directory};

/// Where the document goes: `cargo bench` runs in the package's directory.
const DOCUMENT: &str = "benches/RESULTS.md";

const USAGE: &str = "results: compare A.json B.json, or report [A.json]; names without a slash are \
                     looked for in target/bench-results";

fn main() -> ExitCode {
    // `cargo bench` adds options that every bench understands, and there is nothing to smoke here.
    let words: Vec<String> = env::args().skip(1).collect();
    let words = words.iter().map(String::as_str);
    let words: Vec<&str> = words.filter(|word| !word.starts_with('-')).collect();
    let done = match words.as_slice() {
        ["compare", before, after] => compare(before, after),
        ["report"] => newest().and_then(|path| report(&path)),
        ["report", path] => report(&named(path)),
        _ => {
            println!("{USAGE}");
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("results: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(before: &str, after: &str) -> io::Result<()> {
    let (before, after) = (read(&named(before))?, read(&named(after))?);
    println!("{}", compare::text(&before, &after));
    Ok(())
}

fn report(path: &Path) -> io::Result<()> {
    let results = read(path)?;
    fs::write(DOCUMENT, document::of(&results))?;
    println!("{DOCUMENT} has the figures of {}", path.display());
    Ok(())
}

fn read(path: &Path) -> io::Result<Results> {
    let told = |error| io::Error::other(format!("{}: {error}", path.display()));
    Results::read(path).map_err(told)
}

/// A path, or the name of a file among the results, with or without its ending.
fn named(name: &str) -> PathBuf {
    if name.contains('/') || Path::new(name).exists() {
        return name.into();
    }
    let file = directory().join(name);
    match file.extension() {
        Some(_) => file,
        None => file.with_extension("json"),
    }
}

/// The file that was written last, but for quick runs.
fn newest() -> io::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".json") && !name.ends_with("-quick.json") {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    let newest = found.into_iter().max().map(|(_, path)| path);
    newest.ok_or_else(|| io::Error::other("there are no results yet: cargo bench --bench models"))
}
