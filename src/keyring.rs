//! The keys of session tickets, and when they are replaced. Plain values.
//!
//! A client sends a ticket to resume its session (RFC 5077, RFC 8446 2.2). A key can decrypt all
//! sessions that were resumed with its tickets in TLS 1.2. So a key makes tickets for a limited
//! time only. For the same time after that it still opens tickets, so that no ticket is refused
//! before its end.

use std::fmt;
use std::time::Duration;

use zeroize::Zeroize;

/// The number of bytes of the name of a key.
pub(crate) const NAME: usize = 16;

/// The number of bytes of a key: AES-256.
pub(crate) const SECRET: usize = 32;

/// A key and its name. Each ticket has the name, not encrypted.
///
/// The secret is wiped when the key is dropped. It is on the heap, so that a move of the key leaves
/// no copy on the stack.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: [u8; NAME],
    pub(crate) secret: Box<[u8; SECRET]>,
}

/// The keys at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keyring {
    /// Makes tickets and opens them.
    pub(crate) current: Key,
    /// Only opens tickets.
    pub(crate) previous: Option<Key>,
    /// When `current` was made, on the monotonic clock.
    pub(crate) since: Duration,
}

impl Keyring {
    /// A keyring with one key.
    pub(crate) fn new(first: Key, now: Duration) -> Self {
        Self {
            current: first,
            previous: None,
            since: now,
        }
    }

    /// The key of this name, if it still opens tickets.
    #[cfg(feature = "tls")]
    pub(crate) fn named(&self, name: &[u8]) -> Option<&Key> {
        let mut keys = [Some(&self.current), self.previous.as_ref()]
            .into_iter()
            .flatten();
        keys.find(|key| key.name == name)
    }

    /// How long the current key still makes tickets.
    pub(crate) fn left(&self, now: Duration, lifetime: Duration) -> Duration {
        self.since.saturating_add(lifetime).saturating_sub(now)
    }

    /// The keyring with a fresh current key. The key before it still opens tickets, unless it is
    /// too old for that because the keys were not replaced for a long time.
    pub(crate) fn rotated(self, fresh: Key, now: Duration, lifetime: Duration) -> Self {
        let young = now.saturating_sub(self.since) < lifetime.saturating_mul(2);
        Self {
            current: fresh,
            previous: young.then_some(self.current),
            since: now,
        }
    }
}

impl Key {
    /// A key of zeroes, to be filled in place.
    pub(crate) fn blank() -> Self {
        Self {
            name: [0; NAME],
            secret: Box::new([0; SECRET]),
        }
    }

    #[cfg(test)]
    pub(crate) fn of(byte: u8) -> Self {
        Self {
            name: [byte; NAME],
            secret: Box::new([byte; SECRET]),
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

/// Never the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:02x?})", &self.name[..4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_key_seals_for_its_lifetime_and_opens_for_as_long_again() {
        let ring = Keyring::new(Key::of(1), at(100));
        assert_eq!(ring.left(at(103), LIFETIME), at(7));
        assert_eq!(ring.left(at(111), LIFETIME), Duration::ZERO);
        let ring = ring.rotated(Key::of(2), at(110), LIFETIME);
        assert_eq!(
            (&ring.current, &ring.previous),
            (&Key::of(2), &Some(Key::of(1)))
        );
        let ring = ring.rotated(Key::of(3), at(120), LIFETIME);
        assert_eq!(
            (&ring.current, &ring.previous),
            (&Key::of(3), &Some(Key::of(2)))
        );
    }

    #[test]
    fn what_nobody_rotated_in_time_does_not_open_either() {
        let ring = Keyring::new(Key::of(1), at(100));
        let late = ring.clone().rotated(Key::of(2), at(119), LIFETIME);
        assert_eq!(late.previous, Some(Key::of(1)));
        let too_late = ring.rotated(Key::of(2), at(120), LIFETIME);
        assert_eq!(too_late.previous, None);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn keys_are_found_by_their_names() {
        let ring = Keyring::new(Key::of(1), at(0)).rotated(Key::of(2), at(1), LIFETIME);
        assert_eq!(ring.named(&[1; NAME]), Some(&Key::of(1)));
        assert_eq!(ring.named(&[2; NAME]), Some(&Key::of(2)));
        assert_eq!(ring.named(&[3; NAME]), None);
        assert_eq!(ring.named(&[]), None);
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Key::of(7)), "Key([07, 07, 07, 07])");
    }
}
