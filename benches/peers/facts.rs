//! What the figures belong to: the machine, and the version of everything that was measured.

use std::path::Path;
use std::process::Command;

use crate::cpus::Cpus;
use crate::machine::Machine;
use crate::peer::{extra_options, other_binary};
use crate::process::which;
use crate::programs::{Program, Programs};

/// Names and what there is to say, in the order in which they are told.
pub(crate) struct Facts(pub(crate) Vec<(&'static str, String)>);

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

impl Facts {
    pub(crate) fn gather(machine: Machine, programs: &Programs, cpus: Cpus) -> Self {
        let mut facts = vec![
            ("CPU", machine.cpu),
            ("CPUs", machine.cores.to_string()),
            ("memory", format!("{} MiB", machine.memory_mib)),
            ("servers on", format!("CPU {}", cpus.server)),
            ("load on", format!("CPU {}", cpus.load)),
            ("kernel", format!("Linux {}", machine.kernel)),
            ("load average before", machine.load_average),
            ("prefork-server", ours()),
        ];
        facts.extend(pinned().map(|(name, version)| (name, version.unwrap_or_default())));
        if let Ok(nginx) = programs.path(Program::Nginx) {
            facts.push(("nginx", said(nginx, &["-v"])));
        }
        if let Some(go) = which("go") {
            facts.push(("Go", said(&go, &["version"])));
        }
        facts.push(("rustc", said(Path::new("rustc"), &["--version"])));
        Self(facts)
    }
}

/// The versions that the templates name; `None` where one names none, which is a mistake in it.
pub(crate) fn pinned() -> impl Iterator<Item = (&'static str, Option<String>)> {
    PINNED.into_iter().map(|(name, program, file)| {
        let sources = program.sources().iter();
        let text = sources
            .filter(|(path, _)| *path == file)
            .map(|(_, text)| *text);
        (
            name,
            text.flat_map(str::lines)
                .find_map(|line| version(line, name)),
        )
    })
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
    let options = extra_options();
    let text = format!("{} {build} {options}", env!("CARGO_PKG_VERSION"));
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
