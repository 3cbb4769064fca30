//! TLS on accepted sockets: makes the configuration of rustls from the user's options.

use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;

use crate::codec;
use crate::error::Error;
use crate::http::conn::handover::{HandoverFuture, HandoverTarget};
use crate::http::conn::socket::Socket;
use crate::http::options::Http;
use crate::http::tls::alpn;
use crate::http::tls::config::Tls;
use crate::http::tls::identity::Identity;
use crate::http::tls::learned::SecretsLog;
use crate::http::tls::secure::Secure;
use crate::http::tls::stream::Terms;
use crate::http::tls::tickets::Tickets;
use crate::keyring::Keyring;
use crate::moved::Moved;
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

    /// The same with contents that were read before.
    pub(crate) fn read_contents(&self, contents: &[u8]) -> Result<ReadFiles, Error> {
        let mut tls = self.clone();
        tls.use_files(contents);
        tls.read_files()
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
        let policy = identity.client_policy();
        let tickets = Tickets::new(keys, self.ticket_lifetime, policy);
        let suites = identity.provider.cipher_suites.iter().copied();
        let suites = suites.filter(|suite| identity.versions.contains(&suite.version()));
        let suites = suites.collect();
        let mut config = ServerConfig::builder_with_provider(identity.provider)
            .with_protocol_versions(&identity.versions)
            .expect("the identity was checked")
            .with_client_cert_verifier(identity.client_verifier)
            .with_cert_resolver(Arc::new(identity.certificates));
        config.alpn_protocols = alpn::offered(http);
        config.ticketer = Arc::new(tickets);
        // The other workers could not use a session that one worker stores.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // For connections that move to another server.
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(SecretsLog);
        Ok(Acceptor {
            config: Arc::new(config),
            terms: Arc::new(Terms { suites, policy }),
            stats,
        })
    }
}

/// Wraps accepted streams in TLS.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    config: Arc<ServerConfig>,
    terms: Arc<Terms>,
    stats: WorkerStats,
}

impl Acceptor {
    /// The TLS stream on `io`. [`Secure`] does the handshake later, unless another server has done
    /// it.
    pub(crate) fn accept<I: Socket>(&self, mut io: I) -> Secure<I> {
        match io.take_tls() {
            Some(moved) => Secure::attach(io, moved, &self.terms, self.stats.clone()),
            None => Secure::new(io, Arc::clone(&self.config), self.stats.clone()),
        }
    }

    /// Hands over sockets to this target, with their sessions.
    pub(crate) fn handover_target<I: Socket>(
        &self,
        below: Rc<dyn HandoverTarget<I>>,
    ) -> Rc<dyn HandoverTarget<Secure<I>>> {
        let acceptor = self.clone();
        Rc::new(WithSession { acceptor, below })
    }
}

struct WithSession<I> {
    acceptor: Acceptor,
    below: Rc<dyn HandoverTarget<I>>,
}

impl<I: Socket> HandoverTarget<Secure<I>> for WithSession<I> {
    fn hand_over(self: Rc<Self>, secure: Secure<I>, moved: Moved) -> HandoverFuture<Secure<I>> {
        let (io, moved) = match secure.detach(moved, &self.acceptor.terms) {
            Ok(Some(detached)) => detached,
            Ok(None) => {
                tracing::debug!("TLS session could not be handed over; the connection is closed");
                return Box::pin(ready(Ok(())));
            }
            Err(secure) => return Box::pin(ready(Err(secure))),
        };
        let handed_over = Rc::clone(&self.below).hand_over(io, moved);
        Box::pin(async move { handed_over.await.map_err(|io| self.acceptor.accept(io)) })
    }
}
