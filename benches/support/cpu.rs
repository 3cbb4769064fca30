//! What a process tree has burnt: user and system time of every thread of every process.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use nix::unistd::{Pid, SysconfVar, sysconf};

use super::process::started_by;

/// Processes whose time is counted together.
#[derive(Clone, Copy)]
pub(crate) struct Processes {
    root: Pid,
    descendants: Descendants,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Descendants {
    /// Looked up anew each time.
    Included,
    Excluded,
}

/// What has been used so far.
pub(crate) struct Used {
    /// By thread id.
    threads: BTreeMap<u32, Duration>,
    /// In ticks, with those threads that have ended.
    ended_included: Duration,
}

impl Processes {
    /// A server: its first process and all that this has started.
    pub(crate) fn under(root: Pid) -> Self {
        let descendants = Descendants::Included;
        Self { root, descendants }
    }

    /// The driver: this process without the servers it has started.
    pub(crate) fn this_one() -> Self {
        Self {
            root: Pid::this(),
            descendants: Descendants::Excluded,
        }
    }

    pub(crate) fn count(self) -> usize {
        let mut count = 0;
        self.each(|_| count += 1);
        count
    }

    pub(crate) fn used(self) -> Used {
        let mut used = Used {
            threads: BTreeMap::new(),
            ended_included: Duration::ZERO,
        };
        self.each(|pid| {
            each_thread(pid, |thread, path| {
                // A thread that has just ended has no time to be read.
                if let Some(time) = nanoseconds(path).or_else(|| ticks(path)) {
                    used.threads.insert(thread, time);
                }
            });
            let process = ticks(Path::new(&format!("/proc/{pid}")));
            used.ended_included += process.expect("a server's process lives");
        });
        used
    }

    pub(crate) fn each(self, mut visit: impl FnMut(Pid)) {
        self.each_under(self.root, &mut visit);
    }

    fn each_under(self, pid: Pid, visit: &mut impl FnMut(Pid)) {
        visit(pid);
        if self.descendants == Descendants::Excluded {
            return;
        }
        for child in started_by(pid) {
            self.each_under(child, visit);
        }
    }
}

impl Used {
    /// A thread that has ended meanwhile took its nanoseconds with it. Then the ticks count, which
    /// the kernel keeps.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let lives = |thread| self.threads.contains_key(thread);
        if earlier.threads.keys().all(lives) {
            let now: Duration = self.threads.values().sum();
            now - earlier.threads.values().sum::<Duration>()
        } else {
            self.ended_included - earlier.ended_included
        }
    }
}

/// Of a thread; `None` if it has ended, or if the kernel does not have this file.
fn nanoseconds(thread: &Path) -> Option<Duration> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    Some(Duration::from_nanos(field(&text, 0)))
}

/// Of a thread or a process; `None` if it has ended. A tick is 10 ms mostly, which is fine for a
/// turn of some hundred.
fn ticks(directory: &Path) -> Option<Duration> {
    let text = fs::read_to_string(directory.join("stat")).ok()?;
    // The program's name may contain blanks, so count from where it ends: `state` is field 3 in
    // proc_pid_stat(5), utime and stime are 14 and 15.
    let (_, fields) = text.rsplit_once(") ").expect("stat names its program");
    let ticks: u64 = field::<u64>(fields, 11) + field::<u64>(fields, 12);
    let per_second = sysconf(SysconfVar::CLK_TCK).expect("sysconf(3) knows CLK_TCK");
    let per_second = per_second.expect("CLK_TCK is not optional in POSIX");
    Some(Duration::from_secs(ticks).div_f64(per_second as f64))
}

fn each_thread(pid: Pid, mut visit: impl FnMut(u32, &Path)) {
    let tasks = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&tasks).unwrap_or_else(|error| panic!("{tasks}: {error}"));
    for thread in threads {
        let thread = thread.expect("proc(5) lists a live process");
        visit(parse(&thread.file_name().to_string_lossy()), &thread.path());
    }
}

fn field<T: FromStr>(text: &str, index: usize) -> T {
    let field = text.split_whitespace().nth(index);
    parse(field.expect("proc(5) never takes fields away"))
}

fn parse<T: FromStr>(text: &str) -> T {
    let Ok(value) = text.parse() else {
        panic!("proc(5) has no number in \"{text}\"");
    };
    value
}
