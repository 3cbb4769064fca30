//! The session of a TLS stream: rustls' own, or one that another server opened.

use std::io::{self, IoSlice};
use std::sync::Arc;

use rustls::ServerConfig;

use crate::http::info::tls::TlsInfo;
use crate::http::tls::stream::input::{Decrypted, Input, Put};
use crate::http::tls::stream::output::Output;
use crate::http::tls::stream::own_session::OwnSession;
use crate::http::tls::stream::taken_session::{SessionParts, TakenSession};

/// Each is on the heap, because they are large and of different size.
pub(crate) enum Session {
    /// It began here.
    Own(Box<OwnSession>),
    /// It began at another server.
    Taken(Box<TakenSession>),
}

impl Session {
    pub(super) fn new(config: Arc<ServerConfig>) -> io::Result<Self> {
        Ok(Self::Own(Box::new(OwnSession::new(config)?)))
    }

    /// What was agreed on.
    pub(crate) fn info(&self) -> TlsInfo {
        match self {
            Self::Own(own) => own.info(),
            Self::Taken(taken) => taken.info().clone(),
        }
    }

    /// The name of the protocol that was agreed on.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match self {
            Self::Own(own) => own.alpn(),
            Self::Taken(taken) => taken.info().alpn.as_deref().map(str::as_bytes),
        }
    }

    /// Whether this server has resumed an earlier session of the client.
    pub(crate) fn is_resumed(&self) -> bool {
        matches!(self, Self::Own(own) if own.is_resumed())
    }

    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self, Self::Own(own) if own.is_handshaking())
    }

    /// Whether another server can go on with the session now.
    pub(super) fn can_move(&self) -> bool {
        match self {
            Self::Own(own) => own.can_move(),
            Self::Taken(taken) => taken.can_move(),
        }
    }

    /// What another server needs; `None` if rustls does not give it away, and the session ends.
    pub(super) fn into_parts(self) -> Option<SessionParts> {
        match self {
            Self::Own(own) => own.into_parts(),
            Self::Taken(taken) => Some(taken.into_parts()),
        }
    }

    /// Decrypts the records that are complete, and does what they ask for.
    pub(super) fn decrypt(
        &mut self,
        bytes: &mut [u8],
        put: Put<'_>,
        output: &mut Output,
    ) -> io::Result<Decrypted> {
        match self {
            Self::Own(own) => own.decrypt(bytes, put, output),
            Self::Taken(taken) => taken.decrypt(bytes, put, output),
        }
    }

    /// Encrypts bytes into `out`. Returns how many were encrypted, and the length of the records.
    pub(super) fn encrypt(
        &mut self,
        slices: &[IoSlice<'_>],
        input: &mut Input,
        out: &mut [u8],
    ) -> io::Result<(usize, usize)> {
        match self {
            Self::Own(own) => own.encrypt(slices, input, out),
            Self::Taken(taken) => taken.encrypt(slices, out),
        }
    }

    /// The session has failed. Adds the alert to the output, if there is one.
    pub(super) fn last_words(&mut self, output: &mut Output) {
        match self {
            Self::Own(own) => own.last_words(output),
            Self::Taken(taken) => taken.last_words(output),
        }
    }

    /// Adds `close_notify` to the output.
    pub(super) fn close(&mut self, input: &mut Input, output: &mut Output) -> io::Result<()> {
        match self {
            Self::Own(own) => own.close(input, output),
            Self::Taken(taken) => {
                taken.close(output);
                Ok(())
            }
        }
    }
}
