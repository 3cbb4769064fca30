//! How long changes of a server without load take.
//!
//! | change | from | to |
//! |---|---|---|
//! | start | the master is started | both workers serve |
//! | resize | a worker more is asked for | it serves |
//! | kill | the only worker is killed | a request, sent at once, has its response |
//! | reload, upgrade | the signal | what it is over with under load, too |
//!
//! Workers of ours and of nginx have nothing to prepare before they serve.

use std::iter;
use std::time::{Duration, Instant};

use crate::case::median;
use crate::connection::{Connection, Exchange, Habit};
use crate::contender::{Event, Name};
use crate::process::Trouble;
use crate::report::Table;

/// The table, and whether our own server did all of it.
pub(crate) fn table(servers: &[Name], events: &[Event], rounds: usize) -> (Table, bool) {
    let title = "without load, from the signal until it is done:";
    let head = ["server", "change", "median ms", "least", "most"];
    let mut table = Table::empty(title, &head);
    let mut sound = true;
    let changes = events.iter().copied().map(Some);
    for change in iter::once(None).chain(changes) {
        for &name in servers {
            if !matches!(name, Name::Prefork | Name::Nginx) {
                continue;
            }
            let times = iter::repeat_with(|| time(name, change)).take(rounds);
            let times: Result<Vec<_>, _> = times.collect();
            sound &= times.is_ok() || !name.is_ours();
            let what = change.map_or("start", Event::name);
            let cells = times.map(|times| {
                let least = times.iter().min().copied().unwrap_or_default();
                let most = times.iter().max().copied().unwrap_or_default();
                let millis = [median(&times), least, most]
                    .map(|time| format!("{:.1}", time.as_secs_f64() * 1e3));
                [vec![what.to_owned()], millis.into()].concat()
            });
            table.push(name.name(), cells.as_deref());
        }
    }
    (table, sound)
}

/// Of one change, to a server that is started for it. Without a change: of its start.
fn time(name: Name, change: Option<Event>) -> Result<Duration, Trouble> {
    let workers = if change == Some(Event::Kill) { 1 } else { 2 };
    let mut server = name.start(workers)?;
    let Some(change) = change else {
        return Ok(server.processes().started.elapsed());
    };
    let workers = server.workers()?;
    let start = Instant::now();
    match change {
        Event::Reload => server.reload()?,
        Event::Upgrade => server.upgrade()?,
        Event::Resize => server.resize(true)?,
        Event::Kill => {
            server.kill(workers[0])?;
            let mut connection = Connection::open(server.address())?;
            connection.ask(&Exchange::echo(Habit::NewConnections, "after the kill"))?;
        }
    }
    Ok(start.elapsed())
}
