//! What is served, and where.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::{Arg, Args};
use prefork_server::Address;

use super::config::SOURCES;
use super::origin::Known;
use super::value;

/// What is served, and where.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct Serving {
    /// Serve the files under this directory [default: a page that says that the server works]
    #[arg(value_name = "DIR", env = "PREFORK_DIR", help_heading = None)]
    dir: Option<PathBuf>,

    /// Respond to every request with status 200 and this text
    #[arg(long, value_name = "TEXT", env = "PREFORK_RESPOND")]
    #[arg(allow_hyphen_values = true)]
    respond: Option<String>,

    /// Respond to every request with status 200 and the request's own body
    #[arg(long, env = "PREFORK_ECHO", value_parser = value::switch)]
    echo: bool,

    /// Wait this long before each response; the wait takes no CPU time
    #[arg(long, value_name = "DURATION", env = "PREFORK_DELAY")]
    #[arg(default_value = "0s", value_parser = value::duration)]
    pub(crate) delay: Duration,

    /// Address to listen on: HOST:PORT, [::]:PORT or unix:/PATH; may be given several times. PORT
    /// and :PORT mean 0.0.0.0:PORT, all IPv4 addresses. Port 0 takes a free port [default:
    /// 127.0.0.1:8080, or 0.0.0.0:$PORT if PORT is set]
    #[arg(long, value_name = "ADDR", env = "PREFORK_LISTEN")]
    #[arg(value_delimiter = ',', value_parser = value::address)]
    pub(crate) listen: Vec<Address>,

    /// Path that load balancers ask for: the response is 200, and 503 as soon as the server is
    /// asked to end. Such requests are not in the access log
    #[arg(long, value_name = "PATH", env = "PREFORK_HEALTH_PATH")]
    #[arg(value_parser = value::path)]
    pub(crate) health_path: Option<String>,

    /// Add the header x-prefork-worker to each response; it names the worker that responded.
    /// Responses by which the server refuses a request do not have it
    #[arg(long, env = "PREFORK_WORKER_HEADER", value_parser = value::switch)]
    pub(crate) worker_header: bool,
}

/// The one thing that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Serve {
    /// Nothing was asked for.
    Welcome,
    /// `--respond TEXT`.
    Respond(Bytes),
    /// `--echo`.
    Echo,
    /// `DIR`.
    Files(PathBuf),
}

impl Serving {
    /// Follows the links in `DIR` now, so that the files and the sandbox have the same directory,
    /// also if a link is changed meanwhile. A directory that is missing stays as it was given.
    pub(crate) fn resolve_links(&mut self) {
        self.dir = self.dir.take().map(|it| it.canonicalize().unwrap_or(it));
    }

    /// The one thing that is served.
    pub(crate) fn serve(&self) -> Serve {
        match (&self.dir, &self.respond) {
            (Some(dir), _) => Serve::Files(dir.clone()),
            (None, Some(text)) => Serve::Respond(text.clone().into()),
            (None, None) if self.echo => Serve::Echo,
            (None, None) => Serve::Welcome,
        }
    }
}

/// What is to be served.
pub(super) fn sources<'a>(known: &'a Known<'_>) -> impl Iterator<Item = &'a Arg> {
    let is_given =
        |option: &&Arg| SOURCES.contains(&option.get_id().as_str()) && known.is_given(option);
    known.command.get_arguments().filter(is_given)
}

/// Fails if more than one thing is to be served.
pub(super) fn check_sources(known: &Known<'_>) -> Result<(), String> {
    let names: Vec<_> = sources(known).map(|option| known.name(option)).collect();
    match names.len() {
        0 | 1 => Ok(()),
        _ => Err(format!(
            "{} exclude each other: give one of them",
            names.join(" and ")
        )),
    }
}

/// Who sets PORT is a platform that sends traffic from outside, so then every interface; else
/// nobody has asked to be reachable from elsewhere.
pub(super) fn default_address(port: Option<OsString>) -> Result<Address, String> {
    let Some(port) = port.filter(|port| !port.is_empty()) else {
        return Ok(Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))));
    };
    let number = port
        .to_str()
        .and_then(|port| port.parse::<u16>().ok())
        .ok_or_else(|| {
            format!(
                "the environment's PORT is {port:?}, not a port such as 8080; --listen overrides it"
            )
        })?;
    Ok(Address::Tcp(SocketAddr::from((
        Ipv4Addr::UNSPECIFIED,
        number,
    ))))
}
