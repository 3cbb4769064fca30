//! Scenarios, all small worlds, and long random worlds; and tests that they find mistakes.
//!
//! All tests drive a [`Machine`](machine::Machine) through
//! [`Watched`](machine::Watched), which checks from outside what `invariants` checks from inside.
//! So a machine with a deliberate mistake (`flaws`) can replace the supervisor.

mod exhaustive;
mod flaws;
mod machine;
mod scripts;
mod watch;
mod world;

use crate::policy::CrashLimit;

/// So many crashes within the default time.
fn crash_limit(max: u32) -> CrashLimit {
    CrashLimit {
        max,
        ..CrashLimit::default()
    }
}
