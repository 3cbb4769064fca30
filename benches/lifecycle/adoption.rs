//! How well a sibling stands in for a slot that rests: new connections to four slots of which one
//! rests after many crashes. A quarter of them reach its listener, and a sibling must accept them.

use std::time::{Duration, Instant};

use crate::connection::{Connection, Exchange, Habit};
use crate::contender::{Contender, Contents, Name, Speaks};
use crate::prefork::Prefork;
use crate::process::Trouble;

/// Prints how long the slowest took. Whether all were answered.
pub(crate) fn print(connections: u32) -> bool {
    let longest = longest_wait(connections);
    match &longest {
        Ok(longest) => println!(
            "adoption: {connections} connections answered while one slot of 4 rested, the longest \
             after {:.1} ms",
            longest.as_secs_f64() * 1e3,
        ),
        Err(trouble) => println!("adoption: {trouble}"),
    }
    longest.is_ok()
}

fn longest_wait(connections: u32) -> Result<Duration, Trouble> {
    let mut server = Prefork::start(Name::Prefork, Contents::Echo, Speaks::Http1, 4)?;
    // The slot must rest many times longer than the connections take.
    server.crash_into_backoff(0, Duration::from_millis(8) * connections)?;
    let mut longest = Duration::ZERO;
    for number in 0..connections {
        let start = Instant::now();
        let mut connection = Connection::open(server.address())?;
        let token = format!("connection {number}");
        connection.ask(&Exchange::echo(Habit::NewConnections, &token))?;
        longest = longest.max(start.elapsed());
    }
    match server.rests(0) {
        true => Ok(longest),
        false => Err(Trouble::Stuck("the slot had a worker too soon".into())),
    }
}
