//! What the binary is made of, and under which licences: the list in `LICENSE-DEPENDENCIES.md` is
//! complete, and every licence in it lets the binary be given away under ours.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

/// Licences that ask for nothing but their text and the authors' names.
const PERMISSIVE: &[&str] = &[
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
];

const LIST: &str = "LICENSE-DEPENDENCIES.md";

const HEAD: &str = "# Licences of the dependencies

The binary `prefork-server`, built with its default features, contains these packages. Each one's
licence text is in its source package. `cargo test --test licences` keeps this list true.

| package | licence |
|---|---|
";

/// The packages that are linked into the binary, and their licences.
fn dependencies() -> BTreeMap<String, String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges", "normal,no-proc-macro"])
        .args(["--target", "x86_64-unknown-linux-gnu", "--prefix", "none"])
        .args(["--no-dedupe", "--format", "{p}\t{l}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs this test");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let tree = String::from_utf8(output.stdout).expect("names are text");
    let packages = tree.lines().filter_map(|line| {
        let (package, licence) = line.split_once('\t')?;
        let (name, _version) = package.split_once(' ')?;
        Some((name.to_owned(), licence.to_owned()))
    });
    let mut packages: BTreeMap<_, _> = packages.collect();
    packages.remove(env!("CARGO_PKG_NAME")).expect("the root");
    packages
}

/// Whether some choice that the expression leaves (SPDX; `/` is an old form of `OR`) is permissive.
fn is_permissive(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    expression.split(" AND ").all(|part| {
        let mut choices = part.split(" OR ").map(str::trim);
        choices.any(|choice| PERMISSIVE.contains(&choice))
    })
}

#[test]
fn every_licence_is_permissive() {
    for (package, licence) in dependencies() {
        assert!(is_permissive(&licence), "{package}: {licence}");
    }
    assert!(is_permissive("MIT OR GPL-3.0") && is_permissive("(MIT OR GPL-2.0) AND ISC"));
    assert!(!is_permissive("MIT AND GPL-3.0") && !is_permissive("") && !is_permissive("MPL-2.0"));
}

#[test]
fn the_list_is_complete() {
    let mut list = HEAD.to_owned();
    for (package, licence) in dependencies() {
        writeln!(list, "| {package} | {licence} |").expect("a string takes everything");
    }
    let found = fs::read_to_string(LIST).unwrap_or_default();
    assert!(found == list, "{LIST} should be:\n{list}");
}
