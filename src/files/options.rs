//! What the user chose.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::beneath::Symlinks;
use super::cors::Origin;
use super::rules::{HeaderRule, Rules};
use super::service::FileService;

/// The most memory that a worker uses for what it knows of files, by default.
const CACHE_BYTES: usize = 64 << 20;

/// The files of a directory, and how they are served. [`Files::open`] makes the service.
///
/// ```no_run
/// use prefork_server::files::Files;
/// use prefork_server::{Exit, Prefork};
///
/// fn main() -> Exit {
///     Prefork::bind("127.0.0.1:8080")
///         .serve(async |_worker| Ok(Files::new("./public").open()?))
///         .into()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Files {
    pub(super) directory: PathBuf,
    pub(super) symlinks: Symlinks,
    pub(super) clean_urls: bool,
    pub(super) fallback: Option<Vec<u8>>,
    pub(super) not_found: Option<Vec<u8>>,
    #[cfg(feature = "compression")]
    pub(super) compress: bool,
    pub(super) listing: bool,
    pub(super) rules: Rules,
    pub(super) origins: Vec<Origin>,
    pub(super) cache_bytes: usize,
    pub(super) sendfile: bool,
}

impl Files {
    /// The files under a directory. Nothing is opened yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            symlinks: Symlinks::Inside,
            clean_urls: false,
            fallback: None,
            not_found: None,
            #[cfg(feature = "compression")]
            compress: false,
            listing: false,
            rules: Rules::default(),
            origins: Vec::new(),
            cache_bytes: CACHE_BYTES,
            sendfile: false,
        }
    }

    /// Which symbolic links are followed. Default: [`Symlinks::Inside`].
    #[must_use]
    pub fn symlinks(self, symlinks: Symlinks) -> Self {
        Self { symlinks, ..self }
    }

    /// Serves `about.html` at `/about`, and redirects `/about.html` and `/about/` there (308). If a
    /// file `about` or `about/index.html` has the short address, `about.html` keeps its own.
    /// Default: no.
    #[must_use]
    pub fn clean_urls(self, clean_urls: bool) -> Self {
        Self { clean_urls, ..self }
    }

    /// Serves this file, with status 200, to a browser that goes to a page that does not exist: for
    /// apps that have one page. A path whose last part has a dot is a file and no page, so a
    /// missing script stays a 404. The path is relative to the directory. Default: none.
    #[must_use]
    pub fn fallback(self, file: impl Into<PathBuf>) -> Self {
        let fallback = Some(file.into().into_os_string().into_encoded_bytes());
        Self { fallback, ..self }
    }

    /// The page of a 404. The path is relative to the directory. Default: a line of text.
    #[must_use]
    pub fn not_found_page(self, file: impl Into<PathBuf>) -> Self {
        let not_found = Some(file.into().into_os_string().into_encoded_bytes());
        Self { not_found, ..self }
    }

    /// Compresses texts from 1 KiB to 8 MiB when they are asked for, with zstd, brotli or gzip, and
    /// keeps what came of it: half of [`cache_bytes`](Self::cache_bytes) is for that. A file that
    /// would take more than half of this is sent as it is, and so are most files for which no space
    /// is left: a full cache gets new ones for at most a tenth of the time. A compressed file
    /// beside the plain one is preferred. Parts of files are not compressed. The page of a
    /// [`listing`](Self::listing) is compressed for each request. Default: no. Needs the feature
    /// `compression`.
    #[cfg(feature = "compression")]
    #[must_use]
    pub fn compress(self, compress: bool) -> Self {
        Self { compress, ..self }
    }

    /// Shows what is in a directory that has no `index.html`: a page for browsers, and JSON for
    /// clients whose `Accept` prefers `application/json`. It shows what would be served, also files
    /// that this process may not read, and at most 10,000 names. JSON has them in `entries`, and
    /// `is_cut` is true if there are more. Default: no.
    #[must_use]
    pub fn listing(self, listing: bool) -> Self {
        Self { listing, ..self }
    }

    /// Adds a field to the responses of some files. May be called several times; if two rules set
    /// the same field of a file, the later one counts. Default: none.
    #[must_use]
    pub fn header(mut self, rule: HeaderRule) -> Self {
        self.rules.headers.push(rule);
        self
    }

    /// Lets browsers keep files whose names have a hash, as build tools write them
    /// (`index-BdH3kZ9x.js`), for a year: `Cache-Control: public, max-age=31536000, immutable`.
    /// All other files get `no-cache`: a browser keeps them and asks before it uses them again. A
    /// [`header`](Self::header) rule for `cache-control` replaces it. Default: no, so that
    /// browsers decide.
    #[must_use]
    pub fn safe_caching(mut self, safe_caching: bool) -> Self {
        self.rules.safe_caching = safe_caching;
        self
    }

    /// Lets scripts of this origin read the files (CORS). May be called several times. Default:
    /// none.
    #[must_use]
    pub fn allow_origin(mut self, origin: Origin) -> Self {
        self.origins.push(origin);
        self
    }

    /// The most memory that a worker uses for what it knows of files: names, times, types, and the
    /// bytes of files of at most 64 KiB. Default: 64 MiB.
    #[must_use]
    pub fn cache_bytes(self, cache_bytes: usize) -> Self {
        Self {
            cache_bytes,
            ..self
        }
    }

    /// Sends files of more than 64 KiB by sendfile(2), in HTTP/1 without TLS. This saves the copy.
    /// Choose it if files are only replaced (rename(2)): of a file that is cut or overwritten in
    /// its place, a client may get a wrong body. Default: no, such a response breaks off.
    #[must_use]
    pub fn sendfile(self, sendfile: bool) -> Self {
        Self { sendfile, ..self }
    }

    /// Opens the directory and keeps it. Each worker opens it again, so after a reload a symbolic
    /// link that was changed leads to the new directory. Fails if there is no such directory, if
    /// this process may not search it, or if the kernel (or a seccomp filter) has no openat2(2).
    pub fn open(self) -> Result<FileService, OpenError> {
        let directory = self.directory.clone();
        FileService::new(self).map_err(|source| OpenError {
            directory: directory.into(),
            source,
        })
    }
}

/// A directory that cannot be served, and the reason.
#[derive(Debug)]
pub struct OpenError {
    directory: Box<Path>,
    source: io::Error,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot serve {}", self.directory.display())
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
