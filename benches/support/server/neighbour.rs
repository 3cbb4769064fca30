//! A process that computes on the CPU of a server's only worker.

use std::env;
use std::hint::black_box;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::process::Process;
use super::role::pin_to;

/// The CPU that this executable computes on when it is started as a neighbour.
const NEIGHBOUR: &str = "PREFORK_BENCH_NEIGHBOUR";

/// The CPU that a neighbour and a worker share, and those that are left for the load driver.
pub(crate) struct Cpus {
    pub(crate) shared: usize,
    driver: CpuSet,
    all: CpuSet,
}

/// A running neighbour. While it lives, the thread that started it stays off its CPU. Dropped, it
/// is stopped and reaped, and the thread may use all its CPUs again.
pub(crate) struct Neighbour {
    _process: Process,
    cpus: Cpus,
}

impl Neighbour {
    /// Takes the last CPU that this thread may use.
    ///
    /// # Errors
    ///
    /// If there are fewer than two.
    pub(crate) fn cpus() -> Result<Cpus, &'static str> {
        let all = sched_getaffinity(Pid::from_raw(0)).expect("the affinity can be read");
        let mut allowed = (0..CpuSet::count()).filter(|&cpu| all.is_set(cpu) == Ok(true));
        let shared = allowed.next_back().expect("this thread runs somewhere");
        allowed.next().ok_or("they need two CPUs")?;
        let mut driver = all;
        driver.unset(shared).expect("it was set");
        Ok(Cpus {
            shared,
            driver,
            all,
        })
    }

    pub(crate) fn start() -> Self {
        let cpus = Self::cpus().expect("its questions are left out otherwise");
        let mut process = Process::spawn(&[(NEIGHBOUR, &cpus.shared.to_string())]);
        process.wait_until("computing", |notice| notice == "serving");
        sched_setaffinity(Pid::from_raw(0), &cpus.driver).expect("these CPUs are allowed");
        Self {
            _process: process,
            cpus,
        }
    }

    /// The CPU that it computes on.
    pub(crate) fn cpu(&self) -> usize {
        self.cpus.shared
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        sched_setaffinity(Pid::from_raw(0), &self.cpus.all).expect("they were allowed before");
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
