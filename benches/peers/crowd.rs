//! Clients that are slow, many of them: in a process that every other preempts (`SCHED_IDLE`),
//! because their own work, which elsewhere other machines do, is nothing that a server can help.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStdout, Command};
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::floor;
use crate::process::{Processes, Trouble, this_as};
use crate::support::named;
use crate::support::toolchain::found;

/// Between two looks at which clients have something to do.
const TICK_MS: u8 = 5;

/// Between two pieces of what a client sends or reads.
const PACE: Duration = Duration::from_secs(1);

/// What a client reads at a time.
const SIP: usize = 5;

named! {
    /// What they are slow at.
    #[derive(Deserialize, Serialize)]
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

/// What this executable is when it is started once more.
#[derive(Deserialize, Serialize)]
pub(crate) enum Role {
    Floor(SocketAddr),
    Crowd(Slow, Size),
}

/// How many clients there are, and for which server.
#[derive(Clone, Copy, Deserialize, Serialize)]
pub(crate) struct Size {
    pub(crate) address: SocketAddr,
    pub(crate) clients: usize,
    /// How long it takes them to come.
    pub(crate) ramp: Duration,
}

impl Role {
    /// Does not return.
    pub(crate) fn play(self) -> ! {
        let error = match self {
            Self::Floor(address) => floor::serve(address),
            Self::Crowd(slow, size) => run(slow, size),
        };
        panic!("{error:?}");
    }
}

/// A running crowd. Dropped, it is gone, and its connections are reset or closed.
pub(crate) struct Crowd {
    processes: Processes,
    said: ChildStdout,
}

impl Crowd {
    /// A client whose connection is closed comes again.
    pub(crate) fn start(slow: Slow, size: Size) -> Result<Self, Trouble> {
        let this = this_as(&Role::Crowd(slow, size))?;
        let mut command = Command::new(found("chrt")?);
        command.args(["--idle", "0"]).arg(this.get_program());
        for (name, value) in this.get_envs() {
            command.env(name, value.expect("it is set"));
        }
        let (processes, said) = Processes::start(tempfile::tempdir()?, &command)?;
        Ok(Self { processes, said })
    }

    /// Waits until all have come, be they still there or not.
    pub(crate) fn have_come(&mut self) -> Result<(), Trouble> {
        let said = self.said.read_exact(&mut [0]);
        said.map_err(|_| Trouble::Stuck(format!("no crowd: {}", self.processes.log())))
    }
}

struct Client {
    stream: TcpStream,
    due: Instant,
}

/// Until it is killed.
fn run(slow: Slow, size: Size) -> io::Result<Infallible> {
    let ticks = (size.ramp.as_millis() / u128::from(TICK_MS)).max(1) as usize;
    let at_a_time = size.clients.div_ceil(ticks);
    let mut clients = Vec::with_capacity(size.clients);
    let mut come_so_far = 0;
    loop {
        let now = Instant::now();
        clients.retain_mut(|client| is_there(client, now, slow));
        for _ in 0..at_a_time.min(size.clients - clients.len()) {
            clients.push(come(slow, size.address, now)?);
            come_so_far += 1;
            if come_so_far == size.clients {
                io::stdout().write_all(b"\n")?;
            }
        }
        poll(&mut [], PollTimeout::from(TICK_MS))?;
    }
}

fn come(slow: Slow, address: SocketAddr, now: Instant) -> io::Result<Client> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if slow == Slow::Read {
        // The least that the kernel gives.
        socket.set_recv_buffer_size(1)?;
    }
    socket.connect(&address.into())?;
    socket.set_nonblocking(true)?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(slow.first())?;
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
