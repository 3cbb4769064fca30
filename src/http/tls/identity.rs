//! Who the server is and whom it believes: what the files hold, tried before it is used.

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

/// What clients are held to, as bytes: a ticket is worth something only under the same.
pub(crate) type ClientPolicy = [u8; digest::SHA256_OUTPUT_LEN];

/// See the module's head.
pub(crate) struct Identity {
    pub(crate) certified_key: SingleCertAndKey,
    pub(crate) client_verifier: Arc<dyn ClientCertVerifier>,
    policy: ClientPolicy,
    doubts: Vec<String>,
}

/// The cryptography: ring's.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Identity {
    /// Reads all that `tls` names. An error is one line that says what to do.
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
        let mut doubts: Vec<_> = doubtful_time(&certified_key, &certificate)
            .into_iter()
            .collect();
        if key.is_open_to_others() {
            doubts.push(format!(
                "{key} can be read or written by every user; `chmod o= FILE` ends that"
            ));
        }
        let (client_verifier, policy) = match (&tls.client_ca, tls.client_auth) {
            (Some(source), auth) => believe(source, auth.unwrap_or(ClientAuth::Required))?,
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
            doubts,
        })
    }

    /// What would work and is probably not meant.
    pub(crate) fn doubts(&self) -> &[String] {
        &self.doubts
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
        // A kind of key that does not tell.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(Error::InconsistentKeys(_)) => {
            let way_out = match belongs_to_another(&certified) {
                Some(number) => format!("it belongs to the {number}. in it, which has to be first"),
                None => "give the key that this certificate was made with".into(),
            };
            Err(format!(
                "{key} does not belong to the certificate in {certificate}; {way_out}"
            ))
        }
        Err(error) => Err(format!(
            "{certificate} holds a certificate that cannot be used: {error}"
        )),
    }
}

/// Which other of the certificates the key belongs to, counted from 1.
fn belongs_to_another(certified: &CertifiedKey) -> Option<usize> {
    let key = certified.key.public_key()?;
    let its = |certificate: &CertificateDer<'_>| {
        ParsedCertificate::try_from(certificate)
            .is_ok_and(|certificate| certificate.subject_public_key_info() == key)
    };
    certified.cert.iter().position(its).map(|at| at + 1)
}

/// Clients will refuse it; the operator may know, or be about to set the clock right.
fn doubtful_time(certified: &CertifiedKey, certificate: &Pem) -> Option<String> {
    let own = ParsedCertificate::try_from(certified.end_entity_cert().ok()?).ok()?;
    let now = UnixTime::now();
    // Nobody has signed it that is believed here, which is not the question. The time is looked at
    // before that.
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
                "{certificate} holds a certificate that expired {days} days ago; renew it, then \
                 reload"
            ))
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before, ..
        })) => {
            let days = days(now, not_before);
            Some(format!(
                "{certificate} holds a certificate that becomes valid in {days} days; is the clock \
                 right?"
            ))
        }
        _ => None,
    }
}

/// Who believes the clients whose certificate one of these CAs has signed.
fn believe(
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
            format!("{pem}: certificate {number} in it cannot be believed: {error}")
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
    let policy = policy.as_ref().try_into().expect("SHA-256 is so long");
    Ok((verifier, policy))
}

#[cfg(test)]
mod tests;
