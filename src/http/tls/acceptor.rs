//! TLS on accepted sockets: the certificate and its key as rustls takes them.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};

use crate::codec;
use crate::error::Error;
use crate::http::conn::socket::Socket;
use crate::http::options::Http;
use crate::http::tls::alpn;
use crate::http::tls::config::Tls;
use crate::http::tls::identity::{self, Identity};
use crate::http::tls::secure::Secure;
use crate::http::tls::tickets::Tickets;
use crate::keyring::Keyring;
use crate::stats::WorkerStats;

impl Tls {
    /// Reads and tries everything, and logs what is doubtful. What was read is written down for
    /// [`use_files`](Self::use_files).
    pub(crate) fn read_files(&self) -> Result<Vec<u8>, Error> {
        let read = self.read().map_err(Error::Config)?;
        let identity = Identity::read(&read).map_err(Error::Config)?;
        for doubt in identity.doubts() {
            tracing::warn!("{doubt}");
        }
        Ok(codec::to_bytes(&read.files()))
    }

    /// Reads everything, to serve `http` with. `keys` tells the keys of tickets as of now, and
    /// `stats` is where handshakes are counted.
    pub(crate) fn acceptor(
        &self,
        http: &Http,
        keys: impl Fn() -> Option<Keyring> + Send + Sync + 'static,
        stats: WorkerStats,
    ) -> Result<Acceptor, Error> {
        let identity = Identity::read(self).map_err(Error::Config)?;
        let tickets = Tickets::new(keys, self.ticket_lifetime, identity.client_policy());
        let builder = ServerConfig::builder_with_provider(identity::provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("the provider has suites for both versions");
        let mut config = builder
            .with_client_cert_verifier(identity.client_verifier)
            .with_cert_resolver(Arc::new(identity.certified_key));
        config.alpn_protocols = alpn::offered(http);
        config.ticketer = Arc::new(tickets);
        // A session that one worker remembers is of no use on the others.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Acceptor {
            config: Arc::new(config),
            stats,
        })
    }
}

/// Makes streams private.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    config: Arc<ServerConfig>,
    stats: WorkerStats,
}

impl Acceptor {
    /// The stream within this one; the handshake is still to be done.
    pub(crate) fn accept<I: Socket>(&self, io: I) -> Secure<I> {
        Secure::new(io, Arc::clone(&self.config), self.stats.clone())
    }
}
