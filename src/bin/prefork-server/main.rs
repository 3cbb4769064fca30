//! The binary.

// The life of the process is not joined to its rooms yet.
#![cfg_attr(not(test), expect(dead_code, unused_imports))]

mod access_log;
mod cli;
mod site;

fn main() {
    cli::Options::from_process();
}
