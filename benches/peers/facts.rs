//! The versions of all that is measured.

use std::path::Path;
use std::process::Command;

use crate::machine::Fact;
use crate::peer::extra_options;
use crate::process::{other_binary, which};
use crate::programs::{Program, Programs};
use crate::session::Cpus;

/// What a template pins: its name, the program, and the file in which it stands.
const PINNED: [(&str, Program, &str); 7] = [
    ("hyper", Program::Rust, "Cargo.toml"),
    ("tokio", Program::Rust, "Cargo.toml"),
    ("axum", Program::Rust, "Cargo.toml"),
    ("actix-web", Program::Rust, "Cargo.toml"),
    ("mimalloc", Program::Rust, "Cargo.toml"),
    ("github.com/valyala/fasthttp", Program::Fasthttp, "go.mod"),
    ("github.com/Ja7ad/forker", Program::Forker, "go.mod"),
];

/// # Panics
///
/// If a template does not say which version it is for.
pub(crate) fn gather(programs: &Programs, cpus: &Cpus) -> Vec<Fact> {
    let mut facts = vec![
        ("servers on", format!("CPU {}", cpus.server)),
        ("load on", format!("CPU {}", cpus.load)),
        ("prefork-server", ours()),
    ];
    for (name, program, file) in PINNED {
        let sources = program.sources().into_iter();
        let mut lines = sources
            .filter(|(path, _)| path == file)
            .flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>());
        let version = lines.find_map(|line| version(&line, name));
        let version = version.unwrap_or_else(|| panic!("no template names a version of {name}"));
        facts.push((name, version));
    }
    if let Ok(nginx) = programs.path(Program::Nginx) {
        facts.push(("nginx", said(nginx, &["-v"])));
    }
    if let Some(go) = which("go") {
        facts.push(("Go", said(&go, &["version"])));
    }
    facts.push(("rustc", said(Path::new("rustc"), &["--version"])));
    let facts = facts.into_iter();
    facts.map(|(name, fact)| (name.to_owned(), fact)).collect()
}

/// Of `name = { version = "=1.2.3", ... }`, `name = "=1.2.3"` and `require name v1.2.3`.
fn version(line: &str, name: &str) -> Option<String> {
    let line = line.trim_start_matches("require ");
    let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
    let from = rest.find(|c: char| c.is_ascii_digit())?;
    let version = rest[from..].split(['"', ' ']).next()?;
    Some(version.to_owned())
}

/// The version, the commit if there is one to ask for, and options that are not the usual ones.
fn ours() -> String {
    let git = [
        "-C",
        env!("CARGO_MANIFEST_DIR"),
        "describe",
        "--always",
        "--dirty",
    ];
    let build = match other_binary() {
        Some(other) => other.display().to_string(),
        None => said(Path::new("git"), &git),
    };
    let text = format!("{} {build} {}", env!("CARGO_PKG_VERSION"), extra_options());
    text.trim().to_owned()
}

/// What a program answers on either of its outputs.
fn said(program: &Path, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        return String::new();
    };
    let bytes = match output.stdout.is_empty() {
        true => output.stderr,
        false => output.stdout,
    };
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
