//! Clients in processes of their own. Each process holds its share of the connections, and does
//! with them what the bench says over a socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::connection::{Connection, Exchange, Habit};
use crate::limits::Plan;
use crate::support::load::Fate;
use crate::support::process::{Processes, Trouble, this_as};

/// No step takes this long.
const STEP_MAX: Duration = Duration::from_secs(600);

/// The port of a process' first connection.
const PORT_MIN: u16 = 10_000;

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
    why: Option<String>,
}

/// The connections of one process: what it is told when it starts.
#[derive(Deserialize, Serialize)]
pub(crate) struct Share {
    control: PathBuf,
    server: SocketAddr,
    source: Ipv4Addr,
    connections: usize,
}

/// All clients. Dropped, their connections are closed.
pub(crate) struct Crowd(Vec<(BufReader<UnixStream>, Processes)>);

impl Crowd {
    pub(crate) fn start(server: SocketAddr, plan: &Plan) -> Result<Self, Trouble> {
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

fn send(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let line = serde_json::to_string(value)? + "\n";
    stream.write_all(line.as_bytes())
}

fn receive<T: for<'a> Deserialize<'a>>(stream: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_str(&line)?),
    }
}

impl Share {
    /// In a process of clients, until the bench ends it.
    pub(crate) fn hold(self) -> ! {
        let control = UnixStream::connect(&self.control).expect("the bench listens");
        let mut told = BufReader::new(control);
        let hello = Exchange::echo(Habit::KeepsAlive, "hello");
        let mut open = Vec::with_capacity(self.connections);
        loop {
            let step: Step = receive(&mut told).expect("a step");
            let mut counts = Counts::default();
            match step {
                Step::Open => {
                    for number in 0..self.connections {
                        let opened = self.open(number).map_err(Trouble::from);
                        let asked = opened.and_then(|mut it| Ok((it.ask(&hello)?, it)));
                        open.extend(counts.note(asked));
                    }
                }
                Step::Ask => open.retain_mut(|connection: &mut Connection| {
                    if !connection.is_open() {
                        counts.closed += 1;
                        return false;
                    }
                    let asked = connection.ask(&hello).map_err(Trouble::from);
                    counts.note(asked.map(|fate| (fate, ()))).is_some()
                }),
            }
            send(told.get_mut(), &counts).expect("the bench listens");
        }
    }

    /// The connection with this number.
    fn open(&self, number: usize) -> io::Result<Connection> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // The kernel would look long for a port. This one may still rest from an earlier run.
        socket.set_reuse_address(true)?;
        let port = PORT_MIN + u16::try_from(number).expect("fewer than `CLIENTS_MAX`");
        socket.bind(&SocketAddr::from((self.source, port)).into())?;
        socket.connect(&self.server.into())?;
        Ok(Connection::over(socket.into()))
    }
}

impl Counts {
    /// What was asked, if it can be asked again.
    fn note<T>(&mut self, asked: Result<(Fate, T), Trouble>) -> Option<T> {
        match asked {
            Ok((fate, it)) => {
                self.answered += 1;
                self.closed += usize::from(fate == Fate::Closed);
                (fate == Fate::Kept).then_some(it)
            }
            Err(trouble) => {
                self.lost += 1;
                self.why.get_or_insert_with(|| trouble.to_string());
                None
            }
        }
    }
}
