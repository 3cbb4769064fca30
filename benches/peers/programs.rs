//! Other people's servers as programs, built from the templates beside this file.
//!
//! They are built in the target directory, each in a project of its own, and rebuilt only when
//! something has changed. What cannot be built is left out, and its row says why.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Trouble;
use crate::support::{cpus, named, toolchain};

named! {
    /// What must be built to run a server.
    enum Program {
        /// actix-web, axum and hyper, with the system's allocator and with ours.
        Rust = "rust",
        /// An axum `Router` in this package.
        PreforkAxum = "prefork-axum",
        Fasthttp = "fasthttp",
        Forker = "forker",
        NetHttp = "net-http",
        /// fasthttp and net/http without a kernel.
        InMemory = "in-memory",
        StaticWebServer = "static-web-server",
    }
}

const ROUTER: &str = include_str!("templates/router.rs.txt");
const RUST: [(&str, &[&str]); 3] = [
    ("actix", &[include_str!("templates/actix.rs.txt")]),
    ("axum", &[include_str!("templates/axum.rs.txt"), ROUTER]),
    ("hyper", &[include_str!("templates/hyper.rs.txt")]),
];
const PREFORK_AXUM: [(&str, &[&str]); 1] = [(
    "prefork-axum",
    &[include_str!("templates/prefork_axum.rs.txt"), ROUTER],
)];
const MIMALLOC: &str = include_str!("templates/mimalloc.rs.txt");

/// The manifests, which pin the versions.
pub(crate) const CARGO: &str = include_str!("templates/Cargo.toml.txt");
pub(crate) const FASTHTTP: &str = include_str!("templates/fasthttp.mod.txt");
pub(crate) const FORKER: &str = include_str!("templates/forker.mod.txt");
const NET_HTTP: &str = include_str!("templates/net_http.mod.txt");
/// The version of the crate static-web-server.
pub(crate) const STATIC_WEB_SERVER: &str = "2.44.1";

/// Programs that have been built, or why they could not be.
pub(crate) struct Programs {
    built: RefCell<BTreeMap<Program, Result<PathBuf, Trouble>>>,
    /// Where compilers run.
    cpus: Vec<usize>,
}

impl Programs {
    pub(crate) fn new() -> Self {
        Self {
            built: RefCell::default(),
            cpus: cpus::usable(),
        }
    }

    /// Where a program is; of Rust programs the directory of all of them. Builds it the first
    /// time.
    pub(crate) fn path(&self, program: Program) -> Result<PathBuf, Trouble> {
        let mut built = self.built.borrow_mut();
        let path = built.entry(program).or_insert_with(|| {
            eprintln!("building {}", program.name());
            cpus::on(&self.cpus, || program.build())
        });
        path.clone()
    }
}

impl Program {
    fn build(self) -> Result<PathBuf, Trouble> {
        let dir = target().join(self.name());
        let go = |main: &str, module: &str| {
            let sources = [("main.go", main), ("go.mod", module)];
            toolchain::go_program(&dir, &sources)
        };
        match self {
            Self::Rust => rust(&dir, CARGO, &RUST),
            Self::PreforkAxum => {
                let manifest = include_str!("templates/prefork_axum.toml.txt");
                let manifest = manifest.replace("@here@", env!("CARGO_MANIFEST_DIR"));
                rust(&dir, &manifest, &PREFORK_AXUM)
            }
            Self::Fasthttp => go(include_str!("templates/fasthttp.go.txt"), FASTHTTP),
            Self::Forker => go(include_str!("templates/forker.go.txt"), FORKER),
            Self::NetHttp => go(include_str!("templates/net_http.go.txt"), NET_HTTP),
            Self::InMemory => go(include_str!("templates/in_memory.go.txt"), FASTHTTP),
            Self::StaticWebServer => static_web_server(&dir),
        }
    }
}

/// Each program is made of parts, and there is one with each allocator.
fn rust(dir: &Path, manifest: &str, programs: &[(&str, &[&str])]) -> Result<PathBuf, Trouble> {
    toolchain::write(&dir.join("Cargo.toml"), manifest)?;
    let bin = dir.join("src/bin");
    for (name, parts) in programs {
        let text = parts.concat();
        toolchain::write(&bin.join(name).with_extension("rs"), &text)?;
        let with_mimalloc = bin.join(format!("{name}-mimalloc.rs"));
        toolchain::write(&with_mimalloc, &format!("{text}{MIMALLOC}"))?;
    }
    let built = dir.join("target");
    let mut build = cargo()?;
    build.args(["build", "--release", "--target-dir"]);
    toolchain::run(build.arg(&built).current_dir(dir))?;
    Ok(built.join("release"))
}

/// With the dependencies and the profile that its authors publish.
fn static_web_server(dir: &Path) -> Result<PathBuf, Trouble> {
    fs::create_dir_all(dir)?;
    let mut install = cargo()?;
    install.args(["install", "static-web-server", "--locked"]);
    install
        .args(["--version", STATIC_WEB_SERVER, "--root"])
        .arg(dir);
    install.arg("--target-dir").arg(dir.join("target"));
    toolchain::run(install.current_dir(dir))?;
    Ok(dir.join("bin/static-web-server"))
}

fn cargo() -> Result<Command, Trouble> {
    let mut cargo = Command::new(toolchain::found("cargo")?);
    // What was set for this bench is not meant for them.
    cargo.env_remove("CARGO_BUILD_TARGET");
    cargo.env_remove("RUSTFLAGS");
    Ok(cargo)
}

/// Where all that this bench builds and writes is.
pub(crate) fn target() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().expect("it is in the target directory");
    target.join("peers")
}
