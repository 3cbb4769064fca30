//! A process that computes on the CPU of a server's only worker.

use std::hint::black_box;

use super::process::Process;
use super::role::Role;
use crate::support::cpus;

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
        let mut process = Role::Neighbour(*cpu).start();
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

/// Computes until it is stopped.
pub(super) fn compute_on(cpu: usize) -> ! {
    cpus::pin_to(&[cpu]);
    println!(r#"{{"notice":"serving"}}"#);
    let mut steps = 0u64;
    loop {
        steps = black_box(steps.wrapping_add(1));
    }
}
