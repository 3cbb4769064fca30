//! The machine's facts, without which no figure means anything.

use std::env;
use std::fmt;
use std::fs;
use std::thread;

use nix::sys::utsname::uname;

/// Where the figures come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    /// That this process may use.
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    /// When the run began, as `/proc/loadavg` has it: whether somebody else was busy.
    pub(crate) load_average: String,
    /// What the servers were pinned to, if they were.
    pub(crate) servers_on_cpus: Option<String>,
}

impl Machine {
    pub(crate) fn this_one() -> Self {
        let load = read("/proc/loadavg");
        let memory = value("/proc/meminfo", "MemTotal").and_then(|text| {
            let kib = text.strip_suffix(" kB")?;
            kib.trim().parse::<u64>().ok()
        });
        let release = uname().map(|names| names.release().to_string_lossy().into_owned());
        Self {
            cpu: value("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cores: thread::available_parallelism().map_or(0, Into::into),
            memory_mib: memory.unwrap_or_default() / 1024,
            kernel: release.unwrap_or_else(|_| "unknown".into()),
            load_average: load.split(' ').take(3).collect::<Vec<_>>().join(" "),
            servers_on_cpus: env::var("PREFORK_BENCH_SERVER_CPUS").ok(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} cores for the bench), {} MiB, Linux {}, load average before {}",
            self.cpu, self.cores, self.memory_mib, self.kernel, self.load_average
        )?;
        match &self.servers_on_cpus {
            Some(cpus) => write!(f, ", servers pinned to CPU {cpus}"),
            None => f.write_str(", nothing pinned"),
        }
    }
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
