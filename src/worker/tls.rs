//! The keys and files that a worker needs for TLS.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::keyring::Keyring;
use crate::protocol::ticket_keys::{SharedKeys, fresh_key};
use crate::sys::{clock, memory};

/// The keys of session tickets.
#[derive(Debug)]
pub(crate) enum Keys {
    /// The keys that all workers share. The master replaces them.
    Shared(Arc<SharedKeys>),
    /// Keys of this process: there is no master, or the master has none.
    Own {
        keyring: Mutex<Keyring>,
        lifetime: Duration,
    },
}

/// The keys and files that this worker has from its master; empty without a master.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherited {
    keys: Option<Arc<SharedKeys>>,
    files: Option<Arc<File>>,
}

impl Inherited {
    /// If the shared keys cannot be read, the worker logs a warning and makes its own.
    pub(super) fn new(keys: Option<OwnedFd>, files: Option<OwnedFd>) -> Self {
        let shared = |fd| {
            SharedKeys::new(&fd)
                .inspect_err(|error| tracing::warn!(%error, "session tickets are not shared"))
                .map(Arc::new)
                .ok()
        };
        Self {
            keys: keys.and_then(shared),
            files: files.map(|fd| Arc::new(fd.into())),
        }
    }

    /// The keys of session tickets: the shared ones, or without them own ones with this lifetime.
    ///
    /// # Errors
    /// getrandom(2) failed.
    pub(crate) fn keys(&self, lifetime: Duration) -> Result<Keys, Error> {
        match &self.keys {
            Some(shared) => Ok(Keys::Shared(Arc::clone(shared))),
            None => Keys::own(lifetime).map_err(|error| Error::system("getrandom(2)", error)),
        }
    }

    /// The encoded contents of the TLS files; empty if the master has read none.
    ///
    /// # Errors
    /// pread(2) failed.
    pub(crate) fn files(&self) -> Result<Vec<u8>, Error> {
        match &self.files {
            Some(file) => memory::contents(file).map_err(|error| Error::system("pread(2)", error)),
            None => Ok(Vec::new()),
        }
    }
}

impl Keys {
    fn own(lifetime: Duration) -> io::Result<Self> {
        Ok(Self::Own {
            keyring: Mutex::new(Keyring::new(fresh_key()?, clock::monotonic())),
            lifetime,
        })
    }

    /// The current keys; `None` if there are none at the moment.
    pub(crate) fn keyring(&self) -> Option<Keyring> {
        match self {
            Self::Shared(shared) => shared.keyring(),
            Self::Own { keyring, lifetime } => {
                // A keyring is replaced as a whole, so it is valid even after a panic.
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
        let keys = Keys::own(Duration::from_secs(60 * 60)).expect("random");
        let ring = keys.keyring();
        assert!(ring.is_some());
        assert_eq!(keys.keyring(), ring);
        let keys = Keys::own(Duration::ZERO).expect("random");
        assert_ne!(keys.keyring(), keys.keyring(), "always due");
    }
}
