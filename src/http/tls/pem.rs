//! Certificates and keys as text (RFC 7468), from files or from memory. Every error is one line
//! that names the file, the trouble and a way out.

#[cfg(test)]
mod fuzz;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The CAs of a whole operating system take a quarter of a megabyte.
const SIZE_MAX: u64 = 16 << 20;

/// Others may read or write (inode(7)).
const OTHERS: u32 = 0o006;

/// Where something is to be read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    /// A file as it was when it was read.
    Read(PathBuf, Arc<[u8]>),
    Memory(Arc<[u8]>),
}

/// What it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Certificate,
    Key,
    ClientCa,
}

/// Something that was read.
pub(crate) struct Pem {
    kind: Kind,
    source: Source,
}

impl Source {
    pub(crate) fn memory(bytes: &[u8]) -> Self {
        Self::Memory(bytes.into())
    }

    /// The same, with what is in the file now.
    pub(crate) fn read(&self, kind: Kind) -> Result<Self, String> {
        let Self::File(path) = self else {
            return Ok(self.clone());
        };
        match read(path) {
            Ok(bytes) => Ok(Self::Read(path.clone(), bytes.into())),
            Err(error) => {
                let way_out = match error.kind() {
                    io::ErrorKind::NotFound => "give the path of a PEM file",
                    io::ErrorKind::PermissionDenied => "let this user read it",
                    _ => "it has to be a PEM file",
                };
                let name = Name(kind, self);
                Err(format!("cannot read {name}: {error}; {way_out}"))
            }
        }
    }
}

/// A key may be in it.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::Read(path, _) => write!(f, "{path:?}"),
            Self::Memory(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

impl Pem {
    pub(crate) fn read(kind: Kind, source: &Source) -> Result<Self, String> {
        let source = source.read(kind)?;
        Ok(Self { kind, source })
    }

    /// All certificates in it, of which there is at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let certificates = CertificateDer::pem_slice_iter(self.bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("{self} is no well-formed PEM: {error}"))?;
        if !certificates.is_empty() {
            return Ok(certificates);
        }
        Err(match self.holds_key() {
            true if self.kind == Kind::Certificate => {
                format!("{self} holds a key and no certificate; are the two swapped?")
            }
            _ => self.lacks("certificate", "-----BEGIN CERTIFICATE-----", "x509"),
        })
    }

    /// The first key in it.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        if self.says("BEGIN ENCRYPTED PRIVATE KEY") || self.says("Proc-Type: 4,ENCRYPTED") {
            return Err(format!(
                "{self} is encrypted, and nobody is there to be asked for its passphrase; \
                 `openssl pkey -in FILE -out PLAIN` decrypts it"
            ));
        }
        match PrivateKeyDer::pem_slice_iter(self.bytes()).next() {
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => Err(format!("{self} is no well-formed PEM: {error}")),
            None if self.says("BEGIN CERTIFICATE") => Err(format!(
                "{self} holds a certificate and no key; are the two swapped?"
            )),
            None => Err(self.lacks("private key", "-----BEGIN PRIVATE KEY-----", "pkey")),
        }
    }

    /// Whether others than its owner and its group may read it, or even write it.
    pub(crate) fn is_open_to_others(&self) -> bool {
        let Source::Read(path, _) = &self.source else {
            return false;
        };
        std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & OTHERS != 0)
    }

    fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Read(_, bytes) | Source::Memory(bytes) => bytes,
            Source::File(_) => &[],
        }
    }

    fn holds_key(&self) -> bool {
        PrivateKeyDer::from_pem_slice(self.bytes()).is_ok()
            || self.says("BEGIN ENCRYPTED PRIVATE KEY")
    }

    fn says(&self, text: &str) -> bool {
        let text = text.as_bytes();
        self.bytes().windows(text.len()).any(|part| part == text)
    }

    fn lacks(&self, what: &str, head: &str, command: &str) -> String {
        // As DER (X.690), both are a sequence.
        if self.bytes().first() == Some(&0x30) {
            return format!(
                "{self} is DER and not PEM; `openssl {command} -inform DER -in FILE -out PEM` \
                 converts it"
            );
        }
        format!("{self} holds no {what}; it has to have a section `{head}`")
    }
}

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Name(self.kind, &self.source).fmt(f)
    }
}

/// What a source is called in messages.
struct Name<'a>(Kind, &'a Source);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, source) = self;
        let what = match kind {
            Kind::Certificate => "certificate",
            Kind::Key => "key",
            Kind::ClientCa => "client CA",
        };
        match source {
            Source::File(path) | Source::Read(path, _) => {
                write!(f, "the {what} file {}", path.display())
            }
            Source::Memory(_) => write!(f, "the {what} from memory"),
        }
    }
}

fn read(path: &PathBuf) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(SIZE_MAX + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        ..=SIZE_MAX => Ok(bytes),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}
