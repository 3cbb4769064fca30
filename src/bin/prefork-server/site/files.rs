//! Serves the files of one directory by the rules of RFC 9110.

use std::fs::{File, Metadata};
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION,
    RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use nix::errno::Errno;
use prefork_server::ConnectionId;
use tokio::task::spawn_blocking;

use self::budget::{Budget, Permit};
use self::encoding::Encoding;
use self::open_files::OpenFiles;
use self::range::Range;
use self::validators::{Validators, Verdict};
use super::beneath::{Beneath, Opened};
use super::body::ResponseBody;
use super::path::Target;
use super::{NOSNIFF, plain};

pub(crate) use self::body::FileBody;

mod body;
mod budget;
mod encoding;
#[cfg(test)]
mod fuzz;
mod open_files;
mod range;
#[cfg(test)]
mod tests;
mod validators;

/// How often a file is looked up, if it becomes shorter between its lookup and its first read.
const READ_ATTEMPTS: u32 = 4;

/// A directory that is served: with `index.html`, content types, ranges, conditional requests and
/// precompressed siblings (`.br`, `.gz`, `.zst`); without listings, hidden files and files outside.
#[derive(Debug)]
pub(crate) struct Files {
    lookup: Arc<Lookup>,
    budget: Budget,
}

/// What the threads of the blocking pool use.
#[derive(Debug)]
struct Lookup {
    beneath: Beneath,
    open_files: Arc<OpenFiles>,
}

/// A directory that cannot be served, and the reason.
#[derive(Debug)]
pub(crate) struct OpenError {
    directory: Box<Path>,
    source: io::Error,
}

impl Files {
    /// Opens the directory and keeps it. Each worker opens it again, so after a reload a symbolic
    /// link that was changed leads to the new directory.
    pub(crate) fn open(directory: &Path) -> Result<Self, OpenError> {
        let beneath = Beneath::new(directory).map_err(|source| OpenError {
            directory: directory.into(),
            source,
        })?;
        let open_files = Arc::new(OpenFiles::new());
        Ok(Self {
            lookup: Arc::new(Lookup {
                beneath,
                open_files,
            }),
            budget: Budget::default(),
        })
    }

    /// The response to a GET or HEAD. Everything that may wait for a disk is done in one call on a
    /// thread of the blocking pool, so that the event loop never waits.
    ///
    /// The head is boxed for the same reason as in [`Site::respond`](super::Site::respond).
    pub(super) fn respond<B>(
        &self,
        head: Parts,
        connection: ConnectionId,
    ) -> impl Future<Output = Response<ResponseBody<B>>> {
        let head = Box::new(head);
        async move {
            let method = head.method.clone();
            let permit = self.budget.permit(connection).await;
            let lookup = Arc::clone(&self.lookup);
            let found = spawn_blocking(move || lookup.find(&head, &permit)).await;
            match found.unwrap_or_else(|error| Err(error.into())) {
                Ok(response) => {
                    response.map(|body| body.map_or_else(ResponseBody::empty, ResponseBody::File))
                }
                Err(error) => failed(&error, &method),
            }
        }
    }
}

/// The response if no file can be sent.
fn failed<B>(error: &io::Error, method: &Method) -> Response<ResponseBody<B>> {
    match error.kind() {
        io::ErrorKind::NotFound => plain(StatusCode::NOT_FOUND, method),
        io::ErrorKind::QuotaExceeded => unavailable(method),
        _ if is_exhaustion(error) => {
            tracing::error!(%error, "cannot open a file");
            unavailable(method)
        }
        _ => {
            tracing::error!(%error, "cannot read a file");
            plain(StatusCode::INTERNAL_SERVER_ERROR, method)
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot serve {}: {}",
            self.directory.display(),
            self.source
        )
    }
}

impl std::error::Error for OpenError {}

/// A file that was found. `path` is its path without the suffix of its encoding.
struct Representation<'a> {
    path: &'a Path,
    file: File,
    metadata: Metadata,
    encoding: Option<Encoding>,
}

/// A response; `None` is an empty body.
type Found = Response<Option<FileBody>>;

impl Lookup {
    fn find(&self, head: &Parts, permit: &Permit) -> io::Result<Found> {
        let target = Target::of(&head.uri).ok_or(io::ErrorKind::NotFound)?;
        let mut found = self.try_find(&target, head, permit);
        for _ in 1..READ_ATTEMPTS {
            match &found {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    found = self.try_find(&target, head, permit);
                }
                _ => break,
            }
        }
        found
    }

    fn try_find(&self, target: &Target, head: &Parts, permit: &Permit) -> io::Result<Found> {
        let path = target.file();
        let plain = self.beneath.open(&path);
        if matches!(plain, Ok(Opened::Directory)) {
            return redirect(target, &head.method);
        }
        for encoding in Encoding::accepted(&head.headers) {
            let mut sibling = path.clone().into_os_string();
            sibling.push(encoding.suffix());
            match self.beneath.open(Path::new(&sibling)) {
                Ok(Opened::File(file, metadata)) => {
                    let found = Representation {
                        path: &path,
                        file,
                        metadata,
                        encoding: Some(encoding),
                    };
                    return self.respond(head, found, permit);
                }
                Ok(Opened::Directory) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        match plain? {
            Opened::File(file, metadata) => {
                let found = Representation {
                    path: &path,
                    file,
                    metadata,
                    encoding: None,
                };
                self.respond(head, found, permit)
            }
            Opened::Directory => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn respond(
        &self,
        head: &Parts,
        found: Representation<'_>,
        permit: &Permit,
    ) -> io::Result<Found> {
        let length = found.metadata.len();
        let validators = Validators::of(&found.metadata, found.encoding);
        let mut response = Response::new(None);
        let headers = response.headers_mut();
        validators.write(headers);
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        let range = match head.method == Method::GET && validators.allow_range(&head.headers) {
            true => Range::asked(&head.headers, length),
            false => Range::Whole,
        };
        let (status, first, length) = match (validators.judge(&head.headers), range) {
            (Verdict::NotModified, _) => (StatusCode::NOT_MODIFIED, 0, None),
            (Verdict::Failed, _) => (StatusCode::PRECONDITION_FAILED, 0, None),
            (Verdict::Send, Range::Beyond) => {
                headers.insert(CONTENT_RANGE, value(format!("bytes */{length}")));
                (StatusCode::RANGE_NOT_SATISFIABLE, 0, None)
            }
            (Verdict::Send, Range::Part { first, last }) => {
                let range = format!("bytes {first}-{last}/{length}");
                headers.insert(CONTENT_RANGE, value(range));
                (StatusCode::PARTIAL_CONTENT, first, Some(last - first + 1))
            }
            (Verdict::Send, Range::Whole) => (StatusCode::OK, 0, Some(length)),
        };
        if let Some(length) = length {
            headers.insert(CONTENT_TYPE, content_type(found.path));
            headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            if let Some(encoding) = found.encoding {
                headers.insert(CONTENT_ENCODING, encoding.name());
            }
            if head.method == Method::GET {
                *response.body_mut() = Some(FileBody::open(
                    found.file,
                    (first, length),
                    permit,
                    &self.open_files,
                )?);
            }
        }
        Ok(finish(response, status, &head.method))
    }
}

/// The response to the path of a directory without its slash.
fn redirect(target: &Target, method: &Method) -> io::Result<Found> {
    if target.names_directory() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut response = Response::new(None);
    response
        .headers_mut()
        .insert(LOCATION, target.with_slash()?);
    Ok(finish(response, StatusCode::TEMPORARY_REDIRECT, method))
}

/// The response if the worker has as many files open as it may. Later some of them are closed.
fn unavailable<B>(method: &Method) -> Response<ResponseBody<B>> {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, method);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Whether no descriptor was left, in this process or in the system.
fn is_exhaustion(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE))
}

fn finish(mut response: Found, status: StatusCode, method: &Method) -> Found {
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    // hyper adds it for an empty body, but not in a response to HEAD, where the body may not be
    // empty.
    if method == Method::HEAD
        && status != StatusCode::NOT_MODIFIED
        && !headers.contains_key(CONTENT_LENGTH)
    {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    }
    response
}

/// The content type by the name of the file. Without a charset browsers read a text as
/// windows-1252.
fn content_type(path: &Path) -> HeaderValue {
    let found = mime_guess::from_path(path).first_raw();
    match found.unwrap_or("application/octet-stream") {
        text if text.starts_with("text/") && !text.contains(';') => {
            value(format!("{text}; charset=utf-8"))
        }
        other => HeaderValue::from_static(other),
    }
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("visible ASCII")
}
