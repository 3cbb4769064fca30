//! What moves together with the socket of a connection.

use bytes::Bytes;

use crate::secret::Secret;

/// The most bytes that were read and not processed.
pub(crate) const READ_AHEAD_MAX: usize = 17 << 20;

/// What one server knows of a connection, and the next one needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The session of TLS, as a record. What follows was decrypted.
    pub(crate) tls: Option<Secret>,
    /// What an HTTP/2 client will not send again, as a record. `None` in HTTP/1, and before the
    /// first byte.
    pub(crate) http2: Option<Bytes>,
    /// The bytes that were read and not processed, usually none. At most [`READ_AHEAD_MAX`].
    pub(crate) read_ahead: Bytes,
}
