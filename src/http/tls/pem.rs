//! Certificates and keys as text (RFC 7468), from files or from memory. Every error is one line
//! that names the file, the problem and a remedy.

#[cfg(test)]
mod fuzz;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use memchr::memmem;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The limit for the size of a file, in bytes. The CAs of a whole operating system are a quarter of
/// a megabyte.
const SIZE_MAX: u64 = 16 << 20;

/// U+FEFF in UTF-8. Some editors put it before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How the first line of a section begins.
const BEGIN: &[u8] = b"-----BEGIN ";

/// For the writer of a pipe, in milliseconds.
const WRITER_TIMEOUT: u16 = 1_000;

/// The mode bits by which all users may read or write a file (inode(7)).
const OTHERS: u32 = 0o006;

/// Where a certificate or a key comes from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    /// The contents of a file when it was read.
    Read(PathBuf, Arc<[u8]>),
    Memory(Arc<[u8]>),
}

/// The use of a source, which decides what it must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Certificate,
    Key,
    ClientCa,
    /// DER and not PEM.
    Ocsp,
}

/// A source that was read.
pub(crate) struct Pem {
    kind: Kind,
    source: Source,
}

impl Kind {
    /// The form of its contents.
    fn form(self) -> &'static str {
        match self {
            Self::Certificate | Self::Key | Self::ClientCa => "PEM",
            Self::Ocsp => "DER",
        }
    }
}

impl Source {
    pub(crate) fn memory(bytes: &[u8]) -> Self {
        Self::Memory(bytes.into())
    }

    /// The same source, with the current contents of the file.
    pub(crate) fn read(&self, kind: Kind) -> Result<Self, String> {
        let Self::File(path) = self else {
            return Ok(self.clone());
        };
        match read(path) {
            Ok(bytes) => Ok(Self::Read(path.clone(), bytes.into())),
            Err(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::NotFound => format!("give the path of a {} file", kind.form()),
                    io::ErrorKind::PermissionDenied => "let this user read it".into(),
                    _ => format!("it must be a {} file", kind.form()),
                };
                let name = Name(kind, self);
                Err(format!("cannot read {name}: {error}; {remedy}"))
            }
        }
    }
}

/// Shows the path or the length, not the contents, which may be a key.
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

    /// All certificates. An error if there is none.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let certificates = CertificateDer::pem_slice_iter(&self.text())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| self.malformed(&error))?;
        if !certificates.is_empty() {
            return Ok(certificates);
        }
        Err(match self.has_key() {
            true if self.kind == Kind::Certificate => {
                format!("{self} holds a key and no certificate; are the two swapped?")
            }
            _ => self.lacks("certificate", "-----BEGIN CERTIFICATE-----", "x509"),
        })
    }

    /// The first key.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        if self.has_text("BEGIN ENCRYPTED PRIVATE KEY") || self.has_text("Proc-Type: 4,ENCRYPTED") {
            return Err(format!(
                "{self} is encrypted, and the server cannot ask for its passphrase; \
                 `openssl pkey -in FILE -out PLAIN` decrypts it"
            ));
        }
        match PrivateKeyDer::pem_slice_iter(&self.text()).next() {
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => Err(self.malformed(&error)),
            None if self.has_text("BEGIN CERTIFICATE") => Err(format!(
                "{self} holds a certificate and no key; are the two swapped?"
            )),
            None => Err(self.lacks("private key", "-----BEGIN PRIVATE KEY-----", "pkey")),
        }
    }

    /// Whether every user may read or write the file.
    pub(crate) fn is_open_to_others(&self) -> bool {
        let Source::Read(path, _) = &self.source else {
            return false;
        };
        std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & OTHERS != 0)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Read(_, bytes) | Source::Memory(bytes) => bytes,
            Source::File(_) => &[],
        }
    }

    /// The bytes with a line break before each section that follows a byte order mark or the end of
    /// another section, as in files that were joined. Without it the parser does not see the
    /// section.
    fn text(&self) -> Vec<u8> {
        let (mut text, mut rest) = (Vec::new(), self.bytes());
        while let Some(at) = memmem::find(rest, BEGIN) {
            let before = &rest[..at];
            text.extend_from_slice(before);
            if before.ends_with(BYTE_ORDER_MARK) || before.ends_with(b"-----") {
                text.push(b'\n');
            }
            text.extend_from_slice(BEGIN);
            rest = &rest[at + BEGIN.len()..];
        }
        text.extend_from_slice(rest);
        text
    }

    fn has_key(&self) -> bool {
        PrivateKeyDer::from_pem_slice(&self.text()).is_ok()
            || self.has_text("BEGIN ENCRYPTED PRIVATE KEY")
    }

    fn has_text(&self, text: &str) -> bool {
        let text = text.as_bytes();
        self.bytes().windows(text.len()).any(|part| part == text)
    }

    /// The error does not show the line that it is about: that may be a whole key. If the line
    /// breaks are lost, that is also the marker.
    fn malformed(&self, error: &pem::Error) -> String {
        let why = match error {
            pem::Error::MissingSectionEnd { end_marker } if is_label(end_marker) => {
                format!(
                    "a section has no end `-----END {}-----`",
                    end_marker.escape_ascii()
                )
            }
            pem::Error::MissingSectionEnd { .. } => {
                "a line begins with `-----BEGIN` and has more than a label; line breaks are lost"
                    .into()
            }
            pem::Error::IllegalSectionStart { .. } => {
                "a line begins with `-----BEGIN` and does not end with `-----`".into()
            }
            error => error.to_string(),
        };
        format!("{self} is not well-formed PEM: {why}")
    }

    fn lacks(&self, what: &str, head: &str, command: &str) -> String {
        // In DER (X.690) a certificate and a key are both a sequence, which begins with this byte.
        if self.bytes().first() == Some(&0x30) {
            return format!(
                "{self} is DER and not PEM; `openssl {command} -inform DER -in FILE -out PEM` \
                 converts it"
            );
        }
        format!("{self} holds no {what}; it must have a section `{head}`")
    }
}

/// The longest label in use is `ENCRYPTED PRIVATE KEY`, and a text of keys has small letters too.
fn is_label(marker: &[u8]) -> bool {
    let is_of_label = |byte: &u8| byte.is_ascii_uppercase() || b" 0123456789".contains(byte);
    marker.len() <= 40 && marker.iter().all(is_of_label)
}

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Name(self.kind, &self.source).fmt(f)
    }
}

/// The name of a source in messages.
struct Name<'a>(Kind, &'a Source);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, source) = self;
        let what = match kind {
            Kind::Certificate => "certificate",
            Kind::Key => "key",
            Kind::ClientCa => "client CA",
            Kind::Ocsp => "OCSP",
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
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let is_pipe = file.metadata()?.file_type().is_fifo();
    Patient(file).take(SIZE_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        0 if is_pipe => {
            let why = "it is a pipe with nothing to read, and a pipe can be read only once";
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
        }
        ..=SIZE_MAX => Ok(bytes),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// A file opened with `O_NONBLOCK`, as open(2) of a FIFO waits for a writer (fifo(7)). The master
/// reads it, so a reader waits at most [`WRITER_TIMEOUT`] for the next bytes.
struct Patient(File);

impl Read for Patient {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut file = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        if poll(&mut file, WRITER_TIMEOUT)? == 0 {
            let why = "nothing is written to this pipe";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        self.0.read(bytes)
    }
}
