//! What does a connection cost that is only there?
//!
//! 8,000 connections have had one answer and rest; 64 others are busy. The memory of one is the
//! growth of the server's proportional set size, divided, in a server that has had no connections
//! before but the 64, so that no memory is there to be used again. What the kernel keeps for a
//! socket is in no process's set.
//!
//! Not measured: connections that rest for longer than a few seconds, and what TLS adds.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::command_line::Extent;
use crate::load::Ask;
use crate::question::Question;
use crate::server::BODY;

const IDLE: usize = 8000;

/// Enough to run through all of it.
const IDLE_SMOKE: usize = 200;

/// Descriptors that a process has beside its idle connections.
const SPARE: u64 = 500;

/// None where the limit on open files is too low, which is said.
pub(crate) fn questions(extent: Extent) -> Vec<Question> {
    let idle = match extent {
        Extent::Smoke => IDLE_SMOKE,
        Extent::Quick | Extent::Full => IDLE,
    };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit(2)");
    let needed = idle as u64 + SPARE;
    if hard < needed {
        eprintln!("idle_8000 is left out: {needed} open files are needed, and {hard} allowed");
        return Vec::new();
    }
    if soft < needed {
        // The servers inherit it. No higher than needed: a server may size things by it.
        setrlimit(Resource::RLIMIT_NOFILE, needed, hard).expect("the soft limit may be raised");
    }
    let question = Question::new("idle_8000", 64, Ask::get("/").expecting(BODY));
    vec![question.beside_idle(idle)]
}
