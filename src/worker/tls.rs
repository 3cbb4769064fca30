//! What a worker needs to speak TLS, and where it has it from.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::keyring::Keyring;
use crate::protocol::ticket_keys::{SharedKeys, fresh_key};
use crate::sys::{clock, memory};

/// The keys of session tickets, now and later.
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

/// What a worker has from its master to speak TLS with; nothing, if there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherited {
    keys: Option<Arc<SharedKeys>>,
    files: Option<Arc<File>>,
}

impl Inherited {
    /// Without the master's keys the worker has its own.
    pub(super) fn new(keys: Option<OwnedFd>, files: Option<OwnedFd>) -> Self {
        let join = |fd| {
            SharedKeys::new(&fd)
                .inspect_err(|error| tracing::warn!(%error, "no tickets in common with others"))
                .map(Arc::new)
                .ok()
        };
        Self {
            keys: keys.and_then(join),
            files: files.map(|fd| Arc::new(fd.into())),
        }
    }

    /// The keys of session tickets: those of all workers if the master has some, else its own,
    /// which are replaced so often.
    ///
    /// # Errors
    /// getrandom(2) failed.
    pub(crate) fn keys(&self, lifetime: Duration) -> Result<Keys, Error> {
        match &self.keys {
            Some(shared) => Ok(Keys::Masters(Arc::clone(shared))),
            None => Keys::own(lifetime).map_err(|error| Error::system("getrandom(2)", error)),
        }
    }

    /// What the master has read, if it has.
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
