//! The envelope of the state that a master leaves to its next image: the version of the bytes, the
//! process that owns them, and a checksum.
//!
//! A master of another version may not be able to read a state, and once the next image runs there
//! is no way back. So each worker reports, when it is ready, which versions a master of its image
//! reads. The master checks the canary's report before the exec.

use std::fmt;

use nix::unistd::Pid;

use crate::codec::{Malformed, Reader, Record, Writer, record};

/// The version in which this image writes its state. Raise it with every change of a record, and
/// with a change of the scoreboard that an image before cannot take over.
pub(crate) const VERSION: u16 = 14;

/// The oldest version that this image reads.
const OLDEST: u16 = 14;

/// The first bytes of an envelope.
const MAGIC: u64 = u64::from_le_bytes(*b"prefork\n");

/// The versions that an image can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    oldest: u16,
    newest: u16,
}

/// Why a state cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The bytes are no state.
    NoState,
    /// The state has this version, which this image does not read.
    Version(u16),
    /// Another process has left it.
    Owner(Pid),
    /// The state is not complete, or was changed.
    Damaged,
}

/// The header of the envelope.
#[derive(Clone, Copy, Debug)]
struct Head {
    magic: u64,
    version: u16,
    owner: i32,
    length: u64,
    checksum: u64,
}

record!(Versions { oldest, newest });
record!(Head {
    magic,
    version,
    owner,
    length,
    checksum
});

impl Versions {
    /// The versions that this image reads.
    pub(crate) const OURS: Self = Self {
        oldest: OLDEST,
        newest: VERSION,
    };

    /// No version: the image has not reported any.
    pub(crate) const NONE: Self = Self {
        oldest: 1,
        newest: 0,
    };

    pub(crate) fn include(self, version: u16) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }
}

impl Head {
    /// The length of every header.
    const LEN: usize = 30;
}

/// Puts a state into its envelope.
pub(crate) fn seal(state: &[u8], owner: Pid) -> Vec<u8> {
    let mut writer = Writer::default();
    let head = Head {
        magic: MAGIC,
        version: VERSION,
        owner: owner.as_raw(),
        length: u64::try_from(state.len()).expect("a usize has 64 bits at most"),
        checksum: checksum(state),
    };
    head.put(&mut writer);
    let (mut bytes, _) = writer.finish();
    bytes.extend_from_slice(state);
    bytes
}

/// Opens an envelope. Fails unless `owner` has left it, in a version that this image reads.
pub(crate) fn open(bytes: &[u8], owner: Pid) -> Result<&[u8], Unreadable> {
    let mut reader = Reader::new(bytes);
    let head = Head::take(&mut reader).map_err(|Malformed| Unreadable::NoState)?;
    let state = reader.rest();
    if head.magic != MAGIC {
        return Err(Unreadable::NoState);
    }
    if !Versions::OURS.include(head.version) {
        return Err(Unreadable::Version(head.version));
    }
    if head.owner != owner.as_raw() {
        return Err(Unreadable::Owner(Pid::from_raw(head.owner)));
    }
    let whole = u64::try_from(state.len()) == Ok(head.length) && checksum(state) == head.checksum;
    whole.then_some(state).ok_or(Unreadable::Damaged)
}

/// The process that has left the envelope; `None` if it is no envelope.
pub(crate) fn owner(read: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Pid> {
    let mut bytes = [0; Head::LEN];
    let length = read(&mut bytes)?;
    let head = Head::take(&mut Reader::new(&bytes[..length])).ok()?;
    (head.magic == MAGIC).then_some(Pid::from_raw(head.owner))
}

/// FNV-1a. It finds states that were cut or overwritten by mistake, not on purpose.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { oldest, newest } if oldest > newest => f.write_str("no version"),
            Self { oldest, newest } if oldest == newest => write!(f, "version {oldest}"),
            Self { oldest, newest } => write!(f, "versions {oldest} to {newest}"),
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoState => f.write_str("it is no state of a master"),
            Self::Version(version) => {
                let ours = Versions::OURS;
                write!(f, "it is of version {version}, this image reads {ours}")
            }
            Self::Owner(pid) => write!(f, "it is that of process {pid}"),
            Self::Damaged => f.write_str("it is not whole"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Pid = Pid::from_raw(100);

    #[test]
    fn a_state_is_opened_as_it_was_sealed() {
        let sealed = seal(b"all of it", OWNER);
        assert_eq!(open(&sealed, OWNER), Ok(&b"all of it"[..]));
        let read = |bytes: &mut [u8]| {
            bytes.copy_from_slice(&sealed[..bytes.len()]);
            Some(bytes.len())
        };
        assert_eq!(owner(read), Some(OWNER));
        assert_eq!(sealed.len(), Head::LEN + b"all of it".len());
    }

    #[test]
    fn the_state_of_another_process_is_refused() {
        let sealed = seal(b"state", OWNER);
        let error = open(&sealed, Pid::from_raw(101));
        assert_eq!(error, Err(Unreadable::Owner(OWNER)));
        assert_eq!(open(b"no envelope", OWNER), Err(Unreadable::NoState));
        assert_eq!(open(&[0; 64], OWNER), Err(Unreadable::NoState));
        assert_eq!(owner(|_| None), None);
        assert_eq!(owner(|bytes| Some(bytes.len())), None);
    }

    #[test]
    fn an_unknown_version_is_refused_and_named() {
        let mut sealed = seal(b"state", OWNER);
        let next = VERSION + 1;
        sealed[8..10].copy_from_slice(&next.to_le_bytes());
        let error = open(&sealed, OWNER).expect_err("nobody reads the next version");
        assert_eq!(error, Unreadable::Version(next));
        assert_eq!(
            error.to_string(),
            format!(
                "it is of version {next}, this image reads {}",
                Versions::OURS
            )
        );
        assert!(!Versions::OURS.include(next) && Versions::OURS.include(VERSION));
        assert!(!Versions::OURS.include(OLDEST - 1) && Versions::OURS.include(OLDEST));
        assert!(!Versions::NONE.include(VERSION));
    }

    #[test]
    fn a_state_that_was_cut_extended_or_changed_is_refused() {
        let sealed = seal(b"state", OWNER);
        for length in 0..sealed.len() {
            let error = open(&sealed[..length], OWNER).expect_err("a piece is missing");
            let expected = if length < Head::LEN {
                Unreadable::NoState
            } else {
                Unreadable::Damaged
            };
            assert_eq!(error, expected, "{length} bytes");
        }
        let longer = [&sealed[..], b"!"].concat();
        assert_eq!(open(&longer, OWNER), Err(Unreadable::Damaged));
        let mut changed = sealed;
        *changed.last_mut().expect("bytes") ^= 1;
        assert_eq!(open(&changed, OWNER), Err(Unreadable::Damaged));
    }
}
