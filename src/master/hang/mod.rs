//! Workers that hang: [`watch`] reads what the workers count and asks the kernel about queues,
//! [`policy`] decides by it who hangs.

mod policy;
mod watch;

pub(super) use self::policy::HangPolicy;
pub(super) use self::watch::from_config;
