//! What a server takes to speak TLS: one key for all models, and rustls on ring in all of them.
//!
//! Prefork and prefork_shared have this crate's own TLS: the keys of tickets are the master's, so
//! that a session is resumed on any worker. The opponents have tokio-rustls and one configuration
//! for all of their threads, with rustls's own ticketer in it, so that it is the same there.

use std::sync::Arc;

use prefork_server::Tls;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use tokio_rustls::TlsAcceptor;

use crate::support::identity::Identity;

impl Identity {
    /// Prefork's.
    pub(super) fn tls(&self) -> Tls {
        Tls::new()
            .certificate_pem(&self.certificate)
            .key_pem(&self.key)
    }

    /// The opponents'.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("it was made so");
        let mut config = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("the provider has suites for both")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate()], key)
            .expect("the key is the certificate's");
        config.ticketer = ring::Ticketer::new().expect("random bytes");
        TlsAcceptor::from(Arc::new(config))
    }
}
