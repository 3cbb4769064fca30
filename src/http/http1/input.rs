//! What a connection that is served directly knows of its input. The bytes are in the stream.

/// The stream's input, as far as this room knows it.
pub(super) struct Input {
    pub(super) buffer: InputBuffer,
    /// So many bytes were parsed and are the beginning of a head.
    pub(super) part: usize,
    pub(super) socket: SocketInput,
}

/// Whether the input has a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InputBuffer {
    Absent,
    /// It must be returned to the server's buffers.
    Taken,
}

/// Whether the socket's receive buffer has bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketInput {
    Unknown,
    /// The last read took everything. To poll for readiness costs less than a read without bytes.
    Empty,
}
