//! The versions of all that is measured.

use std::process::Command;

use crate::machine::Fact;
use crate::peer::extra_options;
use crate::process::other_binary;
use crate::programs::{CARGO, FASTHTTP, FORKER, STATIC_WEB_SERVER};
use crate::session::Cpus;

pub(crate) fn gather(cpus: &Cpus) -> Vec<Fact> {
    let git = ["describe", "--always", "--dirty"];
    let build = match other_binary() {
        Some(other) => other.display().to_string(),
        None => said("git", &git),
    };
    let ours = format!("{} {build} {}", env!("CARGO_PKG_VERSION"), extra_options());
    let mut facts = vec![
        ("servers on".to_owned(), format!("CPU {}", cpus.server)),
        ("load on".to_owned(), format!("CPU {}", cpus.load)),
        ("prefork-server".to_owned(), ours.trim().to_owned()),
    ];
    let manifests = [CARGO, FASTHTTP, FORKER].into_iter();
    facts.extend(manifests.flat_map(str::lines).filter_map(pinned));
    facts.push(("static-web-server".to_owned(), STATIC_WEB_SERVER.to_owned()));
    let programs = [
        ("caddy", "version"),
        ("nginx", "-v"),
        ("go", "version"),
        ("rustc", "--version"),
    ];
    for (program, argument) in programs {
        facts.push((program.to_owned(), said(program, &[argument])));
    }
    facts
}

/// Of `name = { version = "=1.2.3", ... }`, `name = "=1.2.3"` and `require name v1.2.3`.
fn pinned(line: &str) -> Option<Fact> {
    let (name, version) = match line.strip_prefix("require ") {
        Some(required) => required.split_once(" v")?,
        None => {
            let (_, version) = line.split_once("\"=")?;
            (line.split(' ').next()?, version.split('"').next()?)
        }
    };
    Some((name.to_owned(), version.to_owned()))
}

/// What a program prints on both of its outputs; empty if the program cannot be started.
fn said(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let command = command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let Ok(output) = command.args(arguments).output() else {
        return String::new();
    };
    let bytes = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
