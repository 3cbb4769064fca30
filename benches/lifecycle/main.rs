//! What do clients lose while a server reloads, loses a worker, is upgraded or resized?
//!
//! 32 clients open a connection for each request and 32 keep theirs open; every answer is checked
//! byte for byte against what that one request must get. Beneath them the same thing happens to the
//! server again and again, and whatever is not answered is counted by how it failed.
//!
//! Not measured: throughput and latency (the clients rest between requests, so that idle
//! connections are there to be closed), requests that take long, a network with its losses, TLS,
//! HTTP/2, more connections than the queues hold.

mod adoption;
mod answer;
mod case;
mod chance;
mod client;
mod closed;
mod command_line;
mod connections;
mod contender;
mod edge;
mod fasthttp;
mod kept;
mod load;
mod nginx;
mod prefork;
#[path = "../support/process.rs"]
mod process;
mod quiet;
mod report;
mod tally;
#[path = "../support/toolchain.rs"]
mod toolchain;

use std::process::ExitCode;

use clap::Parser;

use self::case::Case;
use self::command_line::{Extent, Options};
use self::contender::{Event, Name};

/// Fails if our own server lost anything.
fn main() -> ExitCode {
    process::become_keeper_if_asked();

    let options = Options::parse();
    report::print_head();
    let mut cases = Vec::new();
    for event in options.events() {
        for name in options.servers() {
            let case = Case::run(name, event, options.plan(event));
            report::print_row(&case);
            cases.push(case);
        }
    }
    report::print_legend(options.seed);
    report::print_losses(&cases);
    let sound = quiet(&options);
    match cases.iter().any(Case::is_failure) || !sound {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// What needs no load. Whether our own server did as promised.
fn quiet(options: &Options) -> bool {
    let servers = options.servers();
    if options.extent() != Extent::Smoke {
        println!("\nwithout load, 2 workers, from the signal until it is done:");
        for event in options.events() {
            for &name in &servers {
                let timed = match event {
                    Event::Reload | Event::Upgrade => matches!(name, Name::Prefork | Name::Nginx),
                    Event::Kill | Event::Resize => false,
                };
                if timed {
                    quiet::print_duration(name, event, options.extent().rounds());
                }
            }
        }
    }
    let ours = servers.contains(&Name::Prefork);
    let mut sound = true;
    if options.events().contains(&Event::Reload) {
        sound &= closed::print(&servers, options.extent().rounds());
    }
    if ours && options.events().contains(&Event::Kill) {
        sound &= adoption::print(options.extent().connections()).is_ok();
    }
    if ours && options.events().contains(&Event::Reload) {
        sound &= edge::print(options.extent().rounds(), options.seed).is_ok();
    }
    sound
}
