//! What do clients of a fleet lose when its instances are replaced, and when one of them fails?
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
use self::support::report::{Table, written};

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
                let rightly = written(outcome.named.rightly as f64);
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
