//! TLS on accepted sockets: makes the configuration of rustls from the user's options.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;

use crate::codec;
use crate::error::Error;
use crate::http::conn::socket::Socket;
use crate::http::options::Http;
use crate::http::tls::alpn;
use crate::http::tls::config::Tls;
use crate::http::tls::identity::Identity;
use crate::http::tls::secure::Secure;
use crate::http::tls::tickets::Tickets;
use crate::keyring::Keyring;
use crate::stats::WorkerStats;

/// What a master needs of the files.
pub(crate) struct ReadFiles {
    /// The contents, encoded for [`Tls::use_files`].
    pub(crate) contents: Vec<u8>,
    /// The first name of each certificate, and the second after 1970 at which it ends.
    pub(crate) ends: Vec<(String, u64)>,
}

impl Tls {
    /// Reads and checks all files, and logs warnings.
    pub(crate) fn read_files(&self) -> Result<ReadFiles, Error> {
        let mut read = self.read().map_err(Error::Config)?;
        let identity = Identity::read(&read).map_err(Error::Config)?;
        for warning in identity.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(ReadFiles {
            contents: codec::to_bytes(&read.files()),
            ends: identity.certificates.ends(),
        })
    }

    /// Reads all files and makes the acceptor. `http` decides which protocols the server offers,
    /// `keys` returns the current keys of tickets, and handshakes are counted in `stats`.
    pub(crate) fn acceptor(
        &self,
        http: &Http,
        keys: impl Fn() -> Option<Keyring> + Send + Sync + 'static,
        stats: WorkerStats,
    ) -> Result<Acceptor, Error> {
        let identity = Identity::read(self).map_err(Error::Config)?;
        let tickets = Tickets::new(keys, self.ticket_lifetime, identity.client_policy());
        let mut config = ServerConfig::builder_with_provider(identity.provider)
            .with_protocol_versions(&identity.versions)
            .expect("the identity was checked")
            .with_client_cert_verifier(identity.client_verifier)
            .with_cert_resolver(Arc::new(identity.certificates));
        config.alpn_protocols = alpn::offered(http);
        config.ticketer = Arc::new(tickets);
        // The other workers could not use a session that one worker stores.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Acceptor {
            config: Arc::new(config),
            stats,
        })
    }
}

/// Wraps accepted streams in TLS.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    config: Arc<ServerConfig>,
    stats: WorkerStats,
}

impl Acceptor {
    /// The TLS stream on `io`. [`Secure`] does the handshake later.
    pub(crate) fn accept<I: Socket>(&self, io: I) -> Secure<I> {
        Secure::new(io, Arc::clone(&self.config), self.stats.clone())
    }
}
