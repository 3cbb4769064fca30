//! Clients in processes of their own. Each process holds its share of the connections, and does
//! with them what the bench says over a socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::Plan;
use crate::options::Protocol;
use crate::support::pem::Pem;
use crate::support::process::{Processes, Trouble, this_as};

/// No step takes this long.
const STEP_MAX: Duration = Duration::from_secs(600);

/// What all clients do next.
#[derive(Clone, Copy, Deserialize, Serialize)]
pub(crate) enum Step {
    /// Open all connections, and ask on each.
    Open,
    /// Ask once more on each that is still open.
    Ask,
}

/// What came of a step.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Counts {
    pub(crate) answered: usize,
    /// Closed by the server, before a request or with its response.
    pub(crate) closed: usize,
    /// Not opened, or without a response.
    pub(crate) lost: usize,
    /// The first error.
    pub(crate) why: Option<String>,
}

/// The connections of one process: what it is told when it starts.
#[derive(Deserialize, Serialize)]
pub(crate) struct Share {
    pub(crate) control: PathBuf,
    pub(crate) server: SocketAddr,
    pub(crate) source: Ipv4Addr,
    pub(crate) connections: usize,
    pub(crate) protocol: Protocol,
    /// The certificate that clients within TLS trust.
    pub(crate) certificate: PathBuf,
}

/// All clients. Dropped, their connections are closed.
pub(crate) struct Crowd(Vec<(BufReader<UnixStream>, Processes)>);

impl Crowd {
    pub(crate) fn start(
        server: SocketAddr,
        plan: &Plan,
        protocol: Protocol,
        pem: &Pem,
    ) -> Result<Self, Trouble> {
        let dir = tempfile::tempdir()?;
        let control = dir.path().join("control");
        let listener = UnixListener::bind(&control)?;
        let mut clients = Vec::new();
        for (number, connections) in plan.shares().enumerate() {
            let number = u16::try_from(number).expect("fewer than 65,536 processes");
            let [high, low] = number.to_be_bytes();
            let share = Share {
                control: control.clone(),
                server,
                source: Ipv4Addr::new(127, 1, high, low.wrapping_add(1)),
                connections,
                protocol,
                certificate: pem.certificate.clone(),
            };
            let (processes, _) = Processes::start(tempfile::tempdir()?, &this_as(&share)?)?;
            let (stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(STEP_MAX))?;
            clients.push((BufReader::new(stream), processes));
        }
        Ok(Self(clients))
    }

    /// All processes do the step at the same time.
    pub(crate) fn step(&mut self, step: Step) -> Result<Counts, Trouble> {
        for (control, _) in &mut self.0 {
            send(control.get_mut(), &step)?;
        }
        let mut all = Counts::default();
        for (control, processes) in &mut self.0 {
            let counts: Counts = receive(control)
                .map_err(|error| Trouble::Stuck(format!("{error}: {}", processes.log())))?;
            all.answered += counts.answered;
            all.closed += counts.closed;
            all.lost += counts.lost;
            all.why = all.why.or(counts.why);
        }
        if let Some(why) = &all.why {
            eprintln!("the first of {} lost: {why}", all.lost);
        }
        Ok(all)
    }
}

pub(crate) fn send(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let line = serde_json::to_string(value)? + "\n";
    stream.write_all(line.as_bytes())
}

pub(crate) fn receive<T: for<'a> Deserialize<'a>>(stream: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_str(&line)?),
    }
}
