//! The machine's facts, without which no figure means anything.

use std::fs;
use std::thread;

use nix::sys::utsname::uname;

/// A name and what there is to say, such as `kernel` and `Linux 6.18`.
pub(crate) type Fact = (String, String);

pub(crate) fn facts() -> Vec<Fact> {
    let load = read("/proc/loadavg");
    let memory = value("/proc/meminfo", "MemTotal").and_then(|text| {
        let kib = text.strip_suffix(" kB")?;
        kib.trim().parse::<u64>().ok()
    });
    let release = uname().map(|names| names.release().to_string_lossy().into_owned());
    let cores = thread::available_parallelism().map_or(0, Into::into);
    let unknown = || "unknown".to_owned();
    [
        (
            "CPU",
            value("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
        ),
        ("CPUs for the bench", cores.to_string()),
        (
            "memory",
            format!("{} MiB", memory.unwrap_or_default() / 1024),
        ),
        (
            "kernel",
            format!("Linux {}", release.unwrap_or_else(|_| unknown())),
        ),
        // Whether another program was busy.
        (
            "load average before",
            load.split(' ').take(3).collect::<Vec<_>>().join(" "),
        ),
    ]
    .map(|(name, fact)| (name.to_owned(), fact))
    .into()
}

fn value(path: &str, name: &str) -> Option<String> {
    let text = read(path);
    let line = text.lines().find(|line| line.starts_with(name))?;
    let (_, value) = line.split_once(':')?;
    Some(value.trim().to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
