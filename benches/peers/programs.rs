//! Other people's servers as programs: built from the templates beside this file, or found.
//!
//! They are built in the target directory, each in a project of its own, and rebuilt only when
//! something has changed. What cannot be built is left out with a word of why.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Trouble, which};
use crate::toolchain;

/// What must be there to run a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    /// actix-web, axum and hyper, with the system's allocator and with ours.
    Rust,
    Fasthttp,
    Forker,
    NetHttp,
    /// fasthttp and net/http without a kernel.
    InMemory,
    Nginx,
}

/// Names in a project, and what to write there.
type Sources = &'static [(&'static str, &'static str)];

const RUST: Sources = &[
    ("Cargo.toml", include_str!("templates/Cargo.toml.txt")),
    ("src/bin/actix.rs", include_str!("templates/actix.rs.txt")),
    ("src/bin/axum.rs", include_str!("templates/axum.rs.txt")),
    ("src/bin/hyper.rs", include_str!("templates/hyper.rs.txt")),
];
const WITH_MIMALLOC: Sources = &[
    (
        "src/bin/actix-mimalloc.rs",
        concat!(
            include_str!("templates/actix.rs.txt"),
            include_str!("templates/mimalloc.rs.txt")
        ),
    ),
    (
        "src/bin/axum-mimalloc.rs",
        concat!(
            include_str!("templates/axum.rs.txt"),
            include_str!("templates/mimalloc.rs.txt")
        ),
    ),
    (
        "src/bin/hyper-mimalloc.rs",
        concat!(
            include_str!("templates/hyper.rs.txt"),
            include_str!("templates/mimalloc.rs.txt")
        ),
    ),
];
const FASTHTTP: Sources = &[
    ("main.go", include_str!("templates/fasthttp.go.txt")),
    ("go.mod", include_str!("templates/fasthttp.mod.txt")),
];
const FORKER: Sources = &[
    ("main.go", include_str!("templates/forker.go.txt")),
    ("go.mod", include_str!("templates/forker.mod.txt")),
];
const NET_HTTP: Sources = &[
    ("main.go", include_str!("templates/net_http.go.txt")),
    ("go.mod", include_str!("templates/net_http.mod.txt")),
];
const IN_MEMORY: Sources = &[
    ("main.go", include_str!("templates/in_memory.go.txt")),
    ("go.mod", include_str!("templates/fasthttp.mod.txt")),
];

/// What there is of what was asked for.
pub(crate) struct Programs(BTreeMap<Program, Result<PathBuf, Trouble>>);

impl Programs {
    /// Builds or finds `wanted`, one after the other, and says so.
    pub(crate) fn get(wanted: impl IntoIterator<Item = Program>) -> Self {
        let mut programs = BTreeMap::new();
        for program in wanted {
            programs.entry(program).or_insert_with(|| {
                eprintln!("building or finding {}", program.name());
                program.get()
            });
        }
        Self(programs)
    }

    /// Where a program is; for [`Program::Rust`] the directory of all of them.
    pub(crate) fn path(&self, program: Program) -> Result<&Path, Trouble> {
        match self.0.get(&program) {
            Some(Ok(path)) => Ok(path),
            Some(Err(trouble)) => Err(trouble.clone()),
            None => Err(Trouble::NotSupported("not asked for".into())),
        }
    }

    pub(crate) fn rust(&self, name: &str) -> Result<PathBuf, Trouble> {
        Ok(self.path(Program::Rust)?.join(name))
    }
}

impl Program {
    pub(crate) const ALL: [Self; 6] = [
        Self::Rust,
        Self::Fasthttp,
        Self::Forker,
        Self::NetHttp,
        Self::InMemory,
        Self::Nginx,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Fasthttp => "fasthttp",
            Self::Forker => "forker",
            Self::NetHttp => "net-http",
            Self::InMemory => "in-memory",
            Self::Nginx => "nginx",
        }
    }

    /// What it is built from, if it is built.
    pub(crate) fn sources(self) -> Sources {
        match self {
            Self::Rust => RUST,
            Self::Fasthttp => FASTHTTP,
            Self::Forker => FORKER,
            Self::NetHttp => NET_HTTP,
            Self::InMemory => IN_MEMORY,
            Self::Nginx => &[],
        }
    }

    fn get(self) -> Result<PathBuf, Trouble> {
        let missing = || Trouble::NotSupported("nginx not found".into());
        match self {
            Self::Nginx => which("nginx").ok_or_else(missing),
            Self::Rust => cargo_programs(&self.dir()),
            _ => toolchain::go_program(&self.dir(), self.sources()),
        }
    }

    /// Where it is built.
    pub(crate) fn dir(self) -> PathBuf {
        target().join(self.name())
    }
}

/// Where all that this bench builds and writes is.
pub(crate) fn target() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().expect("it is in the target directory");
    target.join("peers")
}

fn cargo_programs(dir: &Path) -> Result<PathBuf, Trouble> {
    let missing = || Trouble::NotSupported("cargo not found".into());
    let cargo = which("cargo").ok_or_else(missing)?;
    toolchain::write(dir, RUST)?;
    toolchain::write(dir, WITH_MIMALLOC)?;
    let built = dir.join("target");
    let mut build = Command::new(cargo);
    // What was set for this bench is not meant for them.
    for variable in ["CARGO_BUILD_TARGET", "RUSTFLAGS"] {
        build.env_remove(variable);
    }
    build
        .args(["build", "--release", "--target-dir"])
        .arg(&built);
    toolchain::run(build.current_dir(dir))?;
    Ok(built.join("release"))
}
