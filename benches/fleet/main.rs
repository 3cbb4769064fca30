//! What do clients of a fleet lose when its instances are replaced, and when one of them fails?
//!
//! Each instance of the binary is on a machine of its own, which is a network namespace. So is the
//! balancer, and so are the clients; links and a bridge join them. The instances echo after 20 ms.
//! The balancer runs with the file of `examples/deploy` that users get; HAProxy is asked and
//! commanded by its runtime API. There are 400 requests a second, whatever becomes of those
//! before, half of them PUT, which a balancer may send again, and half POST, which it may not.
//! Meanwhile:
//!
//! - `restart`: TERM to an instance; when it has ended, it is started again; when the balancer
//!   sends it requests again, the next one. `/readyz`, or the health path, is 503 for the 2 s of
//!   the pre-stop delay, in which HAProxy notices. nginx, which asks nothing, is told by its file.
//! - `upgrade`: a copy of the binary in its place, then USR2 until `upgrade_finished` and
//!   `reload_finished`, or the verb `upgrade --wait` behind `haproxy-h2c`; then the next instance.
//! - `scale`: a fourth instance joins, by the runtime API or a reload of nginx, and leaves again.
//! - `kill`: all processes of an instance are killed at the same time. It is started again after
//!   13 s.
//! - `hang`: all processes of an instance are stopped (SIGSTOP), and go on 13 s later.
//! - `partition`: the link of an instance is down for 13 s. Both ends are told nothing.
//! - `pods`: the kubelet's sequence, behind HAProxy without checks and without a second try, as
//!   the Service of Kubernetes is. A new pod is made; when its readiness probe succeeds, it joins.
//!   An old pod is then ended, and leaves the Service 2 s later: after 5 s of `preStop` it gets
//!   TERM, and it may not need the KILL at the end of its grace period. With `--no-pre-stop` TERM
//!   comes at once.
//!
//! The balancer's log says where each request went; the number of the request is in its path. The
//! columns:
//!
//! - **of**: the victim, or how many instances there were in turn.
//! - **requests**: those that ended from the first such event until the first of the next kind.
//! - **failed**: no right response, to the last byte. A response of the balancer itself is wrong.
//! - **slowest in s**: the right response that took longest.
//! - **at the victim**: requests that a failed instance had when it failed, or was given until it
//!   was well again, or should have had and another got. Those that failed are among them.
//! - **tried again**: requests that the balancer gave to a second instance, and that succeeded.
//! - **why**: the status, and what the balancer's log says: HAProxy's two letters of how the
//!   session ended, or the statuses of all tries of nginx. A request that is not in the log was on
//!   a kept connection, which the balancer closed without a response.
//!
//! The access logs of the instances that get PROXY headers must name the clients' address in each
//! line.
//!
//! The bench fails if rolling work lost a request, or a fault one that was not at the victim;
//! except for those on kept connections that nginx closes in a reload. It needs root, `ip`,
//! `nsenter`, `unshare` and the balancer. Without them it says so and passes. As a test it does
//! each thing once, faults behind one balancer only. The picture has responses and failures in
//! each second.
//!
//! [RESULTS.md](RESULTS.md) has the figures of one run.
//!
//! Not measured: throughput and latency, TLS, requests that take long, a network with losses.

mod balancer;
mod events;
mod haproxy;
mod instance;
mod load;
mod network;
mod nginx;
mod options;
mod outcome;
mod picture;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::process::ExitCode;
use std::thread;

use clap::Parser;

use self::balancer::Kind;
use self::events::{Event, Fleet};
use self::options::Options;
use self::outcome::{HEAD, Outcome};
use self::support::options::Extent;
use self::support::process::{self, Trouble};
use self::support::progress::Progress;
use self::support::report::{Table, counted};

/// Fails if a request was lost that a balancer could not have lost by itself.
fn main() -> ExitCode {
    // Nothing but a keeper: this bench has no roles of its own.
    let _: Option<()> = process::role();
    let options = Options::parse();
    let runs = options.runs();
    let run = |(kind, events): &(Kind, Vec<Event>)| run(*kind, events, &options);
    let run = &run;
    // Each thread has a network of its own.
    let outcomes: Vec<_> = thread::scope(|scope| match options.extent() {
        Extent::Smoke => {
            let threads: Vec<_> = runs.iter().map(|it| scope.spawn(move || run(it))).collect();
            let joined = threads.into_iter().map(|it| it.join());
            joined.map(|it| it.expect("a run does not panic")).collect()
        }
        _ => {
            let joined = runs.iter().map(|it| scope.spawn(move || run(it)).join());
            joined.map(|it| it.expect("a run does not panic")).collect()
        }
    });
    let mut is_sound = true;
    for ((kind, _), outcome) in runs.iter().zip(&outcomes) {
        is_sound &= print(*kind, outcome, &options);
    }
    let outcomes: Vec<_> = outcomes.iter().flatten().collect();
    if options.extent() != Extent::Smoke && !outcomes.is_empty() {
        is_sound &= draw(&outcomes, &options);
    }
    match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Whether the picture could be written.
fn draw(outcomes: &[&Outcome], options: &Options) -> bool {
    let (instances, rate) = (options.instances, options.rate());
    let title = format!("A fleet of {instances} instances at {rate} requests a second");
    let path = options.picture();
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = parent.and_then(|()| fs::write(&path, picture::timeline(&title, outcomes)));
    match written {
        Ok(()) => println!("picture: {}", path.display()),
        Err(ref error) => eprintln!("{}: {error}", path.display()),
    }
    written.is_ok()
}

/// What happens to a fleet of its own.
fn run(kind: Kind, events: &[Event], options: &Options) -> Result<Outcome, Trouble> {
    let rounds = events.iter().map(|&event| options.count(event)).sum();
    let mut progress = Progress::new("fleet", rounds);
    let mut fleet = Fleet::start(kind, options)?;
    for &event in events {
        if let Err(trouble) = fleet.play(kind, event, &mut progress) {
            eprintln!(
                "{}: {}: {trouble}\n{}",
                kind.name(),
                event.name(),
                fleet.log()
            );
            return Err(trouble);
        }
    }
    fleet.finish(kind)
}

/// Whether it is as it should be.
fn print(kind: Kind, outcome: &Result<Outcome, Trouble>, options: &Options) -> bool {
    let title = format!(
        "{}, {} instances of 2 workers, {} requests/s:",
        kind.name(),
        options.instances,
        options.rate()
    );
    let mut table = Table::empty(title, &HEAD);
    match outcome {
        Ok(outcome) => {
            for (name, cells) in outcome.rows() {
                table.push(name, Ok::<_, Trouble>(&cells[..]));
            }
            println!("{}", table.for_a_terminal());
            if outcome.named.rightly > 0 {
                let rightly = counted(outcome.named.rightly);
                println!("access logs that name the client: {rightly} lines\n");
            }
            let is_sound = !outcome.is_failure() || options.no_pre_stop;
            if !is_sound {
                outcome.print_failures();
            }
            is_sound
        }
        Err(trouble) => {
            println!("{}: {trouble}", kind.name());
            matches!(trouble, Trouble::NotSupported(_))
        }
    }
}
