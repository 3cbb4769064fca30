//! What several benches need. Each bench compiles all of it and uses a part.

#![allow(dead_code, unused_imports, reason = "each bench uses another part")]

pub(crate) mod cpu;
pub(crate) mod cpus;
pub(crate) mod identity;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod notices;
pub(crate) mod options;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod toolchain;
pub(crate) mod turns;
