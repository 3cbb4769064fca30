//! How well a sibling stands in for a slot that rests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::client::PATIENCE;
use crate::contender::Contender;
use crate::prefork::{Mode, Prefork};
use crate::process::Trouble;
use crate::report::millis;

/// Connections while a slot rests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connections(pub(crate) usize);

impl Connections {
    /// How long the slot must rest: many times longer than the connections take.
    fn rest(self) -> Duration {
        Duration::from_millis(8) * u32::try_from(self.0).expect("some hundreds")
    }
}

/// Prints what [`longest_wait`] came to; an error is a failure of the server.
pub(crate) fn print(connections: Connections) -> Result<(), Trouble> {
    let outcome = longest_wait(connections);
    let count = connections.0;
    match &outcome {
        Ok(longest) => println!(
            "adoption: {count} connections answered while one slot of 4 rested, the longest \
             after {:.1} ms",
            millis(*longest),
        ),
        Err(trouble) => println!("adoption: {trouble}"),
    }
    outcome.map(drop)
}

/// New connections to four slots of which one rests after many crashes: a quarter of them reach its
/// listener, and a sibling must accept them.
fn longest_wait(connections: Connections) -> Result<Duration, Trouble> {
    let mut server = Prefork::start(Mode::PerSlot, 4)?;
    server.crash_into_backoff(0, connections.rest())?;
    let mut longest = Duration::ZERO;
    for number in 0..connections.0 {
        let start = Instant::now();
        ask(server.address(), number)?;
        longest = longest.max(start.elapsed());
    }
    match server.rests(0) {
        true => Ok(longest),
        false => Err(Trouble::Stuck("the slot had a worker too soon".into())),
    }
}

fn ask(address: SocketAddr, number: usize) -> Result<(), Trouble> {
    let body = format!("connection {number}");
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&body) {
        true => Ok(()),
        false => Err(Trouble::Stuck(format!("{body} was answered {answer:?}"))),
    }
}
