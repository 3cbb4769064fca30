//! Which CPUs the calling thread runs on, and all that it starts.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Those that it may use, in ascending order.
pub(crate) fn usable() -> Vec<usize> {
    let all = sched_getaffinity(Pid::from_raw(0)).expect("sched_getaffinity(2)");
    let cpus = 0..CpuSet::count();
    cpus.filter(|&cpu| all.is_set(cpu) == Ok(true)).collect()
}

/// From now on it runs on these.
///
/// # Panics
///
/// If the machine does not have one of them.
pub(crate) fn pin_to(cpus: &[usize]) {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu).unwrap_or_else(|_| panic!("no CPU is {cpu}"));
    }
    let pinned = sched_setaffinity(Pid::from_raw(0), &set);
    pinned.unwrap_or_else(|error| panic!("CPUs {cpus:?}: {error}"));
}

/// Runs `start` on these CPUs, and so what it starts. Then the thread is where it was.
pub(crate) fn on<T>(cpus: &[usize], start: impl FnOnce() -> T) -> T {
    let before = usable();
    pin_to(cpus);
    let output = start();
    pin_to(&before);
    output
}
