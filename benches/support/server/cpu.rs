//! What a process tree has burnt: user and system time of every thread of every process.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use nix::unistd::{Pid, SysconfVar, sysconf};

/// Processes whose time is counted together.
#[derive(Clone, Copy)]
pub(crate) struct Processes {
    root: Pid,
    descendants: Descendants,
    clock: Clock,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Descendants {
    /// Looked up anew each time.
    Included,
    Excluded,
}

/// What the kernel counts a thread's time with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `/proc/PID/task/TID/schedstat`, in nanoseconds, where the kernel has it.
    Schedstat,
    /// `/proc/PID/task/TID/stat`, mostly in ticks of 10 ms: fine for a turn of some hundred.
    Stat,
}

/// What has been used so far.
pub(crate) struct Used {
    /// By thread id.
    threads: BTreeMap<u32, Duration>,
    /// In ticks, with those threads that have ended.
    ended_included: Duration,
}

impl Processes {
    /// A server: its first process and whatever that has started.
    pub(crate) fn under(root: Pid) -> Self {
        Self {
            root,
            descendants: Descendants::Included,
            clock: Clock::of_this_kernel(),
        }
    }

    /// The driver: this process without the servers it has started.
    pub(crate) fn this_one() -> Self {
        Self {
            descendants: Descendants::Excluded,
            ..Self::under(Pid::this())
        }
    }

    pub(crate) fn clock(self) -> Clock {
        self.clock
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
                // One that has just ended is asked for its time in vain.
                if let Some(time) = self.clock.read(path) {
                    used.threads.insert(thread, time);
                }
            });
            let process = format!("/proc/{pid}");
            let ticks = Clock::Stat.read(Path::new(&process));
            used.ended_included += ticks.expect("a server's process lives");
        });
        used
    }

    pub(crate) fn each(self, mut visit: impl FnMut(Pid)) {
        self.each_process(self.root, &mut visit);
    }

    fn each_process(self, pid: Pid, visit: &mut impl FnMut(Pid)) {
        visit(pid);
        if self.descendants == Descendants::Excluded {
            return;
        }
        each_thread(pid, |_, path| {
            for child in children(path).split_whitespace() {
                self.each_process(Pid::from_raw(parse(child)), visit);
            }
        });
    }
}

impl Used {
    /// A thread that has ended meanwhile took its nanoseconds with it; then the ticks count, which
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

impl Clock {
    fn of_this_kernel() -> Self {
        match fs::exists("/proc/self/schedstat") {
            Ok(true) => Self::Schedstat,
            Ok(false) | Err(_) => Self::Stat,
        }
    }

    /// `None` if there is no such thread or process any more.
    fn read(self, directory: &Path) -> Option<Duration> {
        match self {
            Self::Schedstat => {
                let text = fs::read_to_string(directory.join("schedstat")).ok()?;
                Some(Duration::from_nanos(field(&text, 0)))
            }
            Self::Stat => {
                let text = fs::read_to_string(directory.join("stat")).ok()?;
                // The program's name may contain blanks, so count from where it ends: `state` is
                // field 3 in proc_pid_stat(5), utime and stime are 14 and 15.
                let (_, fields) = text.rsplit_once(") ").expect("stat names its program");
                let ticks: u64 = field::<u64>(fields, 11) + field::<u64>(fields, 12);
                Some(Duration::from_secs(ticks).div_f64(ticks_per_second()))
            }
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Schedstat => "/proc/PID/task/TID/schedstat (nanoseconds)",
            Self::Stat => "/proc/PID/task/TID/stat (ticks)",
        })
    }
}

fn each_thread(pid: Pid, mut visit: impl FnMut(u32, &Path)) {
    let tasks = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&tasks).unwrap_or_else(|error| panic!("{tasks}: {error}"));
    for thread in threads {
        let thread = thread.expect("proc(5) lists a live process");
        let id = thread.file_name();
        visit(parse(&id.to_string_lossy()), &thread.path());
    }
}

/// None of a thread that has ended.
fn children(thread: &Path) -> String {
    fs::read_to_string(thread.join("children")).unwrap_or_default()
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

fn ticks_per_second() -> f64 {
    let ticks = sysconf(SysconfVar::CLK_TCK).expect("sysconf(3) knows CLK_TCK");
    ticks.expect("CLK_TCK is not optional in POSIX") as f64
}
