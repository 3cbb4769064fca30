//! What is measured without load: how long a change takes, and how well a sibling stands in.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::client::PATIENCE;
use crate::contender::{Contender, Event, Name};
use crate::prefork::{Mode, Prefork};
use crate::process::Trouble;
use crate::report::{median, millis};

/// Connections while a slot rests.
const CONNECTIONS: usize = 400;

/// Many times longer than those connections take.
const REST: Duration = Duration::from_secs(3);

/// How long `count` changes of a quiet server with two workers take, each.
pub(crate) fn print_duration(name: Name, event: Event, count: usize) {
    let outcome = durations(name, event, count);
    print!("{:<19} {:<8} ", name.text(), event.name());
    match outcome {
        Ok(times) => println!(
            "{:>7.1} ms, median of {count} ({:.1} to {:.1})",
            millis(median(&times)),
            millis(times.iter().min().copied().unwrap_or_default()),
            millis(times.iter().max().copied().unwrap_or_default()),
        ),
        Err(trouble) => println!("{trouble}"),
    }
}

fn durations(name: Name, event: Event, count: usize) -> Result<Vec<Duration>, Trouble> {
    let mut server = name.start(2)?;
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        match event {
            Event::Upgrade => server.upgrade()?,
            _ => server.reload()?,
        }
        times.push(start.elapsed());
    }
    Ok(times)
}

/// New connections to four slots of which one rests after many crashes: a quarter of them reach its
/// listener, and a sibling must accept them.
pub(crate) fn adoption() -> Result<Duration, Trouble> {
    let mut server = Prefork::start(Mode::PerSlot, 4)?;
    server.crash_into_backoff(0, REST)?;
    let mut longest = Duration::ZERO;
    for number in 0..CONNECTIONS {
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

/// Prints what [`adoption`] came to; an error is a failure of the server.
pub(crate) fn print_adoption() -> Result<(), Trouble> {
    let outcome = adoption();
    match &outcome {
        Ok(longest) => println!(
            "adoption: {CONNECTIONS} connections answered while one slot of 4 rested, the longest \
             after {:.1} ms",
            millis(*longest),
        ),
        Err(trouble) => println!("adoption: {trouble}"),
    }
    outcome.map(drop)
}
