//! Finds the file that a request is for, in the cache or in the file system.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
#[cfg(feature = "compression")]
use http::header::{CONTENT_ENCODING, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;

use super::beneath::{Beneath, Opened, Reach};
#[cfg(feature = "compression")]
use super::compress::{Compressed, may_be_compressed};
use super::encoding::Encoding;
use super::fallback::{asks_for_page, may_be_page};
use super::names::{Entry, Found, Names};
use super::open_files::{OpenFile, OpenFiles};
use super::options::Files;
use super::path::Target;
use super::rules::single_slashes;
use super::version::{Identity, Version};
use crate::pool::Buffer;

/// The file that is served for a directory.
const INDEX: &str = "index.html";

/// The same, for a path without its slash.
const INDEX_BELOW: &str = "/index.html";

/// What [`Files::clean_urls`] hides.
const PAGE: &str = ".html";

const BY_ENCODING: HeaderValue = HeaderValue::from_static("accept-encoding");

/// A browser gets the page of the app, and another kind of request for the same path a 404.
const BY_ACCEPT: HeaderValue = HeaderValue::from_static("accept-encoding, accept");

/// How often a file is looked up, if it is changed between its lookup and its first read.
const ATTEMPTS: u32 = 4;

/// Finds files, and keeps what it found.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) options: Files,
    beneath: Beneath,
    names: Names,
    open_files: Arc<OpenFiles>,
    #[cfg(feature = "compression")]
    compressed: Option<Compressed>,
}

/// What a request is for.
#[derive(Debug)]
pub(super) enum Resolved {
    File(Chosen),
    /// The page of a 404.
    NotFoundPage(Chosen),
    /// The place where it is.
    Moved(HeaderValue),
    /// The page of a directory, and the fields that it needs.
    Listing(Bytes, HeaderMap),
    /// With what the response depends on.
    NotFound(Option<HeaderValue>),
}

/// A file that is sent.
#[derive(Debug)]
pub(super) struct Chosen {
    /// Of the file that is sent, which may be a compressed one.
    pub(super) name: Buffer,
    pub(super) version: Arc<Version>,
    pub(super) encoding: Option<Encoding>,
    /// Its type and its fields are those of the compressed ones too.
    pub(super) plain: Arc<Version>,
    pub(super) vary: HeaderValue,
}

impl Lookup {
    pub(super) fn new(options: Files) -> io::Result<Self> {
        #[cfg(not(feature = "compression"))]
        let names = options.cache_bytes;
        #[cfg(feature = "compression")]
        let names = match options.compress {
            true => options.cache_bytes / 2,
            false => options.cache_bytes,
        };
        let beneath = Beneath::new(&options.directory, options.symlinks)?;
        for page in [&options.fallback, &options.not_found]
            .into_iter()
            .flatten()
        {
            let page = Path::new(OsStr::from_bytes(page));
            if !matches!(beneath.open(page, Reach::Disk), Ok(Opened::File(..))) {
                let directory = options.directory.display();
                tracing::warn!("{directory} has no file {} yet", page.display());
            }
        }
        Ok(Self {
            beneath,
            names: Names::new(names),
            #[cfg(feature = "compression")]
            compressed: options.compress.then(|| Compressed::new(names)),
            open_files: Arc::new(OpenFiles::new()),
            options,
        })
    }

    #[cfg(test)]
    pub(super) fn cached_bytes(&self) -> u64 {
        self.names.bytes()
    }

    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.names.expire();
        self.open_files.expire();
    }

    /// Repeats what `work` does with the file while the file is changed meanwhile.
    pub(super) fn retry<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        for _ in 1..ATTEMPTS {
            match work() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
        work()
    }

    pub(super) fn resolve(&self, head: &Parts, reach: Reach) -> io::Result<Resolved> {
        let Some(target) = Target::of(&head.uri) else {
            let path: Cow<'_, [u8]> = percent_decode_str(head.uri.path()).into();
            return self.missing(head, &path, reach);
        };
        let path = target.path();
        let found = match target.names_directory() {
            true => self.directory(&target, head, reach)?,
            false => self.file(&target, head, reach)?,
        };
        match found {
            Some(resolved) => Ok(resolved),
            None => self.missing(head, path, reach),
        }
    }

    /// The path ends with a slash.
    fn directory(
        &self,
        target: &Target<'_>,
        head: &Parts,
        reach: Reach,
    ) -> io::Result<Option<Resolved>> {
        let path = target.path();
        if let Some(file) = self.chosen(name(path, INDEX), &head.headers, reach)? {
            return Ok(Some(Resolved::File(file)));
        }
        if self.options.clean_urls
            && let Some(short) = target.without("/")
            && self.is_free(short, &self.entry(short, reach)?.found, reach)?
            && self.is_file(name(short, PAGE).as_slice(), reach)?
        {
            return Ok(target.with_end(1, "").map(Resolved::Moved));
        }
        match self.options.listing {
            true => self.listing(path, head, reach),
            false => Ok(None),
        }
    }

    fn listing(&self, path: &[u8], head: &Parts, reach: Reach) -> io::Result<Option<Resolved>> {
        if reach == Reach::Memory {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let name = match path {
            [] => b".",
            path => path,
        };
        match self.beneath.list(Path::new(OsStr::from_bytes(name))) {
            Ok(listing) => {
                let page = listing.page(path, head.uri.query(), &head.headers);
                #[cfg(feature = "compression")]
                let page = self.compressed_page(page, &head.headers)?;
                Ok(Some(Resolved::Listing(page.0, page.1)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn file(
        &self,
        target: &Target<'_>,
        head: &Parts,
        reach: Reach,
    ) -> io::Result<Option<Resolved>> {
        let path = target.path();
        let clean_urls = self.options.clean_urls;
        let found = self.entry(path, reach)?.found.clone();
        if let Found::File(version) = found {
            if clean_urls && let Some(cut) = self.hidden_end(target, reach)? {
                return Ok(target.with_end(cut, "").map(Resolved::Moved));
            }
            let chosen = self.encoded(name(path, ""), version, &head.headers, reach)?;
            return Ok(Some(Resolved::File(chosen)));
        }
        if clean_urls
            && self.is_free(path, &found, reach)?
            && let Some(page) = self.chosen(name(path, PAGE), &head.headers, reach)?
        {
            return Ok(Some(Resolved::File(page)));
        }
        let is_directory = matches!(found, Found::Directory);
        let moved = is_directory.then(|| target.with_end(0, "/")).flatten();
        Ok(moved.map(Resolved::Moved))
    }

    /// How much of the end of an address is hidden: the name of an index, or the end of a page if
    /// the address without it is that of the page.
    fn hidden_end(&self, target: &Target<'_>, reach: Reach) -> io::Result<Option<usize>> {
        if target.without(INDEX) == Some(b"") || target.without(INDEX_BELOW).is_some() {
            return Ok(Some(INDEX.len()));
        }
        let Some(short) = target.without(PAGE) else {
            return Ok(None);
        };
        let is_free = self.is_free(short, &self.entry(short, reach)?.found, reach)?;
        Ok(is_free.then_some(PAGE.len()))
    }

    /// Whether a page may be served at this path: there is no other file and no index.
    fn is_free(&self, path: &[u8], found: &Found, reach: Reach) -> io::Result<bool> {
        match found {
            Found::File(_) => Ok(false),
            Found::Directory => Ok(!self.is_file(name(path, INDEX_BELOW).as_slice(), reach)?),
            Found::Missing => Ok(true),
        }
    }

    /// There is no such file.
    fn missing(&self, head: &Parts, path: &[u8], reach: Reach) -> io::Result<Resolved> {
        let fallback = self.options.fallback.as_ref();
        let fallback = fallback.filter(|_| may_be_page(path));
        let vary = fallback.map(|_| BY_ACCEPT);
        if let Some(page) = fallback
            && asks_for_page(&head.headers)
            && let Some(file) = self.chosen(name(page, ""), &head.headers, reach)?
        {
            return Ok(Resolved::File(Chosen {
                vary: BY_ACCEPT,
                ..file
            }));
        }
        if let Some(page) = &self.options.not_found
            && let Some(file) = self.chosen(name(page, ""), &head.headers, reach)?
        {
            let vary = vary.unwrap_or(BY_ENCODING);
            return Ok(Resolved::NotFoundPage(Chosen { vary, ..file }));
        }
        Ok(Resolved::NotFound(vary))
    }

    /// The file with this name, in the encoding that the client likes best.
    fn chosen(
        &self,
        name: Buffer,
        headers: &HeaderMap,
        reach: Reach,
    ) -> io::Result<Option<Chosen>> {
        let entry = self.entry(name.as_slice(), reach)?;
        match &entry.found {
            Found::File(version) => {
                let version = Arc::clone(version);
                self.encoded(name, version, headers, reach).map(Some)
            }
            Found::Directory | Found::Missing => Ok(None),
        }
    }

    fn encoded(
        &self,
        name: Buffer,
        plain: Arc<Version>,
        headers: &HeaderMap,
        reach: Reach,
    ) -> io::Result<Chosen> {
        let chosen = Chosen {
            name,
            version: Arc::clone(&plain),
            encoding: None,
            plain,
            vary: BY_ENCODING,
        };
        if let Some(encoding) = Encoding::of_picture(chosen.name.as_slice()) {
            let encoding = Some(encoding);
            return Ok(Chosen { encoding, ..chosen });
        }
        for encoding in Encoding::accepted(headers) {
            let sibling = self::name(chosen.name.as_slice(), encoding.suffix());
            if let Found::File(version) = &self.entry(sibling.as_slice(), reach)?.found {
                return Ok(Chosen {
                    name: sibling,
                    version: Arc::clone(version),
                    encoding: Some(encoding),
                    ..chosen
                });
            }
        }
        #[cfg(feature = "compression")]
        if let Some((version, encoding)) = self.compressed(&chosen, headers, reach)? {
            return Ok(Chosen {
                version,
                encoding: Some(encoding),
                ..chosen
            });
        }
        Ok(chosen)
    }

    #[cfg(feature = "compression")]
    fn compressed(
        &self,
        Chosen { name, plain, .. }: &Chosen,
        headers: &HeaderMap,
        reach: Reach,
    ) -> io::Result<Option<(Arc<Version>, Encoding)>> {
        let Some(cache) = &self.compressed else {
            return Ok(None);
        };
        if !may_be_compressed(plain, headers) {
            return Ok(None);
        }
        let Some(encoding) = Encoding::accepted(headers).next() else {
            return Ok(None);
        };
        let read = || match (reach, &plain.contents) {
            (Reach::Memory, _) => Err(io::ErrorKind::WouldBlock.into()),
            (Reach::Disk, Some(contents)) => Ok(contents.clone()),
            (Reach::Disk, None) => self.open_file(name, plain, reach)?.read(),
        };
        let version = cache.of(plain, encoding, read)?;
        Ok(version.map(|version| (version, encoding)))
    }

    #[cfg(feature = "compression")]
    fn compressed_page(
        &self,
        (page, mut fields): (Bytes, HeaderMap),
        asked: &HeaderMap,
    ) -> io::Result<(Bytes, HeaderMap)> {
        let Some(cache) = &self.compressed else {
            return Ok((page, fields));
        };
        let (page, encoding) = cache.page(page, asked)?;
        fields.insert(VARY, BY_ACCEPT);
        fields.extend(encoding.map(|encoding| (CONTENT_ENCODING, encoding.name())));
        Ok((page, fields))
    }

    fn is_file(&self, name: &[u8], reach: Reach) -> io::Result<bool> {
        Ok(matches!(self.entry(name, reach)?.found, Found::File(_)))
    }

    /// What the name stands for. If the cache has not looked for a while, it looks again.
    fn entry(&self, name: &[u8], reach: Reach) -> io::Result<Arc<Entry>> {
        // Else a client could have the cache keep a file once for each number of slashes.
        let name = &*single_slashes(name);
        let known = self.names.get(name);
        if let Some(entry) = known.as_ref().filter(|entry| entry.seen.is_fresh()) {
            return Ok(Arc::clone(entry));
        }
        self.open_files.sweep();
        let path = Path::new(OsStr::from_bytes(name));
        let opened = self.beneath.open(path, reach);
        if let Some(entry) = known
            && let Found::File(version) = &entry.found
        {
            match &opened {
                Ok(Opened::File(_, metadata)) if version.identity == Identity::of(metadata) => {
                    entry.seen.again();
                    return Ok(entry);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => self.open_files.forget(&version.identity),
            }
        }
        let found = match opened {
            Ok(Opened::File(file, metadata)) => Found::File(Arc::new(Version::of(
                &file,
                &metadata,
                path,
                &self.options.rules,
                reach,
            )?)),
            Ok(Opened::Directory) => Found::Directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Missing,
            Err(error) => return Err(error),
        };
        let is_kept = match &found {
            Found::File(version) => version.is_settled,
            Found::Directory | Found::Missing => true,
        };
        let entry = Arc::new(Entry::new(found));
        match is_kept {
            true => self.names.insert(name, Arc::clone(&entry)),
            false => self.names.forget(name),
        }
        Ok(entry)
    }

    /// The open file. [`io::ErrorKind::Interrupted`]: it was changed, or another one has its name.
    pub(super) fn open_file(
        &self,
        name: &Buffer,
        version: &Version,
        reach: Reach,
    ) -> io::Result<Arc<OpenFile>> {
        if self.beneath.waits(reach) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let file = match self.open_files.get(&version.identity) {
            Some(file) => file,
            None => {
                let path = Path::new(OsStr::from_bytes(name.as_slice()));
                match self.beneath.open(path, reach) {
                    Ok(Opened::File(file, now)) if version.may_be(&Identity::of(&now)) => {
                        self.open_files.share(file, reach)?
                    }
                    Ok(_) => return Err(self.changed(name, version)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return Err(self.changed(name, version));
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        match version.may_be(&Identity::of_file(file.shared())?) {
            true => Ok(file),
            false => Err(self.changed(name, version)),
        }
    }

    fn changed(&self, name: &Buffer, version: &Version) -> io::Error {
        self.names.forget(&single_slashes(name.as_slice()));
        self.open_files.forget(&version.identity);
        io::ErrorKind::Interrupted.into()
    }
}

/// A name with another end.
fn name(path: &[u8], end: &str) -> Buffer {
    let mut name = Buffer::take();
    name.extend_from_slice(path);
    name.extend_from_slice(end.as_bytes());
    name
}
