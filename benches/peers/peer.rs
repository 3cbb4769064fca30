//! The servers, each with one worker or thread, all with the same response.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;

use crate::crowd::Role;
use crate::process::{self, Processes, Trouble, this_as};
use crate::programs::{Program, Programs};
use crate::session::{Setup, Version};
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
        /// An axum `Router` in this package.
        PreforkAxum = "axum in prefork-server",
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
        /// A server of files.
        StaticWebServer = "static-web-server",
        /// Caddy.
        Caddy = "caddy",
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

    /// Whether what is here of it serves files.
    pub(crate) fn serves_files(self) -> bool {
        matches!(self, Self::Prefork | Self::Nginx) || !self.says_hello()
    }

    /// Whether what is here of it responds with the body of the other questions.
    pub(crate) fn says_hello(self) -> bool {
        !matches!(self, Self::StaticWebServer | Self::Caddy)
    }

    /// How it is started, with its own files in `home`.
    pub(crate) fn command(
        self,
        programs: &Programs,
        setup: &Setup,
        address: SocketAddr,
        home: &Path,
    ) -> Result<Command, Trouble> {
        let go = |program, how: &[&str]| {
            let mut command = Command::new(programs.path(program)?);
            command.arg(address.to_string()).args(how);
            if let Some(pem) = setup.pem {
                command.arg(&pem.certificate).arg(&pem.key);
            }
            Ok::<_, Trouble>(command)
        };
        let rust = |program, name: &str, how: &[&str]| {
            let name = match setup.heap {
                Allocator::System => name.to_owned(),
                Allocator::Mimalloc => format!("{name}-mimalloc"),
            };
            let mut command = Command::new(programs.path(program)?.join(name));
            command.arg(address.to_string()).args(how);
            Ok::<_, Trouble>(command)
        };
        let mut command = match self {
            Self::Prefork => ours(address, setup),
            Self::PreforkAxum => rust(Program::PreforkAxum, "prefork-axum", &[])?,
            Self::Floor => this_as(&Role::Floor(address))?,
            Self::Hyper => rust(Program::Rust, "hyper", &["single"])?,
            Self::HyperMulti => rust(Program::Rust, "hyper", &["multi"])?,
            Self::Axum => rust(Program::Rust, "axum", &[])?,
            Self::Actix => rust(Program::Rust, "actix", &[])?,
            Self::Nginx => nginx(address, home, setup)?,
            Self::Fasthttp => go(Program::Fasthttp, &["alone"])?,
            Self::FasthttpShared => go(Program::Fasthttp, &["shared"])?,
            Self::FasthttpReuseport => go(Program::Fasthttp, &["reuseport"])?,
            Self::Forker => go(Program::Forker, &["shared"])?,
            Self::NetHttp => go(Program::NetHttp, &[])?,
            Self::StaticWebServer => {
                let program = programs.path(Program::StaticWebServer)?;
                static_web_server(&program, address, setup)
            }
            Self::Caddy => caddy(address, home, setup)?,
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

impl Running {
    /// The CPU time that the server uses meanwhile: user and system time of all its processes and
    /// threads.
    pub(crate) fn cpu_of<T>(&self, run: impl FnOnce() -> T) -> (Duration, T) {
        let processes = self.processes.tree();
        let before = processes.cpu_time();
        let done = run();
        (processes.cpu_time() - before, done)
    }
}

/// As the environment has them; empty if it has none.
pub(crate) fn extra_options() -> String {
    env::var(OPTIONS).unwrap_or_default()
}

fn ours(address: SocketAddr, setup: &Setup) -> Command {
    let mut command = process::ours();
    command.args(["--listen", &address.to_string()]).args([
        "--workers",
        "1",
        "--idle-timeout",
        "10m",
    ]);
    match setup.files {
        None => command.args(["--respond", BODY]),
        Some(files) => command.arg(files),
    };
    if let Some(pem) = setup.pem {
        command.arg("--tls-cert").arg(&pem.certificate);
        command.arg("--tls-key").arg(&pem.key);
    }
    command.args(extra_options().split_whitespace());
    command
}

fn nginx(address: SocketAddr, home: &Path, setup: &Setup) -> Result<Command, Trouble> {
    let server = match setup.pem {
        Some(pem) => toolchain::nginx_tls(pem),
        None if setup.http == Version::Http2 => "http2".to_owned(),
        None => String::new(),
    };
    let server = format!("listen {address} backlog=4096 {server};");
    let http = "keepalive_requests 1000000000; keepalive_timeout 600s;";
    let (http, location) = match setup.files {
        None => (http.to_owned(), toolchain::nginx_text(BODY)),
        // What is recommended for many small files and for large ones. A change is seen within a
        // second, as with ours.
        Some(files) => (
            format!(
                "{http} sendfile on; tcp_nopush on; open_file_cache max=20000 inactive=60s;
  open_file_cache_valid 1s;"
            ),
            format!("root {};", files.display()),
        ),
    };
    let main = "daemon off; worker_processes 1;";
    toolchain::nginx(home, [main, &http, &server, &location])
}

fn static_web_server(program: &Path, address: SocketAddr, setup: &Setup) -> Command {
    let mut command = Command::new(program);
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["--host", &ip, "--port", &port]);
    if let Some(files) = setup.files {
        command.arg("--root").arg(files);
    }
    if let Some(pem) = setup.pem {
        command.arg("--http2").arg("--http2-tls-cert");
        command.arg(&pem.certificate);
        command.arg("--http2-tls-key").arg(&pem.key);
    }
    command
}

fn caddy(address: SocketAddr, home: &Path, setup: &Setup) -> Result<Command, Trouble> {
    let (ip, port, own) = (address.ip(), address.port(), home.display());
    let (site, tls) = match setup.pem {
        None => (format!("http://:{port}"), String::new()),
        Some(pem) => {
            let (certificate, key) = (pem.certificate.display(), pem.key.display());
            let tls = format!("tls {certificate} {key}");
            (format!("https://localhost:{port}"), tls)
        }
    };
    let files = setup.files.unwrap_or(home).display();
    let configuration = format!(
        "{{
  admin off
  auto_https off
  storage file_system {own}
}}
{site} {{
  bind {ip}
  {tls}
  root * {files}
  file_server
}}
"
    );
    let path = home.join("Caddyfile");
    fs::write(&path, configuration)?;
    let mut command = Command::new(toolchain::found("caddy")?);
    command.arg("run").arg("--config").arg(&path);
    command.args(["--adapter", "caddyfile"]);
    command.envs(["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"].map(|name| (name, home)));
    Ok(command)
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
