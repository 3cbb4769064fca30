//! The flags for HTTPS.

use std::{iter, path::PathBuf};

use clap::Args;
use prefork_server::{Address, Certificate, ClientAuth, Tls, TlsVersion};

use super::origin::Known;
use super::value;

/// The ids of options, and of the option that each of them needs.
const NEEDS: [(&str, &str); 8] = [
    ("tls_cert", "tls_key"),
    ("tls_key", "tls_cert"),
    ("tls_ocsp", "tls_cert"),
    ("tls_min_version", "tls_cert"),
    ("tls_ciphers", "tls_cert"),
    ("tls_client_ca", "tls_cert"),
    ("tls_client_auth", "tls_client_ca"),
    ("redirect_to_https", "tls_cert"),
];

/// Options of HTTPS and of client certificates.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Secure {
    /// Serve HTTPS with the certificate in this PEM file, followed by its chain. HUP reads the file
    /// again. If repeated, a client gets the certificate with the name that it asks for (SNI), or
    /// else the first
    #[arg(long, value_name = "FILE", env = "PREFORK_TLS_CERT")]
    #[arg(value_delimiter = ',')]
    tls_cert: Vec<PathBuf>,

    /// PEM file with the private key of the certificate. Repeat it as often as --tls-cert, in the
    /// same order
    #[arg(long, value_name = "FILE", env = "PREFORK_TLS_KEY")]
    #[arg(value_delimiter = ',')]
    tls_key: Vec<PathBuf>,

    /// DER file with the OCSP response to the certificate, which clients get in the handshake. HUP
    /// reads the file again. Repeat it as often as --tls-cert, in the same order; none is for a
    /// certificate without a response
    #[arg(long, value_name = "FILE", env = "PREFORK_TLS_OCSP")]
    #[arg(value_delimiter = ',')]
    tls_ocsp: Vec<PathBuf>,

    /// The lowest version of TLS
    #[arg(long, value_name = "VERSION", env = "PREFORK_TLS_MIN_VERSION")]
    #[arg(default_value = "1.2")]
    #[arg(value_parser = value::named::<TlsVersion>(TlsVersion::NAMES))]
    tls_min_version: TlsVersion,

    /// Use only these cipher suites, by their IANA names, such as TLS13_AES_128_GCM_SHA256, with
    /// commas between them [default: all that rustls has]
    #[arg(long, value_name = "LIST", env = "PREFORK_TLS_CIPHERS")]
    #[arg(value_delimiter = ',', value_parser = value::cipher)]
    tls_ciphers: Vec<String>,

    /// Ask clients for a certificate that a CA in this PEM file has signed
    #[arg(long, value_name = "FILE", env = "PREFORK_TLS_CLIENT_CA")]
    tls_client_ca: Option<PathBuf>,

    /// required: refuse clients that have no certificate. optional: serve them too [default:
    /// required]
    #[arg(long, value_name = "MODE", env = "PREFORK_TLS_CLIENT_AUTH")]
    #[arg(value_parser = value::named::<ClientAuth>(ClientAuth::NAMES))]
    tls_client_auth: Option<ClientAuth>,

    /// Also listen on this address, speak HTTP without TLS there, and redirect each request to
    /// https (308); may be given several times
    #[arg(long, value_name = "ADDR", env = "PREFORK_REDIRECT_TO_HTTPS")]
    #[arg(value_delimiter = ',', value_parser = value::address)]
    pub(crate) redirect_to_https: Vec<Address>,
}

impl Secure {
    /// Fails if an option is given without the one that it needs. The error names what was given,
    /// also if that is a variable or a key of the file. The error of clap's `requires` does not.
    pub(super) fn check_needs(known: &Known<'_>) -> Result<(), String> {
        let given = |id: &str| {
            let mut options = known.command.get_arguments();
            options.find(|option| option.get_id() == id && known.is_given(option))
        };
        for (id, needed) in NEEDS {
            if let (Some(option), None) = (given(id), given(needed)) {
                let needed = needed.replace('_', "-");
                return Err(format!("{} needs --{needed}", known.name(option)));
            }
        }
        Ok(())
    }

    /// Fails unless each certificate has what belongs to it. The error says what is missing.
    pub(super) fn check_pairs(&self) -> Result<(), &'static str> {
        let count = self.tls_cert.len();
        if self.tls_key.len() != count {
            return Err(
                "--tls-cert and --tls-key must be given equally often: one key for each \
                 certificate, in the same order",
            );
        }
        if !self.tls_ocsp.is_empty() && self.tls_ocsp.len() != count {
            return Err(
                "--tls-cert and --tls-ocsp must be given equally often: one OCSP response, or \
                 none, for each certificate, in the same order",
            );
        }
        Ok(())
    }

    /// What to serve with; `None` is HTTP in the open.
    pub(crate) fn tls(&self) -> Option<Tls> {
        let responses = self.tls_ocsp.iter().map(|file| match file.to_str() {
            Some("none") => None,
            _ => Some(file),
        });
        let pairs = self.tls_cert.iter().zip(&self.tls_key);
        let mut all = pairs.zip(responses.chain(iter::repeat(None)));
        let ((certificate, key), response) = all.next()?;
        let mut tls = Tls::new()
            .certificate_file(certificate)
            .key_file(key)
            .min_version(self.tls_min_version)
            .ciphers(&self.tls_ciphers);
        if let Some(file) = response {
            tls = tls.ocsp_file(file);
        }
        for ((certificate, key), response) in all {
            let certificate = Certificate::files(certificate, key);
            tls = tls.certificate(match response {
                Some(file) => certificate.ocsp_file(file),
                None => certificate,
            });
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
