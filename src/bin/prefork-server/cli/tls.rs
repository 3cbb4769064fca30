//! The flags for HTTPS.

use std::path::PathBuf;

use clap::Args;
use prefork_server::{ClientAuth, Tls};

use super::value;

/// Options of HTTPS and of client certificates.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Secure {
    /// Serve HTTPS with the certificate in this PEM file, followed by its chain. HUP reads the file
    /// again
    #[arg(
        long,
        value_name = "FILE",
        env = "PREFORK_TLS_CERT",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,

    /// PEM file with the private key of the certificate
    #[arg(
        long,
        value_name = "FILE",
        env = "PREFORK_TLS_KEY",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,

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
    /// What to serve with; `None` is HTTP in the open.
    pub(crate) fn tls(&self) -> Option<Tls> {
        let certificate = self.tls_cert.as_ref()?;
        let key = self.tls_key.as_ref()?;
        let mut tls = Tls::new().certificate_file(certificate).key_file(key);
        if let Some(ca) = &self.tls_client_ca {
            tls = tls.client_ca_file(ca);
        }
        if let Some(auth) = self.tls_client_auth {
            tls = tls.client_auth(auth);
        }
        Some(tls)
    }
}
