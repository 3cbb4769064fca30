//! The server's certificate and key, and the CAs of client certificates, checked before use.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, Error, InconsistentKeys, RootCertStore, SupportedCipherSuite,
    SupportedProtocolVersion,
};

use crate::http::info::tls::TlsVersion;
use crate::http::tls::certificate::Certificate;
use crate::http::tls::certificates::Certificates;
use crate::http::tls::config::{ClientAuth, Tls};
use crate::http::tls::crypto::{digest, provider, provider_with};
use crate::http::tls::ocsp;
use crate::http::tls::pem::{Kind, Pem, Source};
use crate::http::tls::validity;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A digest of the client CAs and of [`ClientAuth`]. A ticket is valid only under the same policy.
pub(crate) type ClientPolicy = [u8; digest::SHA256_OUTPUT_LEN];

/// The contents of the files that `Tls` names, parsed and checked.
pub(crate) struct Identity {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    pub(crate) certificates: Certificates,
    pub(crate) client_verifier: Arc<dyn ClientCertVerifier>,
    policy: ClientPolicy,
    warnings: Vec<String>,
}

impl Identity {
    /// Reads all files that `tls` names. An error is one line that says how to correct it.
    pub(crate) fn read(tls: &Tls) -> Result<Self, String> {
        let provider = provider_with(&tls.ciphers)?;
        let versions = versions(tls.min_version, &provider)?;
        let mut warnings = Vec::new();
        let all = iter::once(&tls.first).chain(&tls.others);
        let certified = all.map(|it| certified_key(it, &mut warnings));
        let certified = certified.collect::<Result<Vec<_>, _>>()?;
        warnings.extend(suites_warning(&provider, &versions, &certified)?);
        let certificates = Certificates::new(certified);
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
            provider,
            versions,
            certificates,
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

/// The versions from this one on for which the provider has a cipher suite.
fn versions(
    min: TlsVersion,
    provider: &CryptoProvider,
) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let lowest = match min {
        TlsVersion::Tls12 => vec![&TLS13, &TLS12],
        TlsVersion::Tls13 => vec![&TLS13],
    };
    let has_suite = |version: &&SupportedProtocolVersion| {
        let mut suites = provider.cipher_suites.iter();
        suites.any(|suite| suite.version() == *version)
    };
    let versions: Vec<_> = lowest.into_iter().filter(has_suite).collect();
    match versions.is_empty() {
        false => Ok(versions),
        true => Err(format!(
            "none of the cipher suites is for TLS {min}, which is the lowest version allowed; give \
             one whose name begins with TLS13_"
        )),
    }
}

/// In TLS 1.2 a cipher suite is for one kind of key. A warning if none is for a key of the server,
/// and an error if the server then cannot agree with any client.
fn suites_warning(
    provider: &CryptoProvider,
    versions: &[&SupportedProtocolVersion],
    certified: &[CertifiedKey],
) -> Result<Option<String>, String> {
    let fits = provider.cipher_suites.iter().any(|suite| match suite {
        SupportedCipherSuite::Tls12(suite) => {
            let mut keys = certified.iter().map(|it| &it.key);
            keys.any(|key| key.choose_scheme(suite.sign).is_some())
        }
        SupportedCipherSuite::Tls13(_) => false,
    });
    if fits || !versions.contains(&&TLS12) {
        return Ok(None);
    }
    let why = "none of the cipher suites for TLS 1.2 is for the kind of key of a certificate: a \
               name has ECDSA or RSA in it";
    match versions.contains(&&TLS13) {
        true => Ok(Some(format!("{why}; only clients with TLS 1.3 are served"))),
        false => Err(format!(
            "{why}; give one for that kind, or one whose name begins with TLS13_"
        )),
    }
}

/// Reads a certificate, its key and its OCSP response, and checks that they belong together.
fn certified_key(from: &Certificate, warnings: &mut Vec<String>) -> Result<CertifiedKey, String> {
    let certificate = Pem::read(
        Kind::Certificate,
        from.certificate.as_ref().ok_or(
            "TLS without a certificate; give one by Tls::certificate_file or certificate_pem",
        )?,
    )?;
    let key = Pem::read(
        Kind::Key,
        from.key
            .as_ref()
            .ok_or("TLS without a private key; give one by Tls::key_file or key_pem")?,
    )?;
    let mut certified = matched(&certificate, &key)?;
    if let Some(source) = &from.ocsp {
        let response = Pem::read(Kind::Ocsp, source)?;
        ocsp::check(response.bytes()).map_err(|why| format!("{response} {why}"))?;
        warnings.extend(stale_warning(&response));
        certified.ocsp = Some(response.bytes().to_vec());
    }
    warnings.extend(time_warning(&certified, &certificate));
    if key.is_open_to_others() {
        warnings.push(format!(
            "{key} can be read or written by every user; `chmod o= FILE` ends that"
        ));
    }
    Ok(certified)
}

/// The certificate with its key.
fn matched(certificate: &Pem, key: &Pem) -> Result<CertifiedKey, String> {
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
            "{certificate} has a certificate that cannot be used: {error}; it must be an X.509 \
             certificate of version 3"
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

/// A warning if there is a newer OCSP response than this one. Clients ignore or refuse it.
fn stale_warning(response: &Pem) -> Option<String> {
    let next_update = validity::next_update(response.bytes())?;
    let since = UnixTime::now().as_secs().checked_sub(next_update)?;
    let days = since / DAY.as_secs();
    Some(format!(
        "{response} was to be replaced {days} days ago; fetch a new one, then reload"
    ))
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
