//! The keys that session tickets are sealed with, and when they are replaced: values alone.
//!
//! A ticket is what a client shows to resume its session (RFC 5077, RFC 8446 2.2). Whoever has a
//! key can read what was said in all sessions whose tickets it sealed, if they were resumed from
//! them in TLS 1.2. So a key is used for a limited time only, and then opens tickets for as long
//! once more, so that none is refused while it is young.

use std::fmt;
use std::time::Duration;

use zeroize::Zeroize;

/// As many bytes as a key's name has.
pub(crate) const NAME: usize = 16;

/// As many bytes as a key has: AES-256.
pub(crate) const SECRET: usize = 32;

/// A key and its name, which each ticket bears in the open.
///
/// The secret is wiped when the key is dropped. It lies in the heap, so that no copy of it is left
/// on the stack where the key was moved from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: [u8; NAME],
    pub(crate) secret: Box<[u8; SECRET]>,
}

/// The keys at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keyring {
    /// Seals and opens.
    pub(crate) current: Key,
    /// Opens only.
    pub(crate) previous: Option<Key>,
    /// When `current` came to be, on the monotonic clock.
    pub(crate) since: Duration,
}

impl Keyring {
    /// With its first key.
    pub(crate) fn new(first: Key, now: Duration) -> Self {
        Self {
            current: first,
            previous: None,
            since: now,
        }
    }

    /// The key of this name, if it still opens.
    #[cfg(feature = "tls")]
    pub(crate) fn named(&self, name: &[u8]) -> Option<&Key> {
        let mut keys = [Some(&self.current), self.previous.as_ref()]
            .into_iter()
            .flatten();
        keys.find(|key| key.name == name)
    }

    /// How long the current key has left to seal.
    pub(crate) fn left(&self, now: Duration, lifetime: Duration) -> Duration {
        self.since.saturating_add(lifetime).saturating_sub(now)
    }

    /// With a fresh key in place of the current one, which opens on unless it is too old for that
    /// too, as after a long time in which nobody rotated.
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
    /// All zeroes, to be filled in place.
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
