//! Whose connection it is.

#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::sync::Arc;

use crate::address::{Address, Peer};
#[cfg(feature = "tls")]
use crate::http::info::tls::TlsInfo;
use crate::proxy::Forwarded;

/// The two ends of a connection, as the listener saw them, and what was learnt while it opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Who connected: the client, or a balancer before it.
    pub peer: Peer,
    /// The listener's address; for a wildcard listener the wildcard.
    pub local: Arc<Address>,
    /// Few connections have any of it.
    more: Option<Arc<More>>,
}

#[derive(Clone, Debug, Default)]
struct More {
    forwarded: Option<Forwarded>,
    #[cfg(feature = "tls")]
    tls: Option<TlsInfo>,
}

impl ConnectionInfo {
    /// What an acceptor tells about a connection.
    #[must_use]
    pub fn new(peer: Peer, local: impl Into<Arc<Address>>) -> Self {
        Self {
            peer,
            local: local.into(),
            more: None,
        }
    }

    /// The client: whom a trusted balancer named in its PROXY header (see
    /// [`Prefork::proxy_protocol`](crate::Prefork::proxy_protocol)), and else who connected.
    #[must_use]
    pub fn client(&self) -> Peer {
        match self.forwarded() {
            Some(forwarded) => Peer::Tcp(forwarded.peer),
            None => self.peer,
        }
    }

    /// What a trusted balancer said in its PROXY header, if there was one and it named the client.
    #[must_use]
    pub fn forwarded(&self) -> Option<&Forwarded> {
        self.more.as_deref()?.forwarded.as_ref()
    }

    /// What was agreed on in the TLS handshake; `None` if TLS is not spoken.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(&self) -> Option<&TlsInfo> {
        self.more.as_deref()?.tls.as_ref()
    }

    #[cfg(feature = "tls")]
    pub(crate) fn set_tls(&mut self, tls: TlsInfo) {
        let more = Arc::make_mut(self.more.get_or_insert_default());
        more.tls = Some(tls);
    }

    pub(crate) fn set_forwarded(&mut self, forwarded: Forwarded) {
        let more = Arc::make_mut(self.more.get_or_insert_default());
        more.forwarded = Some(forwarded);
    }
}
