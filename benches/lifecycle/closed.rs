//! How many connections that are kept alive does a reload close? 16 are asked all the time, and
//! 1,000 rest.
//!
//! One that is closed at rest costs no request, so the table of what was lost does not have it. Yet
//! its client comes back with all the others, each with a handshake.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::answer::Afterwards;
use crate::contender::{Contender, Name};
use crate::kept::Kept;
use crate::process::{Trouble, until};

const BUSY: usize = 16;
const RESTING: usize = 1_000;

/// So many of the busy ones between two reloads: about sixteen of each.
const ANSWERS_BETWEEN: usize = 256;

/// What became of the connections, and of the requests on them.
#[derive(Default)]
struct Counts {
    over: AtomicBool,
    answered: AtomicUsize,
    lost: AtomicUsize,
    busy_closed: AtomicUsize,
    resting_closed: AtomicUsize,
}

/// Prints a row for each server that knows reloads; says whether our own did as promised.
pub(crate) fn print(servers: &[Name], reloads: usize) -> bool {
    println!(
        "\n{reloads} reloads under connections that are kept alive, {BUSY} busy and {RESTING} at \
         rest, 2 workers:\n{:<19} {:>9} {:>6} {:>12} {:>15}",
        "server", "answered", "lost", "busy closed", "resting closed"
    );
    let mut sound = true;
    for &name in servers {
        if !name.is_ours() && name != Name::Nginx {
            continue;
        }
        let counts = Counts::default();
        let end = counts.gather(name, reloads);
        let [answered, lost, busy, resting] = [
            &counts.answered,
            &counts.lost,
            &counts.busy_closed,
            &counts.resting_closed,
        ]
        .map(|count| count.load(Relaxed));
        let text = name.text();
        match &end {
            Ok(()) => println!("{text:<19} {answered:>9} {lost:>6} {busy:>12} {resting:>15}"),
            Err(trouble) => println!("{text:<19} {trouble}"),
        }
        sound &= !name.is_ours() || (end.is_ok() && lost + busy + resting == 0);
    }
    sound
}

impl Counts {
    fn gather(&self, name: Name, reloads: usize) -> Result<(), Trouble> {
        let mut server = name.start(2)?;
        let address = server.address();
        // Before the others, who leave little time for it.
        let resting = fill(Vec::new(), address)?;
        thread::scope(|scope| {
            let start = |number| scope.spawn(move || self.ask_on(address, number));
            let clients: Vec<_> = (0..BUSY).map(start).collect();
            let reloaded = self.reload(&mut *server, reloads, resting);
            self.over.store(true, Relaxed);
            let mut ends = clients.into_iter().map(|client| client.join());
            let asked = ends.try_for_each(|end| end.expect("clients do not panic"));
            reloaded.and(asked)
        })
    }

    fn reload(
        &self,
        server: &mut dyn Contender,
        reloads: usize,
        mut resting: Vec<Kept>,
    ) -> Result<(), Trouble> {
        for number in 0..reloads {
            resting = fill(resting, server.address())?;
            self.settle()?;
            server.reload()?;
            // An even one: until those that drain are gone.
            server.settle(2 * number)?;
            resting.retain(Kept::is_open);
            self.resting_closed
                .fetch_add(RESTING - resting.len(), Relaxed);
        }
        self.settle()?;
        for kept in &mut resting {
            let count = match kept.ask("the last")? {
                Some(_) => &self.answered,
                None => &self.lost,
            };
            count.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Waits until the busy ones have had some more answers.
    fn settle(&self) -> Result<(), Trouble> {
        let wanted = self.answered.load(Relaxed) + ANSWERS_BETWEEN;
        until("the clients have answers again", || {
            self.answered.load(Relaxed) >= wanted
        })
    }

    /// One busy client.
    fn ask_on(&self, address: SocketAddr, number: usize) -> Result<(), Trouble> {
        let count = |count: &AtomicUsize| {
            count.fetch_add(1, Relaxed);
        };
        let mut asked = 0;
        let mut kept: Option<Kept> = None;
        while !self.over.load(Relaxed) {
            let mut connection = match kept.take() {
                Some(connection) if connection.is_open() => connection,
                Some(_) => {
                    count(&self.busy_closed);
                    continue;
                }
                None => match Kept::open(address)? {
                    Some(connection) => connection,
                    None => {
                        count(&self.lost);
                        continue;
                    }
                },
            };
            asked += 1;
            let token = format!("client {number} asks for the {asked}th time");
            match connection.ask(&token)? {
                Some(afterwards) => {
                    count(&self.answered);
                    match afterwards {
                        Afterwards::Keep => kept = Some(connection),
                        Afterwards::Close => count(&self.busy_closed),
                    }
                }
                None => count(&self.lost),
            }
        }
        Ok(())
    }
}

/// Opens as many as are missing.
fn fill(mut resting: Vec<Kept>, address: SocketAddr) -> Result<Vec<Kept>, Trouble> {
    while resting.len() < RESTING {
        let token = format!("the first of {}", resting.len());
        resting.push(Kept::answering(address, &token)?);
    }
    Ok(resting)
}
