//! The certificate of a bench's servers.

use std::path::PathBuf;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::process::Trouble;

/// The files of a server within TLS: a certificate for `localhost`, signed by its own key: ECDSA on
/// P-256, as most sites have it.
pub(crate) struct Pem {
    _dir: TempDir,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// What clients have to believe.
    pub(crate) trusted: CertificateDer<'static>,
}

impl Pem {
    pub(crate) fn new() -> Result<Self, Trouble> {
        let made: CertifiedKey<KeyPair> =
            generate_simple_self_signed(["localhost".to_owned()]).expect("random bytes");
        let dir = tempfile::tempdir()?;
        let certificate = dir.path().join("certificate.pem");
        let key = dir.path().join("key.pem");
        std::fs::write(&certificate, made.cert.pem())?;
        std::fs::write(&key, made.signing_key.serialize_pem())?;
        Ok(Self {
            _dir: dir,
            certificate,
            key,
            trusted: made.cert.der().clone(),
        })
    }
}
