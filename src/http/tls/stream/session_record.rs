//! A session that moves to another server, as a record.

use bytes::Bytes;
use rustls::SupportedCipherSuite;

use crate::codec::record;
use crate::http::info::tls::TlsInfo;
use crate::http::tls::identity::ClientPolicy;
use crate::http::tls::stream::taken_session::{SessionParts, TakenSession};
use crate::http::tls::stream::traffic::{Traffic, TrafficRecord};

/// What a server agrees on. A session goes on only at a server that would have agreed on it.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// The cipher suites of the versions that it speaks.
    pub(crate) suites: Vec<SupportedCipherSuite>,
    /// Which clients it takes.
    pub(crate) policy: ClientPolicy,
}

/// A session, without its socket.
pub(super) struct SessionRecord {
    /// The number of the cipher suite.
    suite: u16,
    /// That of the server where it began.
    policy: Bytes,
    received: TrafficRecord,
    sent: TrafficRecord,
    info: TlsInfo,
    /// The beginning of a record of the client.
    sealed: Bytes,
}

record!(SessionRecord {
    suite,
    policy,
    received,
    sent,
    info,
    sealed,
});

impl SessionRecord {
    /// `sealed` is what waits for the rest of its record.
    pub(super) fn new(session: SessionParts, sealed: &[u8], terms: &Terms) -> Self {
        let SessionParts {
            suite,
            received,
            sent,
            info,
        } = session;
        Self {
            suite: suite.suite().into(),
            policy: Bytes::copy_from_slice(&terms.policy),
            received,
            sent,
            info,
            sealed: Bytes::copy_from_slice(sealed),
        }
    }

    /// The session, and what waits for the rest of its record. `None` if it is not valid, or if
    /// these are not the terms of a server that would have agreed on it.
    pub(super) fn session(self, terms: &Terms) -> Option<(TakenSession, Bytes)> {
        if self.policy != terms.policy[..] {
            return None;
        }
        let mut suites = terms.suites.iter().copied();
        let suite = suites.find(|suite| u16::from(suite.suite()) == self.suite)?;
        let received = Traffic::new(suite, self.received)?;
        let sent = Traffic::new(suite, self.sent)?;
        Some((TakenSession::new(received, sent, self.info), self.sealed))
    }
}

#[cfg(test)]
mod tests;
