//! The certificate of a server, and its key.

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};

/// A certificate for `localhost`, signed by its own key: ECDSA on P-256, as most sites have it.
/// Both are PEM.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let made: CertifiedKey<KeyPair> =
            generate_simple_self_signed(["localhost".to_owned()]).expect("random bytes");
        Self {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }

    /// What clients have to believe.
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("it was made so")
    }
}
