//! The flags for HTTPS.

use std::path::PathBuf;

use clap::Args;
use prefork_server::{Certificate, ClientAuth, Tls, TlsVersion};

use super::value;

/// Options of HTTPS and of client certificates.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Secure {
    /// Serve HTTPS with the certificate in this PEM file, followed by its chain. HUP reads the file
    /// again. If repeated, a client gets the certificate with the name that it asks for (SNI), or
    /// else the first
    #[arg(
        long,
        value_name = "FILE",
        env = "PREFORK_TLS_CERT",
        requires = "tls_key"
    )]
    tls_cert: Vec<PathBuf>,

    /// PEM file with the private key of the certificate. Repeat it as often as --tls-cert, in the
    /// same order
    #[arg(
        long,
        value_name = "FILE",
        env = "PREFORK_TLS_KEY",
        requires = "tls_cert"
    )]
    tls_key: Vec<PathBuf>,

    /// The lowest version of TLS
    #[arg(
        long,
        value_name = "VERSION",
        env = "PREFORK_TLS_MIN_VERSION",
        default_value = "1.2"
    )]
    #[arg(value_parser = value::named::<TlsVersion>(TlsVersion::NAMES))]
    tls_min_version: TlsVersion,

    /// Use only these cipher suites, by their IANA names, such as TLS13_AES_128_GCM_SHA256
    /// [default: all that rustls has]
    #[arg(
        long,
        value_name = "LIST",
        env = "PREFORK_TLS_CIPHERS",
        value_delimiter = ',',
        requires = "tls_cert"
    )]
    tls_ciphers: Vec<String>,

    /// Ask clients for a certificate that a CA in this PEM file has signed
    #[arg(
        long,
        value_name = "FILE",
        env = "PREFORK_TLS_CLIENT_CA",
        requires = "tls_cert"
    )]
    tls_client_ca: Option<PathBuf>,

    /// required: refuse clients that have no certificate. optional: serve them too [default:
    /// required]
    #[arg(
        long,
        value_name = "MODE",
        env = "PREFORK_TLS_CLIENT_AUTH",
        requires = "tls_client_ca"
    )]
    #[arg(value_parser = value::named::<ClientAuth>(ClientAuth::NAMES))]
    tls_client_auth: Option<ClientAuth>,
}

impl Secure {
    /// Whether each certificate has a key.
    pub(super) fn is_paired(&self) -> bool {
        self.tls_cert.len() == self.tls_key.len()
    }

    /// What to serve with; `None` is HTTP in the open.
    pub(crate) fn tls(&self) -> Option<Tls> {
        let mut pairs = self.tls_cert.iter().zip(&self.tls_key);
        let (certificate, key) = pairs.next()?;
        let mut tls = Tls::new()
            .certificate_file(certificate)
            .key_file(key)
            .min_version(self.tls_min_version)
            .ciphers(&self.tls_ciphers);
        for (certificate, key) in pairs {
            tls = tls.certificate(Certificate::files(certificate, key));
        }
        if let Some(ca) = &self.tls_client_ca {
            tls = tls.client_ca_file(ca);
        }
        if let Some(auth) = self.tls_client_auth {
            tls = tls.client_auth(auth);
        }
        Some(tls)
    }
}
