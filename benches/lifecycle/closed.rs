//! How many connections that are kept alive does a reload close? 16 are asked all the time, and
//! 1,000 rest. Those are filled up before each reload, looked at after it, and asked once more at
//! the end.
//!
//! A connection that is closed at rest costs no request, so the table of what was lost does not
//! have it. Yet its client comes back with all the others, each with a handshake.

use std::net::SocketAddr;

use crate::connection::{Connection, Exchange, Habit};
use crate::contender::Name;
use crate::load::{Asks, Load, Manner};
use crate::process::Trouble;
use crate::report::Table;
use crate::support::load::Fate;

const BUSY: usize = 16;
const RESTING: usize = 1_000;

/// For the counts of each server.
pub(crate) fn table(reloads: usize) -> Table {
    let title = format!(
        "{reloads} reloads under connections that are kept alive, {BUSY} busy and {RESTING} at \
         rest, 2 workers:"
    );
    let head = [
        "server",
        "answered",
        "lost",
        "busy closed",
        "resting closed",
    ];
    Table::empty(title, &head)
}

/// As the table's head has them.
pub(crate) fn count(name: Name, reloads: usize) -> Result<[usize; 4], Trouble> {
    let mut server = name.start(2)?;
    let mut resting_closed = 0;
    // Before the busy ones, which leave little time for it.
    let mut resting = fill(Vec::new(), server.address())?;
    let busy = Manner {
        asks: Asks::Echo(Habit::KeepsAlive),
        rest_millis: 0,
    };
    let load = Load::start(server.address(), vec![busy; BUSY])?;
    for number in 0..reloads {
        resting = fill(resting, server.address())?;
        load.settle()?;
        server.reload()?;
        // An even number: until those that drain are gone.
        server.settle(2 * number)?;
        resting.retain(Connection::is_open);
        resting_closed += RESTING - resting.len();
    }
    load.settle()?;
    let last = Exchange::echo(Habit::KeepsAlive, "the last");
    let asked = resting.iter_mut().map(|kept| kept.ask(&last));
    let answered = asked.filter(Result::is_ok).count();
    let lost = resting.len() - answered;
    let busy = load.finish()?;
    Ok([
        usize::try_from(busy.answered).expect("it was counted") + answered,
        busy.lost.len() + lost,
        busy.closed,
        resting_closed,
    ])
}

/// Opens as many as are missing. No event is under way, so none may fail.
fn fill(mut resting: Vec<Connection>, address: SocketAddr) -> Result<Vec<Connection>, Trouble> {
    while resting.len() < RESTING {
        let mut connection = Connection::open(address)?;
        let token = format!("the first of {}", resting.len());
        if connection.ask(&Exchange::echo(Habit::KeepsAlive, &token))? == Fate::Closed {
            return Err(Trouble::Stuck("a quiet server keeps no connection".into()));
        }
        resting.push(connection);
    }
    Ok(resting)
}
