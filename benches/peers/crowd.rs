//! Clients that are slow, many of them: in a process that every other preempts (`SCHED_IDLE`),
//! because their own work, which elsewhere other machines do, is nothing that a server can help.

use std::env;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ChildStdout;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use nix::poll::{PollTimeout, poll};
use socket2::{Domain, Socket, Type};

use crate::process::{Processes, Trouble, which};
use crate::support::named;

/// Tells this executable to be the crowd.
const CROWD: &str = "BENCH_CROWD";

/// Between two looks at which clients have something to do.
const TICK_MS: u8 = 5;

/// Between two pieces of what a client sends or reads.
const PACE: Duration = Duration::from_secs(1);

/// What a client reads at a time.
const SIP: usize = 5;

named! {
    /// What they are slow at.
    #[derive(ValueEnum)]
    enum Slow {
        /// A field of the header section in each piece, which never ends.
        Header = "header",
        /// Four bytes of the body in each piece.
        Body = "body",
        /// Three requests at once, and five bytes of the responses in each piece.
        Read = "read",
    }
}

impl Slow {
    fn first(self) -> &'static [u8] {
        match self {
            Self::Header => b"GET / HTTP/1.1\r\nHost: localhost\r\n",
            Self::Body => b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8192\r\n\r\n",
            Self::Read => {
                b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n\
                  GET / HTTP/1.1\r\nHost: localhost\r\n\r\n\
                  GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
            }
        }
    }

    fn piece(self) -> &'static [u8] {
        match self {
            Self::Header => b"X: y\r\n",
            Self::Body => b"a=b&",
            Self::Read => b"",
        }
    }
}

/// What the process is told.
#[derive(Debug, Parser)]
struct Orders {
    address: SocketAddr,
    #[arg(value_enum)]
    slow: Slow,
    size: usize,
    /// How long it takes them to come.
    ramp_ms: u64,
}

/// A running crowd. Dropped, it is gone, and its connections are reset or closed.
pub(crate) struct Crowd {
    processes: Processes,
    said: ChildStdout,
}

impl Crowd {
    /// `size` clients that come within `ramp`; a client whose connection is closed comes again.
    pub(crate) fn start(
        slow: Slow,
        address: SocketAddr,
        size: usize,
        ramp: Duration,
    ) -> Result<Self, Trouble> {
        let Some(chrt) = which("chrt") else {
            return Err(Trouble::NotSupported("chrt(1) is not installed".into()));
        };
        let this = env::current_exe()?.display().to_string();
        let (address, size) = (address.to_string(), size.to_string());
        let ramp = ramp.as_millis().to_string();
        let arguments = ["--idle", "0", &this, &address, slow.name(), &size, &ramp];
        let dir = tempfile::tempdir()?;
        let (processes, said) = Processes::start(dir, &chrt, &arguments, &[(CROWD, "yes")])?;
        Ok(Self { processes, said })
    }

    /// Waits until all have come, be they still there or not.
    pub(crate) fn have_come(&mut self) -> Result<(), Trouble> {
        let said = self.said.read_exact(&mut [0]);
        said.map_err(|_| Trouble::Stuck(format!("no crowd: {}", self.processes.log())))
    }
}

/// Becomes the crowd, and does not return, if the environment says so.
pub(crate) fn become_crowd_if_asked() {
    if env::var_os(CROWD).is_none() {
        return;
    }
    let error = run(&Orders::parse());
    panic!("{error:?}");
}

struct Client {
    stream: TcpStream,
    due: Instant,
}

/// Until it is killed.
fn run(orders: &Orders) -> io::Result<()> {
    let ticks = (orders.ramp_ms / u64::from(TICK_MS)).max(1) as usize;
    let at_a_time = orders.size.div_ceil(ticks);
    let mut clients = Vec::with_capacity(orders.size);
    let mut come_so_far = 0;
    loop {
        let now = Instant::now();
        clients.retain_mut(|client| is_there(client, now, orders.slow));
        for _ in 0..at_a_time.min(orders.size - clients.len()) {
            clients.push(come(orders, now)?);
            come_so_far += 1;
            if come_so_far == orders.size {
                io::stdout().write_all(b"\n")?;
            }
        }
        poll(&mut [], PollTimeout::from(TICK_MS))?;
    }
}

fn come(orders: &Orders, now: Instant) -> io::Result<Client> {
    let socket = Socket::new(Domain::for_address(orders.address), Type::STREAM, None)?;
    if orders.slow == Slow::Read {
        // The least that the kernel gives.
        socket.set_recv_buffer_size(1)?;
    }
    socket.connect(&orders.address.into())?;
    socket.set_nonblocking(true)?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(orders.slow.first())?;
    Ok(Client {
        stream,
        due: now + PACE,
    })
}

/// Lets it do its next piece if that is due. Whether the server has left it open.
fn is_there(client: &mut Client, now: Instant, slow: Slow) -> bool {
    if now < client.due {
        return true;
    }
    client.due += PACE;
    let is_open = |result: io::Result<usize>| match result {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    let piece = slow.piece();
    is_open(client.stream.read(&mut [0; SIP]))
        && (piece.is_empty() || is_open(client.stream.write(piece)))
}
