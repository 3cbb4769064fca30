//! The servers, each with one worker or thread, all with the same response.

use std::env;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;

use crate::crowd::Role;
use crate::process::{self, Processes, Trouble, this_as};
use crate::programs::{Program, Programs};
use crate::session::Pem;
use crate::support::{named, toolchain};

/// The body of all responses.
pub(crate) const BODY: &str = "Hello, World!";

/// What the ratios are to.
pub(crate) const OURS: &str = Peer::Prefork.name();
pub(crate) const FLOOR: &str = Peer::Floor.name();

/// What our binary is told besides, between blanks, so that what an option costs can be measured.
const OPTIONS: &str = "PREFORK_BENCH_OPTIONS";

/// A server that has just started sends its first response later, not never.
const FIRST_RESPONSE_MAX: Duration = Duration::from_secs(5);

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

impl Peer {
    /// Whether what is here of it can be started with a certificate.
    pub(crate) fn knows_tls(self) -> bool {
        matches!(
            self,
            Self::Prefork | Self::Nginx | Self::Fasthttp | Self::NetHttp
        )
    }

    /// How it is started, with its files in `home`.
    pub(crate) fn command(
        self,
        programs: &Programs,
        heap: Allocator,
        address: SocketAddr,
        home: &Path,
        pem: Option<&Pem>,
    ) -> Result<Command, Trouble> {
        let go = |program, how: &[&str]| {
            let mut command = Command::new(programs.path(program)?);
            command.arg(address.to_string()).args(how);
            if let Some(pem) = pem {
                command.arg(&pem.certificate).arg(&pem.key);
            }
            Ok::<_, Trouble>(command)
        };
        let rust = |name: &str, how: &[&str]| {
            let name = match heap {
                Allocator::System => name.to_owned(),
                Allocator::Mimalloc => format!("{name}-mimalloc"),
            };
            let mut command = Command::new(programs.path(Program::Rust)?.join(name));
            command.arg(address.to_string()).args(how);
            Ok::<_, Trouble>(command)
        };
        let mut command = match self {
            Self::Prefork => ours(address, pem),
            Self::Floor => this_as(&Role::Floor(address))?,
            Self::Hyper => rust("hyper", &["single"])?,
            Self::HyperMulti => rust("hyper", &["multi"])?,
            Self::Axum => rust("axum", &[])?,
            Self::Actix => rust("actix", &[])?,
            Self::Nginx => nginx(address, home, pem)?,
            Self::Fasthttp => go(Program::Fasthttp, &["alone"])?,
            Self::FasthttpShared => go(Program::Fasthttp, &["shared"])?,
            Self::FasthttpReuseport => go(Program::Fasthttp, &["reuseport"])?,
            Self::Forker => go(Program::Forker, &["shared"])?,
            Self::NetHttp => go(Program::NetHttp, &[])?,
        };
        // They may have one CPU, and should not have to find that out.
        command.envs([("GOMAXPROCS", "1"), ("TOKIO_WORKER_THREADS", "1")]);
        Ok(command)
    }
}

/// A running server. Dropped, it is killed and reaped.
pub(crate) struct Running {
    pub(crate) processes: Processes,
    pub(crate) address: SocketAddr,
}

/// As the environment has them; empty if it has none.
pub(crate) fn extra_options() -> String {
    env::var(OPTIONS).unwrap_or_default()
}

fn ours(address: SocketAddr, pem: Option<&Pem>) -> Command {
    let mut command = process::ours();
    command
        .args(["--listen", &address.to_string(), "--respond", BODY])
        .args(["--workers", "1", "--idle-timeout", "10m"]);
    if let Some(pem) = pem {
        command.arg("--tls-cert").arg(&pem.certificate);
        command.arg("--tls-key").arg(&pem.key);
    }
    command.args(extra_options().split_whitespace());
    command
}

fn nginx(address: SocketAddr, home: &Path, pem: Option<&Pem>) -> Result<Command, Trouble> {
    let server = match pem {
        // Before 1.23.4 nginx does not speak 1.3 unasked.
        Some(pem) => format!(
            "listen {address} backlog=4096 ssl; ssl_certificate {};
    ssl_certificate_key {}; ssl_protocols TLSv1.2 TLSv1.3;",
            pem.certificate.display(),
            pem.key.display(),
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
pub(crate) fn responds(address: SocketAddr) -> io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(FIRST_RESPONSE_MAX))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    connection.read_to_string(&mut response)?;
    let plain = response
        .to_lowercase()
        .contains("\r\ncontent-type: text/plain");
    if response.starts_with("HTTP/1.1 200 OK\r\n") && plain && response.ends_with(BODY) {
        return Ok(());
    }
    Err(io::Error::other(response))
}
