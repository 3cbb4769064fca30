//! The servers, each with one worker or thread, all with the same response.

use std::env;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

use crate::process::{Processes, Trouble, binary, free_address, until};
use crate::programs::{Program, Programs};
use crate::support::{cpu, named, toolchain};

/// What all of them answer with.
pub(crate) const BODY: &str = "Hello, World!";

/// What the ratios are to.
pub(crate) const OURS: &str = Peer::Prefork.name();
pub(crate) const FLOOR: &str = Peer::Floor.name();

/// Tells this executable to be the floor.
const BECOME_FLOOR: &str = "BENCH_FLOOR";

/// What our binary is told besides, between blanks, so that what an option costs can be measured.
const OPTIONS: &str = "PREFORK_BENCH_OPTIONS";

/// A server that has just started answers its first request later, not never.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(5);

named! {
    /// The servers.
    #[derive(ValueEnum)]
    enum Peer {
        /// This package's binary.
        Prefork = "prefork-server",
        /// A loop over epoll, recv and send.
        Floor = "raw epoll",
        /// hyper on a single-threaded runtime.
        Hyper = "hyper",
        /// hyper on a multi-threaded runtime.
        HyperMulti = "hyper, multi-thread",
        /// axum on a multi-threaded runtime.
        Axum = "axum",
        /// actix-web.
        Actix = "actix-web",
        /// nginx with `return 200`.
        Nginx = "nginx",
        /// fasthttp in one process.
        Fasthttp = "fasthttp",
        /// fasthttp/prefork, one listener for all children.
        FasthttpShared = "fasthttp/prefork",
        /// fasthttp/prefork with `Reuseport`.
        FasthttpReuseport = "fasthttp/prefork, reuseport",
        /// Ja7ad/forker around net/http.
        Forker = "forker",
        /// Go's own.
        NetHttp = "net/http",
    }
}

/// Whose heap a Rust server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocator {
    /// As it comes; it holds less.
    System,
    /// Our binary's; it is faster.
    Mimalloc,
}

/// A running server. Dropped, it is killed and reaped.
pub(crate) struct Running {
    processes: Processes,
    pub(crate) address: SocketAddr,
}

/// Files that a server within TLS is started with.
pub(crate) struct Pem {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pem {
    fn arguments(&self) -> [String; 2] {
        [&self.certificate, &self.key].map(|path| path.display().to_string())
    }
}

/// How a server is started.
struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    variables: &'static [(&'static str, &'static str)],
}

impl Peer {
    /// What must be there beside this package.
    pub(crate) fn program(self) -> Option<Program> {
        match self {
            Self::Prefork | Self::Floor => None,
            Self::Hyper | Self::HyperMulti | Self::Axum | Self::Actix => Some(Program::Rust),
            Self::Nginx => Some(Program::Nginx),
            Self::Fasthttp | Self::FasthttpShared | Self::FasthttpReuseport => {
                Some(Program::Fasthttp)
            }
            Self::Forker => Some(Program::Forker),
            Self::NetHttp => Some(Program::NetHttp),
        }
    }

    /// Whether what is here of it can be started with a certificate.
    pub(crate) fn knows_tls(self) -> bool {
        matches!(
            self,
            Self::Prefork | Self::Nginx | Self::Fasthttp | Self::NetHttp
        )
    }

    /// Starts it on the CPU that the caller is on.
    pub(crate) fn start(
        self,
        programs: &Programs,
        heap: Allocator,
        pem: Option<&Pem>,
    ) -> Result<Running, Trouble> {
        let address = free_address()?;
        let dir = tempfile::tempdir()?;
        let launch = self.launch(programs, heap, address, dir.path(), pem)?;
        let arguments: Vec<_> = launch.arguments.iter().map(String::as_str).collect();
        let (processes, _) = Processes::start(dir, &launch.program, &arguments, launch.variables)?;
        let running = Running { processes, address };
        let is_there = || match pem {
            None => answers(address).is_ok(),
            // Whether it answers is for the load to find.
            Some(_) => TcpStream::connect(address).is_ok(),
        };
        until("it answers", is_there).map_err(|trouble| {
            // The caller does not get the server, and so cannot ask it for its log.
            Trouble::Stuck(format!("{trouble}\n{}", running.processes.log()))
        })?;
        Ok(running)
    }

    fn launch(
        self,
        programs: &Programs,
        heap: Allocator,
        address: SocketAddr,
        home: &Path,
        pem: Option<&Pem>,
    ) -> Result<Launch, Trouble> {
        let at = address.to_string();
        let found = |program| programs.path(program).map(Path::to_path_buf);
        let rust = |name: &str| {
            let directory = found(Program::Rust)?;
            Ok::<_, Trouble>(match heap {
                Allocator::System => directory.join(name),
                Allocator::Mimalloc => directory.join(format!("{name}-mimalloc")),
            })
        };
        let (program, mut arguments) = match self {
            Self::Prefork => (binary(), ours(at, pem)),
            Self::Floor => (env::current_exe()?, vec![at]),
            Self::Hyper => (rust("hyper")?, vec![at, "single".into()]),
            Self::HyperMulti => (rust("hyper")?, vec![at, "multi".into()]),
            Self::Axum => (rust("axum")?, vec![at]),
            Self::Actix => (rust("actix")?, vec![at]),
            Self::Nginx => (found(Program::Nginx)?, nginx(address, home, pem)?),
            Self::Fasthttp => (found(Program::Fasthttp)?, vec![at, "alone".into()]),
            Self::FasthttpShared => (found(Program::Fasthttp)?, vec![at, "shared".into()]),
            Self::FasthttpReuseport => (found(Program::Fasthttp)?, vec![at, "reuseport".into()]),
            Self::Forker => (found(Program::Forker)?, vec![at, "shared".into()]),
            Self::NetHttp => (found(Program::NetHttp)?, vec![at]),
        };
        if let (Self::Fasthttp | Self::NetHttp, Some(pem)) = (self, pem) {
            arguments.extend(pem.arguments());
        }
        let variables: &[_] = match self {
            Self::Floor => &[(BECOME_FLOOR, "yes")],
            // They may have one CPU, and should not have to find that out.
            _ => &[("GOMAXPROCS", "1"), ("TOKIO_WORKER_THREADS", "1")],
        };
        Ok(Launch {
            program,
            arguments,
            variables,
        })
    }
}

impl Running {
    pub(crate) fn cpu(&self) -> cpu::Processes {
        cpu::Processes::under(self.processes.root())
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        self.processes.log()
    }
}

/// Becomes the floor, and does not return, if the environment says so.
pub(crate) fn become_floor_if_asked() {
    if env::var_os(BECOME_FLOOR).is_none() {
        return;
    }
    let address = env::args().nth(1).and_then(|it| it.parse().ok());
    let error = crate::floor::serve(address.expect("`Peer::start` gives an address"));
    panic!("{error:?}");
}

/// As the environment has them; empty if it has none.
pub(crate) fn extra_options() -> String {
    env::var(OPTIONS).unwrap_or_default()
}

fn ours(address: String, pem: Option<&Pem>) -> Vec<String> {
    let options = ["--respond", BODY, "--workers", "1", "--idle-timeout", "10m"];
    let mut arguments = vec!["--listen".to_owned(), address];
    arguments.extend(options.map(str::to_owned));
    if let Some(pem) = pem {
        let [certificate, key] = pem.arguments();
        let options = ["--tls-cert".into(), certificate, "--tls-key".into(), key];
        arguments.extend(options);
    }
    arguments.extend(extra_options().split_whitespace().map(str::to_owned));
    arguments
}

fn nginx(address: SocketAddr, home: &Path, pem: Option<&Pem>) -> io::Result<Vec<String>> {
    let server = match pem.map(Pem::arguments) {
        // Before 1.23.4 nginx does not speak 1.3 unasked.
        Some([certificate, key]) => format!(
            "listen {address} backlog=4096 ssl; ssl_certificate {certificate};
    ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;"
        ),
        None => format!("listen {address} backlog=4096;"),
    };
    let http = "keepalive_requests 1000000000; keepalive_timeout 600s;";
    toolchain::nginx(
        home,
        ["daemon off; worker_processes 1;", http, &server, BODY],
    )
}

/// Asks once, and wants the right response.
fn answers(address: SocketAddr) -> io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(FIRST_ANSWER_MAX))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let plain = answer
        .to_lowercase()
        .contains("\r\ncontent-type: text/plain");
    if answer.starts_with("HTTP/1.1 200 OK\r\n") && plain && answer.ends_with(BODY) {
        return Ok(());
    }
    Err(io::Error::other(answer))
}
