//! The provider of cryptography: aws-lc with the feature `aws-lc-rs`, else ring. Both have the same
//! interface.

use std::sync::Arc;

#[cfg(feature = "aws-lc-rs")]
pub(crate) use aws_lc_rs::{aead, digest, rand};
#[cfg(not(feature = "aws-lc-rs"))]
pub(crate) use ring::{aead, digest, rand};
use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
#[cfg(feature = "aws-lc-rs")]
use rustls::crypto::aws_lc_rs::default_provider;
#[cfg(not(feature = "aws-lc-rs"))]
use rustls::crypto::ring::default_provider;

/// The provider, with all its cipher suites.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// The provider with these cipher suites only, by their names in the registry of IANA. An error
/// names the suites that there are.
pub(crate) fn provider_with(ciphers: &[String]) -> Result<Arc<CryptoProvider>, String> {
    let mut provider = default_provider();
    let name = |suite: &SupportedCipherSuite| suite.suite().as_str().unwrap_or_default();
    for cipher in ciphers {
        if !provider
            .cipher_suites
            .iter()
            .any(|suite| name(suite) == cipher)
        {
            let names: Vec<_> = provider.cipher_suites.iter().map(name).collect();
            let names = names.join(", ");
            return Err(format!(
                "`{cipher}` is no cipher suite of this server, which has {names}"
            ));
        }
    }
    if !ciphers.is_empty() {
        let chosen = |suite: &_| ciphers.iter().any(|cipher| cipher == name(suite));
        provider.cipher_suites.retain(chosen);
    }
    Ok(Arc::new(provider))
}

/// The cipher of a suite; `None` if this server has no such suite.
pub(crate) fn cipher(suite: SupportedCipherSuite) -> Option<&'static aead::Algorithm> {
    let name = suite.suite().as_str()?;
    let ciphers = [
        ("AES_128_GCM", &aead::AES_128_GCM),
        ("AES_256_GCM", &aead::AES_256_GCM),
        ("CHACHA20_POLY1305", &aead::CHACHA20_POLY1305),
    ];
    let (_, cipher) = ciphers.into_iter().find(|(part, _)| name.contains(part))?;
    Some(cipher)
}
