//! Where a worker has the keys of session tickets from.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::keyring::Keyring;
use crate::protocol::ticket_keys::{SharedKeys, fresh_key};
use crate::sys::clock;

/// The keys, now and later.
#[derive(Debug)]
pub(crate) enum Keys {
    /// Those of all workers; the master replaces them.
    Masters(Arc<SharedKeys>),
    /// Those of a server without a master, or of a worker whose master has none.
    Own {
        keyring: Mutex<Keyring>,
        lifetime: Duration,
    },
}

/// The master's keys. Without them the worker has its own.
pub(super) fn join(fd: OwnedFd) -> Option<Arc<SharedKeys>> {
    SharedKeys::new(&fd)
        .inspect_err(|error| tracing::warn!(%error, "no tickets in common with other workers"))
        .map(Arc::new)
        .ok()
}

impl Keys {
    pub(super) fn own(lifetime: Duration) -> io::Result<Self> {
        Ok(Self::Own {
            keyring: Mutex::new(Keyring::new(fresh_key()?, clock::monotonic())),
            lifetime,
        })
    }

    /// As of now; `None` if there are none at the moment.
    pub(crate) fn keyring(&self) -> Option<Keyring> {
        match self {
            Self::Masters(shared) => shared.keyring(),
            Self::Own { keyring, lifetime } => {
                // A ring is replaced whole, so it is sound whoever panicked.
                let mut keyring = keyring.lock().unwrap_or_else(PoisonError::into_inner);
                let now = clock::monotonic();
                if keyring.left(now, *lifetime).is_zero() {
                    *keyring = keyring.clone().rotated(fresh_key().ok()?, now, *lifetime);
                }
                Some(keyring.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_keys_are_replaced_when_they_are_due() {
        let keys = Keys::own(Duration::from_hours(1)).expect("random");
        let ring = keys.keyring();
        assert!(ring.is_some());
        assert_eq!(keys.keyring(), ring);
        let keys = Keys::own(Duration::ZERO).expect("random");
        assert_ne!(keys.keyring(), keys.keyring(), "always due");
    }
}
