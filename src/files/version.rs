//! One version of one file: what a response needs to know of it, and the bytes of a small one.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderValue;

use super::beneath::Reach;
use super::encoding::Encoding;
use super::rules::{Fields, Rules};
use super::validators::{Strength, Validators};
use crate::http::FILE_CHANGED;
use crate::sys::resident;

/// The longest file whose bytes are kept. A longer one is read from the kernel's cache each time,
/// which costs less than what is done with so many bytes.
pub(super) const CONTENTS_MAX: u64 = 64 * 1024;

/// A file that was changed a shorter time ago may be changed again without a new time: the kernel
/// takes the time of a change from a clock that ticks at least a hundred times a second.
const SETTLED_AFTER: Duration = Duration::from_millis(20);

/// Two descriptors with the same identity have the same bytes: device, inode, length, and the times
/// of the last change of the contents and of the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity(u64, u64, u64, [(i64, i64); 2]);

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let written = (metadata.mtime(), metadata.mtime_nsec());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let times = [written, changed];
        Self(metadata.dev(), metadata.ino(), metadata.len(), times)
    }

    /// Whether the same file has at least the length that it had: it may have got more at its end,
    /// as a log does. write(2) sets the time before the length.
    pub(super) fn may_have_grown_from(&self, earlier: &Self) -> bool {
        let Self(device, inode, length, _) = self;
        (device, inode) == (&earlier.0, &earlier.1) && *length >= earlier.2
    }

    pub(super) fn length(&self) -> u64 {
        self.2
    }

    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&file.metadata()?))
    }
}

/// One version of one file.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) identity: Identity,
    pub(super) validators: Validators,
    pub(super) content_type: HeaderValue,
    /// What the user adds.
    pub(super) fields: Fields,
    /// All bytes, if they are at most [`CONTENTS_MAX`].
    pub(super) contents: Option<Bytes>,
    /// Whether a later change would change the identity.
    pub(super) is_settled: bool,
}

impl Version {
    /// Reads what there is to know. [`io::ErrorKind::Interrupted`]: the file was changed meanwhile.
    pub(super) fn of(
        file: &File,
        metadata: &Metadata,
        path: &Path,
        rules: &Rules,
        reach: Reach,
    ) -> io::Result<Self> {
        let is_settled = is_settled(metadata);
        let strength = match is_settled {
            true => Strength::Strong,
            false => Strength::Weak,
        };
        let coding = Encoding::of_name(path.as_os_str().as_bytes());
        let coding = coding.map_or("", Encoding::suffix);
        let identity = Identity::of(metadata);
        let length = metadata.len();
        let contents = match length {
            0..=CONTENTS_MAX => Some(contents(file, &identity, is_settled, reach)?),
            _ => None,
        };
        Ok(Self {
            identity,
            validators: Validators::of(metadata, contents.as_deref(), coding, strength),
            content_type: content_type(path),
            fields: rules.fields(path.as_os_str().as_bytes()),
            contents,
            is_settled,
        })
    }

    /// Whether a file with this identity may be sent as this version. A log that is written all the
    /// time has grown at each look: it has not settled, so its tag is a weak one.
    pub(super) fn may_be(&self, now: &Identity) -> bool {
        *now == self.identity || (!self.is_settled && now.may_have_grown_from(&self.identity))
    }
}

#[cfg(feature = "compression")]
impl Version {
    /// The same version, compressed. Its tag is a weak one: another release of the server may
    /// compress it to other bytes.
    pub(super) fn compressed(&self, bytes: Vec<u8>, encoding: Encoding) -> Self {
        let Identity(device, inode, _, times) = self.identity;
        Self {
            identity: Identity(device, inode, bytes.len() as u64, times),
            validators: self.validators.compressed(encoding.suffix()),
            content_type: self.content_type.clone(),
            fields: Fields::default(),
            contents: Some(bytes.into()),
            is_settled: true,
        }
    }
}

/// Reads a small file whole. If it has grown meanwhile, its tag must be a weak one.
fn contents(file: &File, identity: &Identity, is_settled: bool, reach: Reach) -> io::Result<Bytes> {
    let bytes = read_whole(file, identity, reach)?;
    let now = Identity::of_file(file)?;
    let has_grown = !is_settled && now.may_have_grown_from(identity);
    match now == *identity || (has_grown && still_has(file, &bytes, 0, reach)?) {
        true => Ok(bytes.into()),
        false => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// Reads as many bytes as the file had. [`io::ErrorKind::Interrupted`]: it was cut meanwhile.
pub(super) fn read_whole(file: &File, identity: &Identity, reach: Reach) -> io::Result<Vec<u8>> {
    let length = usize::try_from(identity.length()).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    read_exact(file, &mut bytes, 0, reach).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::ErrorKind::Interrupted.into(),
        _ => error,
    })?;
    Ok(bytes)
}

/// Whether the file has these bytes at this position, by another read.
pub(super) fn still_has(file: &File, bytes: &[u8], at: u64, reach: Reach) -> io::Result<bool> {
    let mut again = vec![0; bytes.len()];
    match read_exact(file, &mut again, at, reach) {
        Ok(()) => Ok(again == bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The file was cut or overwritten.
pub(super) fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, FILE_CHANGED)
}

/// Fills `bytes` from this position of the file.
pub(super) fn read_exact(file: &File, bytes: &mut [u8], at: u64, reach: Reach) -> io::Result<()> {
    if reach == Reach::Disk {
        return file
            .read_exact_at(bytes, at)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => changed(),
                _ => error,
            });
    }
    let mut read = 0;
    while read < bytes.len() {
        match resident::read(file, &mut bytes[read..], at + read as u64)? {
            0 => return Err(changed()),
            more => read += more,
        }
    }
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// Whether the files of a test that runs on this thread need not settle, because no two
    /// versions have the same length.
    pub(super) static SETTLED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether the inode was last changed long enough ago. A time in the future is another machine's
/// clock.
fn is_settled(metadata: &Metadata) -> bool {
    #[cfg(test)]
    if SETTLED.get() {
        return true;
    }
    let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else {
        return false;
    };
    let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
    let nanos = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
    let then = Duration::new(seconds, nanos);
    now < then || now - then >= SETTLED_AFTER
}

/// Where mime_guess knows no type, or one that clients do not. Browsers run a script only if its
/// type is one (Vite names it `lib.umd.cjs`), Firefox does not play `audio/m4a`, and a `ts` is a
/// part of a video with packets of 188 bytes.
const TYPES: [(&str, &str); 4] = [
    ("cjs", "text/javascript"),
    ("m4a", "audio/mp4"),
    ("rpm", "application/x-rpm"),
    ("ts", "video/mp2t"),
];

/// The content type by the name of the file. Without a charset browsers read a text as
/// windows-1252.
fn content_type(path: &Path) -> HeaderValue {
    let end = path.extension().unwrap_or_default();
    let ours = TYPES
        .iter()
        .find(|(name, _)| end.eq_ignore_ascii_case(name));
    let guessed = || mime_guess::from_path(path).first_raw();
    let found = ours.map(|(_, it)| *it).or_else(guessed);
    match found.unwrap_or("application/octet-stream") {
        text if text.starts_with("text/") && !text.contains(';') => {
            HeaderValue::try_from(format!("{text}; charset=utf-8")).expect("visible ASCII")
        }
        other => HeaderValue::from_static(other),
    }
}
