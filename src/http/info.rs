//! The addresses of a connection, and facts about its client.

#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::sync::Arc;

use crate::address::{Address, Peer};
#[cfg(feature = "tls")]
use crate::http::info::tls::TlsInfo;
use crate::proxy::Forwarded;

/// The two addresses of a connection, as the listener saw them, and what the server learned about
/// the client while the connection opened.
///
/// ```
/// use prefork_server::{Address, ConnectionInfo, Peer};
///
/// /// Whether the client is on this machine.
/// fn is_local(connection: &ConnectionInfo) -> bool {
///     match connection.client() {
///         Peer::Tcp(address) => address.ip().is_loopback(),
///         _ => true,
///     }
/// }
///
/// // A handler has it: `request.body().connection()`.
/// let address: Address = "[::]:8080".parse()?;
/// let peer = Peer::Tcp("[2001:db8::7]:40312".parse()?);
/// assert!(!is_local(&ConnectionInfo::new(peer, address)));
/// # Ok::<(), prefork_server::BoxError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The address that connected: the client, or a load balancer before it.
    pub peer: Peer,
    /// The address of the listener. For a wildcard listener it is the wildcard.
    pub local: Arc<Address>,
    /// Boxed, because few connections have any of it.
    extra: Option<Arc<Extra>>,
}

#[derive(Clone, Debug, Default)]
struct Extra {
    forwarded: Option<Forwarded>,
    #[cfg(feature = "tls")]
    tls: Option<TlsInfo>,
}

impl ConnectionInfo {
    /// What an acceptor knows about a new connection.
    #[must_use]
    pub fn new(peer: Peer, local: impl Into<Arc<Address>>) -> Self {
        Self {
            peer,
            local: local.into(),
            extra: None,
        }
    }

    /// The client: the address in the PROXY header of a trusted load balancer (see
    /// [`Prefork::proxy_protocol`](crate::Prefork::proxy_protocol)), or else the address that
    /// connected.
    #[must_use]
    pub fn client(&self) -> Peer {
        match self.forwarded() {
            Some(forwarded) => Peer::Tcp(forwarded.peer),
            None => self.peer,
        }
    }

    /// What a trusted load balancer wrote into its PROXY header, if it sent one that names the
    /// client.
    #[must_use]
    pub fn forwarded(&self) -> Option<&Forwarded> {
        self.extra.as_deref()?.forwarded.as_ref()
    }

    /// What the TLS handshake agreed on. `None` if the connection does not use TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(&self) -> Option<&TlsInfo> {
        self.extra.as_deref()?.tls.as_ref()
    }

    #[cfg(feature = "tls")]
    pub(crate) fn set_tls(&mut self, tls: TlsInfo) {
        let extra = Arc::make_mut(self.extra.get_or_insert_default());
        extra.tls = Some(tls);
    }

    pub(crate) fn set_forwarded(&mut self, forwarded: Forwarded) {
        let extra = Arc::make_mut(self.extra.get_or_insert_default());
        extra.forwarded = Some(forwarded);
    }
}
