//! The edge of a drain: requests that are sent in the very moment when idle connections are closed.
//!
//! A request and an end of file can cross on the way, and then no server can answer. How many do is
//! a matter of how long the server has not looked when it closes, so it is a figure, not a verdict.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};

use crate::chance::Chance;
use crate::client::PATIENCE;
use crate::contender::Contender;
use crate::prefork::{Mode, Prefork};
use crate::process::Trouble;

/// Connections that are idle when the drain begins.
const CONNECTIONS: usize = 200;

/// When the first requests are sent, after the first worker began to drain. Idle connections are
/// closed after 100 ms, those of the second worker a reload's length later.
const FROM: Duration = Duration::from_millis(96);

/// For how long requests are sent.
const SPREAD_MILLIS: usize = 16;

#[derive(Default)]
struct Counts {
    answered: usize,
    /// Before the request was sent, which is no loss.
    closed: usize,
    lost: usize,
}

/// Prints what became of them in so many drains.
pub(crate) fn print(rounds: usize, seed: u64) -> Result<(), Trouble> {
    let counts = count(rounds, &mut Chance::new(seed));
    match &counts {
        Ok(counts) => println!(
            "edge of a drain: {} requests sent as idle connections were closed, {} lost ({} \
             connections were closed before)",
            counts.answered + counts.lost,
            counts.lost,
            counts.closed,
        ),
        Err(trouble) => println!("edge of a drain: {trouble}"),
    }
    counts.map(drop)
}

fn count(rounds: usize, chance: &mut Chance) -> Result<Counts, Trouble> {
    let mut server = Prefork::start(Mode::PerSlot, 2)?;
    let mut counts = Counts::default();
    for _ in 0..rounds {
        let mut idle = Vec::new();
        for number in 0..CONNECTIONS {
            let mut connection = TcpStream::connect_timeout(&server.address(), PATIENCE)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            send(&mut connection, number)?;
            if !is_answered(&mut connection, number)? {
                return Err(Trouble::Stuck("a quiet server does not answer".into()));
            }
            let at = FROM + chance.millis_below(SPREAD_MILLIS);
            idle.push((at, number, connection));
        }
        idle.sort_unstable_by_key(|&(at, number, _)| (at, number));
        server.begin_reload()?;
        send_at_the_edge(idle, Instant::now(), &mut counts)?;
        server.end_reload()?;
    }
    Ok(counts)
}

fn send_at_the_edge(
    idle: Vec<(Duration, usize, TcpStream)>,
    began: Instant,
    counts: &mut Counts,
) -> Result<(), Trouble> {
    let mut asked = Vec::new();
    for (at, number, mut connection) in idle {
        while began.elapsed() < at {
            poll(&mut [], PollTimeout::from(1_u8))?;
        }
        let fd = connection.as_raw_fd();
        let seen = recv(fd, &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        if seen != Err(Errno::EAGAIN) {
            counts.closed += 1;
        } else if send(&mut connection, number).is_ok() {
            asked.push((number, connection));
        } else {
            counts.lost += 1;
        }
    }
    for (number, mut connection) in asked {
        match is_answered(&mut connection, number)? {
            true => counts.answered += 1,
            false => counts.lost += 1,
        }
    }
    Ok(())
}

fn send(connection: &mut TcpStream, number: usize) -> std::io::Result<()> {
    let body = body(number);
    let length = body.len();
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
    connection.write_all(request.as_bytes())
}

fn is_answered(connection: &mut TcpStream, number: usize) -> Result<bool, Trouble> {
    let body = body(number);
    let (mut answer, mut bytes) = (Vec::new(), [0; 1024]);
    while !answer.ends_with(body.as_bytes()) {
        match connection.read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(count) => answer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// It appears nowhere else in an answer.
fn body(number: usize) -> String {
    format!("<the echo of request {number}>")
}
