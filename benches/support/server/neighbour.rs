//! A process that computes on the CPU of a server's only worker.

use std::env;
use std::hint::black_box;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::process::Process;
use super::role::pin_to;
use crate::support::cpus;

/// The CPU that this executable computes on when it is started as a neighbour.
const NEIGHBOUR: &str = "PREFORK_BENCH_NEIGHBOUR";

/// A running neighbour. While it lives, the thread that started it stays off its CPU. Dropped, it
/// is stopped and reaped, and the thread may use all its CPUs again.
pub(crate) struct Neighbour {
    _process: Process,
    /// The CPU that it computes on.
    pub(crate) cpu: usize,
    all: Vec<usize>,
}

impl Neighbour {
    /// On the last CPU that this thread may use.
    ///
    /// # Panics
    ///
    /// If there is only one.
    pub(crate) fn start() -> Self {
        let all = cpus::usable();
        let [others @ .., cpu] = all.as_slice() else {
            unreachable!("this thread runs somewhere");
        };
        let mut process = Process::spawn(&[(NEIGHBOUR, &cpu.to_string())]);
        process.wait_until("computing", |notice| notice == "serving");
        cpus::pin_to(others);
        Self {
            _process: process,
            cpu: *cpu,
            all,
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        cpus::pin_to(&self.all);
    }
}

/// Computes until it is stopped, if the environment says so.
pub(super) fn compute_if_asked() {
    let Ok(cpu) = env::var(NEIGHBOUR) else { return };
    set_pdeathsig(Signal::SIGTERM).expect("prctl(2) takes SIGTERM");
    pin_to(&cpu);
    println!(r#"{{"notice":"serving"}}"#);
    let mut steps = 0u64;
    loop {
        steps = black_box(steps.wrapping_add(1));
    }
}
