//! Other people's servers as programs: built from the templates beside this file, or found.
//!
//! They are built in the target directory, each in a project of its own, and rebuilt only when
//! something has changed. What cannot be built is left out, and its row says why.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Trouble, which};
use crate::support::{named, toolchain};

named! {
    /// What must be there to run a server.
    enum Program {
        /// actix-web, axum and hyper, with the system's allocator and with ours.
        Rust = "rust",
        Fasthttp = "fasthttp",
        Forker = "forker",
        NetHttp = "net-http",
        /// fasthttp and net/http without a kernel.
        InMemory = "in-memory",
        Nginx = "nginx",
    }
}

const RUST: [(&str, &str); 3] = [
    ("actix", include_str!("templates/actix.rs.txt")),
    ("axum", include_str!("templates/axum.rs.txt")),
    ("hyper", include_str!("templates/hyper.rs.txt")),
];
const MIMALLOC: &str = include_str!("templates/mimalloc.rs.txt");

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
}

impl Program {
    /// What it is built from, if it is built: names in a project, and what to write there.
    pub(crate) fn sources(self) -> Vec<(String, String)> {
        let go = |main: &str, module: &str| {
            [("main.go", main), ("go.mod", module)]
                .map(|(name, text)| (name.into(), text.into()))
                .into()
        };
        match self {
            Self::Rust => {
                let manifest = include_str!("templates/Cargo.toml.txt");
                let mut sources = vec![("Cargo.toml".to_owned(), manifest.to_owned())];
                for (name, text) in RUST {
                    sources.push((format!("src/bin/{name}.rs"), text.to_owned()));
                    sources.push((
                        format!("src/bin/{name}-mimalloc.rs"),
                        format!("{text}{MIMALLOC}"),
                    ));
                }
                sources
            }
            Self::Fasthttp => go(
                include_str!("templates/fasthttp.go.txt"),
                include_str!("templates/fasthttp.mod.txt"),
            ),
            Self::Forker => go(
                include_str!("templates/forker.go.txt"),
                include_str!("templates/forker.mod.txt"),
            ),
            Self::NetHttp => go(
                include_str!("templates/net_http.go.txt"),
                include_str!("templates/net_http.mod.txt"),
            ),
            Self::InMemory => go(
                include_str!("templates/in_memory.go.txt"),
                include_str!("templates/fasthttp.mod.txt"),
            ),
            Self::Nginx => Vec::new(),
        }
    }

    fn get(self) -> Result<PathBuf, Trouble> {
        let dir = target().join(self.name());
        match self {
            Self::Nginx => found("nginx"),
            Self::Rust => {
                toolchain::write(&dir, &self.sources())?;
                let built = dir.join("target");
                let mut build = Command::new(found("cargo")?);
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
            _ => toolchain::go_program(&dir, &self.sources()),
        }
    }
}

fn found(program: &str) -> Result<PathBuf, Trouble> {
    let missing = || Trouble::NotSupported(format!("{program} not found"));
    which(program).ok_or_else(missing)
}

/// Where all that this bench builds and writes is.
pub(crate) fn target() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().expect("it is in the target directory");
    target.join("peers")
}
