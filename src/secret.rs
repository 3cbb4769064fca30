//! Bytes that no one may find in memory later.

use std::fmt;
use std::ops::Deref;

use zeroize::Zeroize;

use crate::codec::{Malformed, Reader, Record, Writer};

/// The most bytes of a record that is a secret.
pub(crate) const RECORD_MAX: usize = 32 * 1024;

/// Bytes that are wiped when they are dropped. They are on the heap, so that a move leaves no copy
/// on the stack.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Box<[u8]>);

impl Secret {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// The bytes of a record. No copy of them is left if they are at most [`RECORD_MAX`].
    #[cfg(feature = "tls")]
    pub(crate) fn of_record(record: &impl Record) -> Self {
        let mut writer = Writer::with_capacity(RECORD_MAX);
        record.put(&mut writer);
        let (mut bytes, _) = writer.finish();
        let secret = Self::new(&bytes);
        bytes.as_mut_slice().zeroize();
        secret
    }
}

impl Deref for Secret {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.len())
    }
}

impl Record for Secret {
    fn put(&self, to: &mut Writer) {
        to.bytes(self);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.bytes().map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{from_bytes, to_bytes};

    #[test]
    fn a_secret_is_written_and_read_and_not_shown() {
        let secret = Secret::new(b"key");
        assert_eq!(from_bytes(&to_bytes(&secret)), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), "Secret(3 bytes)");
    }
}
