//! What do clients lose while a server reloads, loses a worker, is upgraded or resized?
//!
//! 32 clients open a connection for each request, ask for its end and read to it; 32 keep theirs,
//! and 8 of those rest up to 300 ms between requests, all others up to 8 ms. Each request carries
//! words of its own that the response must repeat: wrong, mixed up and cut responses are seen.
//! Meanwhile, and each time only when the clients have had four responses each since the last
//! event, one of these happens:
//!
//! - `reload`, 50 times, 2 workers. prefork: HUP, until `reload_finished`; every second time until
//!   the drained workers are gone. nginx: HUP, until all workers are new ones. fasthttp: TERM to
//!   one process, until another listens in its place; then the next.
//! - `kill`, 50 times, 4 workers. Until the slot has a worker again or rests with its listeners
//!   adopted; never the last that serves. The others: until there is another worker.
//! - `upgrade`, 20 times. prefork: a copy of the binary in its place, USR2, until
//!   `upgrade_finished` and `reload_finished`. nginx: USR2, until the new master has its workers,
//!   QUIT to the old.
//! - `resize`, 40 times, 1 to 6 workers. prefork alone: TTIN or TTOU, until the worker is there or
//!   gone.
//!
//! A server that is not installed, or does not know an event, has a row that says so. fasthttp is
//! built from `fasthttp.go.txt` into the target directory, which needs `go` and, the first time,
//! its module proxy. All columns count requests:
//!
//! - **answered**: rightly, to the last byte.
//! - **refused**: no socket listened.
//! - **reset new**, **eof new**: reset, or end of file, before the first byte of a response on a
//!   connection that never had one. That is a queue which was closed, or a connection that was
//!   accepted and dropped.
//! - **reset kept**, **eof kept**: the same at a later request of a connection. A connection that
//!   is closed while nothing was asked is no loss: the client looks right before it sends, and
//!   opens another.
//! - **silent**: no whole response in 5 s. **garbled**: other bytes, or a response that was cut.
//! - **(held)**: the requests of connections that a killed worker had accepted. No server can save
//!   those, so they count nowhere else. The victim is stopped (SIGSTOP) before it is killed, and
//!   the kernel is asked which connections it has accepted (`connections.rs`): one that still waits
//!   in a queue is not among them. While it is stopped requests gather, so the number says nothing
//!   about a server.
//! - **per 1,000**: lost requests per thousand events, without (held).
//! - **median**: from the signal until the event was over, as the list above says; under load.
//!
//! Afterwards, without this load: how long a start and each change take (`quiet.rs`); how many
//! connections that are kept alive reloads close (`closed.rs`); how many downloads of a large file
//! they cut (`downloads.rs`); and whether new connections are served while a slot rests after many
//! crashes (`adoption.rs`).
//!
//! The bench fails if our binary lost anything but (held), closed a kept connection or cut a
//! download in a reload, or got stuck, and then tells each loss with its time, event and port, and
//! which workers ended oddly. Chance (victims, sizes, rests) comes from `--seed`; the machine's
//! part cannot be repeated. Every server runs beneath a keeper that kills and reaps it when the
//! bench ends, also if the bench is killed.
//!
//! [RESULTS.md](RESULTS.md) has the figures of one run.
//!
//! Not measured: throughput and latency (the clients rest between requests, so that idle
//! connections are there to be closed), requests that take long, a network with its losses, TLS,
//! HTTP/2, more connections than the queues hold.

mod adoption;
mod case;
mod closed;
mod connection;
mod connections;
mod contender;
mod downloads;
mod foreign;
mod load;
mod options;
mod prefork;
mod quiet;
#[path = "../support/mod.rs"]
mod support;
mod tally;

use std::process::ExitCode;

use clap::Parser;

use self::case::Case;
use self::contender::{Event, Name};
use self::options::Options;
use self::support::options::Extent;
use self::support::process::{self, Trouble};
use self::support::progress::Progress;
use self::support::report::{self, Table};

/// Fails if our own server lost anything.
fn main() -> ExitCode {
    // Nothing but a keeper: this bench has no roles of its own.
    let _: Option<()> = process::role();
    let options = Options::parse();
    let (events, servers) = (options.events(), options.servers());
    let steps = events
        .iter()
        .map(|&event| options.count(event) * servers.len());
    let mut progress = Progress::new("lifecycle", steps.sum());
    let mut cases = Vec::new();
    for &event in &events {
        let mut table = Table::empty(format!("{}:", event.name()), &Case::head());
        for &name in &servers {
            let case = Case::run(name, event, &options, &mut progress);
            let (name, cells) = case.row();
            table.push(name, cells.as_deref());
            cases.push(case);
        }
        println!("{}", table.for_a_terminal());
    }
    println!(
        "seed {}; per 1,000: requests lost per thousand events, without (held), which are the \
         open requests\nof killed workers; median: from the signal until the next event could \
         begin, under load\n",
        options.seed
    );
    let failures = cases.iter().filter(|case| case.is_failure());
    failures.clone().for_each(Case::print_losses);
    match failures.count() == 0 && quiet(&options) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// What needs no load. Whether our own server did as promised.
fn quiet(options: &Options) -> bool {
    let (servers, events) = (options.servers(), options.events());
    let (rounds, connections) = options.quiet();
    let (table, mut sound) = quiet::table(&servers, &events, rounds);
    if options.common.extent() != Extent::Smoke || !sound {
        println!("{}", table.for_a_terminal());
    }
    if events.contains(&Event::Reload) {
        let closed = |name| closed::count(name, rounds);
        sound &= print_counts(closed::table(rounds), &servers, closed);
        let downloads = |name| downloads::count(name, rounds);
        sound &= print_counts(downloads::table(rounds), &servers, downloads);
    }
    if servers.contains(&Name::Prefork) && events.contains(&Event::Kill) {
        sound &= adoption::print(connections);
    }
    sound
}

/// Prints a row for each server that knows reloads. All counts but the first one are of what must
/// not be. Whether our own server did as promised.
fn print_counts<const N: usize>(
    mut table: Table,
    servers: &[Name],
    count: impl Fn(Name) -> Result<[usize; N], Trouble>,
) -> bool {
    let mut sound = true;
    for &name in servers.iter().filter(|name| name.knows_reloads()) {
        let counts = count(name);
        let is_well = |counts: &[usize; N]| counts[1..].iter().all(|&count| count == 0);
        sound &= counts.as_ref().is_ok_and(is_well) || !name.is_ours();
        let counts = counts.map(|counts| counts.map(|count| count.to_string()));
        table.push(name.name(), counts.as_ref().map(<[_; N]>::as_slice));
    }
    println!("{}", table.for_a_terminal());
    sound
}
