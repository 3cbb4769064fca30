//! What the kernel knows of a process (proc(5)).

use std::fs;

use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::sys::processes;

/// How often the CPU time of the server is measured while workers are reaped.
const MEASURED_MAX: u32 = 100;

/// A process at one moment.
pub(in crate::admin) struct Process {
    pub(in crate::admin) cpu_seconds: f64,
    pub(in crate::admin) resident_bytes: f64,
    pub(in crate::admin) open_fds: f64,
    /// When it was started, in seconds after the boot of the machine.
    pub(in crate::admin) started: f64,
}

impl Process {
    /// `None` if the process has ended.
    pub(in crate::admin) fn of(pid: u32) -> Option<Self> {
        let statm = processes::read(number(pid)?, "statm").ok()?;
        let pages: f64 = statm.split(' ').nth(1)?.parse().ok()?;
        // Since Linux 6.2 the size of this directory is the number of open descriptors.
        let fds = processes::file(number(pid)?, "fd").and_then(fs::metadata);
        let ticks = Ticks::of(pid)?;
        Some(Self {
            cpu_seconds: ticks.own,
            resident_bytes: pages * per_system(SysconfVar::PAGE_SIZE, 4096.0),
            open_fds: fds.map_or(0.0, |fds| fds.len() as f64),
            started: ticks.started,
        })
    }
}

fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().map(Pid::from_raw)
}

/// Seconds since the boot of the machine.
pub(in crate::admin) fn since_boot() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split(' ').next().and_then(|it| it.parse().ok());
    seconds.unwrap_or_default()
}

/// The CPU time of a process in seconds, and of its children that were reaped; and its start.
struct Ticks {
    own: f64,
    children: f64,
    started: f64,
}

impl Ticks {
    fn of(pid: u32) -> Option<Self> {
        let stat = processes::read(number(pid)?, "stat").ok()?;
        // The name of the program, in parentheses, may hold anything.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        // Numbered as in proc(5), where the state of the process is the third.
        let seconds = |number: usize| -> Option<f64> {
            let ticks: f64 = fields.get(number - 3)?.parse().ok()?;
            Some(ticks / per_system(SysconfVar::CLK_TCK, 100.0))
        };
        Some(Self {
            own: seconds(14)? + seconds(15)?,
            children: seconds(16)? + seconds(17)?,
            started: seconds(22)?,
        })
    }
}

/// The CPU time of the master, of its workers that run, and of those that were reaped. None is
/// counted twice. A worker that is reaped meanwhile would be missing, so the time is measured again
/// then. Else the figure of the next admin process could be lower than the last one of this one.
///
/// `None` if `/proc` does not show the master: it has ended, it has another user than this process
/// (proc(5), `hidepid`), or `/proc` is that of another process namespace.
pub(in crate::admin) fn cpu_of_server(
    master: Pid,
    workers: impl Iterator<Item = u32> + Clone,
) -> Option<f64> {
    let of_master = || {
        let ticks = Ticks::of(master.as_raw().unsigned_abs())?;
        Some((ticks.own, ticks.children))
    };
    let (mut master, mut running) = (of_master()?, 0.0);
    for _ in 0..MEASURED_MAX {
        running = workers.clone().filter_map(Ticks::of).map(|it| it.own).sum();
        let before = std::mem::replace(&mut master, of_master()?);
        if before.1 == master.1 {
            break;
        }
    }
    Some(running + master.0 + master.1)
}

fn per_system(variable: SysconfVar, usual: f64) -> f64 {
    let value = sysconf(variable).ok().flatten();
    value.map_or(usual, |value| value as f64)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_worker_that_is_reaped_while_the_time_is_measured_is_counted() {
        let mut worker = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .expect("a shell");
        let pid = worker.id();
        let used = loop {
            let used = Ticks::of(pid).expect("it runs").own;
            if used >= 0.1 {
                break used;
            }
            std::thread::yield_now();
        };
        let worker = std::cell::RefCell::new(&mut worker);
        let workers = std::iter::once(pid).inspect(|_| {
            let mut worker = worker.borrow_mut();
            let _ = worker.kill().and_then(|()| worker.wait());
        });
        let before = Ticks::of(std::process::id()).expect("it runs");
        let before = before.own + before.children;
        let measured = cpu_of_server(Pid::this(), workers).expect("it runs");
        assert!(measured >= before + used, "{measured} {before} {used}");
    }

    /// As for a process of another user with `hidepid`. The time of the workers alone would be less
    /// than another admin process has shown.
    #[test]
    fn a_server_whose_master_is_not_shown_has_no_cpu_time() {
        let mut ended = Command::new("true").spawn().expect("a program");
        let pid = i32::try_from(ended.id()).expect("a pid");
        ended.wait().expect("it ends");
        let workers = std::iter::once(std::process::id());
        assert_eq!(cpu_of_server(Pid::from_raw(pid), workers), None);
    }
}
