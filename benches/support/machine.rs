//! The machine's facts, without which no figure means anything.

use std::fs;
use std::thread;

use nix::sys::utsname::uname;

/// A name and what there is to say, such as `kernel` and `Linux 6.18`.
pub(crate) type Fact = (String, String);

pub(crate) fn facts() -> Vec<Fact> {
    let release = uname().map(|names| names.release().to_string_lossy().into_owned());
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<_> = load.split(' ').take(3).collect();
    let control = "/proc/sys/net/ipv4/tcp_congestion_control";
    let control = fs::read_to_string(control).unwrap_or_default();
    let cpus = thread::available_parallelism().map_or(0, Into::into);
    [
        ("CPU", value("/proc/cpuinfo", "model name")),
        ("CPUs for the bench", cpus.to_string()),
        ("memory", value("/proc/meminfo", "MemTotal")),
        ("kernel", format!("Linux {}", release.unwrap_or_default())),
        ("congestion control", control.trim().to_owned()),
        // Whether another program was busy.
        ("load average before", load.join(" ")),
    ]
    .map(|(name, fact)| (name.to_owned(), fact))
    .into()
}

/// The memory that programs may still use, in bytes.
pub(crate) fn available() -> u64 {
    let value = value("/proc/meminfo", "MemAvailable");
    let kib = value.strip_suffix(" kB").and_then(|kib| kib.parse().ok());
    kib.map_or(0, |kib: u64| kib * 1024)
}

fn value(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or_else(|| "unknown".into(), |(_, value)| value.trim().to_owned())
}
