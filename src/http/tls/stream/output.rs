//! What a TLS stream encrypts, and what of it waits for the client.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::unbuffered::{EncodeError, EncodeTlsData, WriteTraffic};
use tokio::io::AsyncWrite;

use crate::error::BoxError;
use crate::pool::Scratch;

/// The most plaintext in a record (RFC 8446 5.1).
const RECORD: usize = 16 * 1024;

/// At most so many bytes are encrypted by one call: 64 KiB of a body and its head.
const PLAIN_MAX: usize = 5 * RECORD;

/// Space for so many bytes, encrypted, and for an alert or a key update before them. A record has
/// up to 29 bytes more than its plaintext.
const SEALED_MAX: usize = PLAIN_MAX + 1024;

thread_local! {
    static SEALED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static GATHERED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The buffer to encrypt into.
pub(super) fn scratch() -> Scratch {
    Scratch::take(&SEALED, SEALED_MAX)
}

/// Encrypted bytes that the client has not taken.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    /// Bytes that are sent as they are.
    pub(crate) fn plain(bytes: &[u8]) -> Self {
        let bytes = bytes.to_vec();
        Self { bytes, sent: 0 }
    }

    /// Adds a message of the handshake, or an alert.
    pub(super) fn append<T>(&mut self, data: &mut EncodeTlsData<'_, T>) -> io::Result<()> {
        let start = self.bytes.len();
        // rustls says how long it is.
        if let Err(EncodeError::InsufficientSize(missing)) = data.encode(&mut []) {
            self.bytes.resize(start + missing.required_size, 0);
            let encoded = data.encode(&mut self.bytes[start..]);
            encoded.map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Adds encrypted bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds `close_notify`.
    pub(super) fn close<T>(&mut self, mut traffic: WriteTraffic<'_, T>) -> io::Result<()> {
        let mut record = scratch();
        let len = traffic.queue_close_notify(&mut record);
        let len = len.map_err(io::Error::other)?;
        self.bytes.extend_from_slice(&record[..len]);
        Ok(())
    }

    /// Sends these bytes, as nothing waits. What the client does not take waits.
    pub(super) fn send(
        &mut self,
        mut bytes: &[u8],
        io: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = Pin::new(&mut *io).poll_write(cx, bytes);
            if let Poll::Ready(Ok(sent @ 1..)) = written {
                bytes = &bytes[sent..];
                continue;
            }
            self.bytes.extend_from_slice(bytes);
            return match written {
                Poll::Pending => Ok(()),
                Poll::Ready(written) => {
                    Err(written.err().unwrap_or(io::ErrorKind::WriteZero.into()))
                }
            };
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Ready when nothing waits.
    pub(crate) fn poll_send(
        &mut self,
        io: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.sent < self.bytes.len() {
            match ready!(Pin::new(&mut *io).poll_write(cx, &self.bytes[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        *self = Self::default();
        Poll::Ready(Ok(()))
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Encrypts at most [`PLAIN_MAX`] bytes into `out` by `encrypt`, which makes records and returns
/// their length. Returns the number of bytes, and the length of all records.
/// The records are full except the last: what would begin a short record is copied together. If
/// `encrypt` fails after some records, they are sent: their numbers are used.
pub(super) fn seal<E: Into<BoxError>>(
    mut encrypt: impl FnMut(&[u8], &mut [u8]) -> Result<usize, E>,
    slices: &[IoSlice<'_>],
    out: &mut [u8],
) -> io::Result<(usize, usize)> {
    let (mut taken, mut sealed) = (0, 0);
    let mut encrypt = |plain: &[u8]| match encrypt(plain, &mut out[sealed..]) {
        Ok(len) => {
            sealed += len;
            taken += plain.len();
            Ok(PLAIN_MAX - taken)
        }
        Err(_) if taken > 0 => Ok(0),
        Err(error) => Err(io::Error::other(error)),
    };
    let slices = slices.iter().map(|slice| &slice[..]);
    let mut slices = slices.filter(|slice| !slice.is_empty()).peekable();
    let mut gathered = GATHERED.take();
    let mut slice = slices.next().unwrap_or_default();
    let mut left = PLAIN_MAX;
    while !slice.is_empty() && left > 0 {
        let most = slice.len().min(left);
        let at_once = match slices.peek() {
            Some(_) => most - most % RECORD,
            None => most,
        };
        if at_once > 0 {
            left = encrypt(&slice[..at_once])?;
            slice = &slice[at_once..];
        } else {
            gathered.clear();
            while gathered.len() < RECORD && !slice.is_empty() {
                let part = slice.len().min(RECORD - gathered.len());
                gathered.extend_from_slice(&slice[..part]);
                slice = &slice[part..];
                if slice.is_empty() {
                    slice = slices.next().unwrap_or_default();
                }
            }
            left = encrypt(&gathered)?;
        }
        if slice.is_empty() {
            slice = slices.next().unwrap_or_default();
        }
    }
    GATHERED.set(gathered);
    Ok((taken, sealed))
}
