//! The server's certificate and key, and the CAs of client certificates, checked before use.

use std::sync::Arc;
use std::time::Duration;

use ring::digest;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};

use crate::http::tls::config::{ClientAuth, Tls};
use crate::http::tls::pem::{Kind, Pem, Source};

const DAY: Duration = Duration::from_hours(24);

/// A digest of the client CAs and of [`ClientAuth`]. A ticket is valid only under the same policy.
pub(crate) type ClientPolicy = [u8; digest::SHA256_OUTPUT_LEN];

/// The contents of the files that `Tls` names, parsed and checked.
pub(crate) struct Identity {
    pub(crate) certified_key: SingleCertAndKey,
    pub(crate) client_verifier: Arc<dyn ClientCertVerifier>,
    policy: ClientPolicy,
    warnings: Vec<String>,
}

/// The provider of cryptography: ring.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Identity {
    /// Reads all files that `tls` names. An error is one line that says how to correct it.
    pub(crate) fn read(tls: &Tls) -> Result<Self, String> {
        let certificate = Pem::read(
            Kind::Certificate,
            tls.certificate.as_ref().ok_or(
                "TLS without a certificate; give one by Tls::certificate_file or certificate_pem",
            )?,
        )?;
        let key = Pem::read(
            Kind::Key,
            tls.key
                .as_ref()
                .ok_or("TLS without a private key; give one by Tls::key_file or key_pem")?,
        )?;
        let certified_key = certified_key(&certificate, &key)?;
        let mut warnings: Vec<_> = time_warning(&certified_key, &certificate)
            .into_iter()
            .collect();
        if key.is_open_to_others() {
            warnings.push(format!(
                "{key} can be read or written by every user; `chmod o= FILE` ends that"
            ));
        }
        let (client_verifier, policy) = match (&tls.client_ca, tls.client_auth) {
            (Some(source), auth) => client_verifier(source, auth.unwrap_or(ClientAuth::Required))?,
            (None, None) => (
                WebPkiClientVerifier::no_client_auth(),
                ClientPolicy::default(),
            ),
            (None, Some(_)) => {
                return Err(
                    "client certificates cannot be verified without a CA; give one by \
                     Tls::client_ca_file or client_ca_pem"
                        .into(),
                );
            }
        };
        Ok(Self {
            certified_key: certified_key.into(),
            client_verifier,
            policy,
            warnings,
        })
    }

    /// Warnings about settings that work but are probably a mistake. One line each.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(crate) fn client_policy(&self) -> ClientPolicy {
        self.policy
    }
}

fn certified_key(certificate: &Pem, key: &Pem) -> Result<CertifiedKey, String> {
    let chain = certificate.certificates()?;
    let signing = provider()
        .key_provider
        .load_private_key(key.key()?)
        .map_err(|error| {
            format!(
                "{key} is of a kind that cannot be used: {error}; RSA from 2048 bits, ECDSA \
                 (P-256, P-384) and Ed25519 can"
            )
        })?;
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        // The public key of a key of this kind is not available.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(Error::InconsistentKeys(_)) => {
            let remedy = match matching_certificate(&certified) {
                Some(number) => {
                    format!("it belongs to certificate {number} in that file, which must be first")
                }
                None => "give the key that this certificate was made with".into(),
            };
            Err(format!(
                "{key} does not belong to the certificate in {certificate}; {remedy}"
            ))
        }
        Err(error) => Err(format!(
            "{certificate} has a certificate that cannot be used: {error}"
        )),
    }
}

/// The number of the certificate that the key belongs to, from 1.
fn matching_certificate(certified: &CertifiedKey) -> Option<usize> {
    let key = certified.key.public_key()?;
    let matches = |certificate: &CertificateDer<'_>| {
        ParsedCertificate::try_from(certificate)
            .is_ok_and(|certificate| certificate.subject_public_key_info() == key)
    };
    certified.cert.iter().position(matches).map(|at| at + 1)
}

/// A warning if the certificate has expired or is not valid yet. Clients will refuse it. It is no
/// error, because the operator may know that, or may be about to correct the clock.
fn time_warning(certified: &CertifiedKey, certificate: &Pem) -> Option<String> {
    let own = ParsedCertificate::try_from(certified.end_entity_cert().ok()?).ok()?;
    let now = UnixTime::now();
    // The verification always fails, because it trusts no CA. It checks the time before that.
    let verdict = verify_server_cert_signed_by_trust_anchor(
        &own,
        &RootCertStore::empty(),
        &[],
        now,
        provider().signature_verification_algorithms.all,
    );
    let days = |from: UnixTime, to: UnixTime| {
        let apart = Duration::from_secs(to.as_secs().saturating_sub(from.as_secs()));
        apart.as_secs() / DAY.as_secs()
    };
    match verdict {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            let days = days(not_after, now);
            Some(format!(
                "{certificate} has a certificate that expired {days} days ago; renew it, then \
                 reload"
            ))
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before, ..
        })) => {
            let days = days(now, not_before);
            Some(format!(
                "{certificate} has a certificate that becomes valid in {days} days; is the clock \
                 right?"
            ))
        }
        _ => None,
    }
}

/// The verifier that accepts client certificates signed by one of these CAs, and its policy.
fn client_verifier(
    source: &Source,
    auth: ClientAuth,
) -> Result<(Arc<dyn ClientCertVerifier>, ClientPolicy), String> {
    let pem = Pem::read(Kind::ClientCa, source)?;
    let mut roots = RootCertStore::empty();
    let mut policy = digest::Context::new(&digest::SHA256);
    policy.update(match auth {
        ClientAuth::Optional => b"optional",
        ClientAuth::Required => b"required",
    });
    for (at, certificate) in pem.certificates()?.into_iter().enumerate() {
        let number = at + 1;
        policy.update(digest::digest(&digest::SHA256, &certificate).as_ref());
        roots.add(certificate).map_err(|error| {
            format!("{pem}: certificate {number} in it cannot be trusted: {error}")
        })?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier = match auth {
        ClientAuth::Optional => verifier.allow_unauthenticated(),
        ClientAuth::Required => verifier,
    };
    let verifier = verifier
        .build()
        .map_err(|error| format!("{pem} cannot be used: {error}"))?;
    let policy = policy.finish();
    let policy = policy.as_ref().try_into().expect("the length of SHA-256");
    Ok((verifier, policy))
}

#[cfg(test)]
mod tests;
