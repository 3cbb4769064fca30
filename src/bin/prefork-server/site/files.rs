//! The files of one directory, by the rules of RFC 9110, within limits of our own.

use std::{fmt, io, path::Path};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE, VARY,
        X_CONTENT_TYPE_OPTIONS,
    },
    request::Parts,
};
use tower_http::services::fs::{
    DefaultServeDirFallback, ServeDir, ServeFileSystemResponseBody as FileBody,
};

use super::{
    answer::Answer,
    beneath::{Beneath, CHUNK},
    path, plain,
};

/// A directory being served: `index.html`, content types, ranges, conditional requests and
/// precompressed siblings (`.br`, `.gz`, `.zst`). No listings, no hidden files, nothing that lies
/// outside.
#[derive(Debug)]
pub(crate) struct Files {
    service: ServeDir<DefaultServeDirFallback, Beneath>,
}

/// A directory that cannot be served, and why not.
#[derive(Debug)]
pub(crate) struct OpenError {
    directory: Box<Path>,
    source: io::Error,
}

impl Files {
    /// Looks at `directory` once and holds on to it. A worker opens it anew, so a reload follows a
    /// symbolic link that has been pointed at another release.
    pub(crate) fn open(directory: &Path) -> Result<Self, OpenError> {
        let beneath = Beneath::open(directory).map_err(|source| OpenError {
            directory: directory.into(),
            source,
        })?;
        let service = ServeDir::with_backend("", beneath)
            .with_buf_chunk_size(CHUNK)
            .ignore_multi_range_requests(true)
            .precompressed_br()
            .precompressed_gzip()
            .precompressed_zstd();
        Ok(Self { service })
    }

    /// The answer to a GET or HEAD.
    pub(super) async fn answer<B>(&self, head: Parts) -> Response<Answer<B>> {
        let method = head.method.clone();
        let Some(uri) = path::servable(&head.uri) else {
            return plain(StatusCode::NOT_FOUND, &method);
        };
        let mut request = Request::from_parts(head, ());
        *request.uri_mut() = uri;
        forget_senseless_range(&mut request);
        // `ServeDir` finds HEAD's headers another way, which takes a directory for a file.
        *request.method_mut() = Method::GET;
        let served = match request.headers_mut().remove(IF_RANGE) {
            Some(validator) => self.serve_range_if(&validator, request).await,
            None => self.serve(request).await,
        };
        match served {
            Ok(response) if response.status() == StatusCode::NOT_FOUND => {
                plain(StatusCode::NOT_FOUND, &method)
            }
            Ok(response) if method == Method::HEAD => finish(response).map(|_| Answer::empty()),
            Ok(response) => finish(response).map(Answer::File),
            Err(error) if is_absence(&error) => plain(StatusCode::NOT_FOUND, &method),
            Err(error) => {
                tracing::error!(%error, "cannot read a file");
                plain(StatusCode::INTERNAL_SERVER_ERROR, &method)
            }
        }
    }

    /// A part only if the file is still the one the client has the rest of (RFC 9110, 13.1.5).
    async fn serve_range_if(
        &self,
        validator: &HeaderValue,
        request: Request<()>,
    ) -> io::Result<Response<FileBody>> {
        let whole = without_range(&request);
        let response = self.serve(request).await?;
        let answers_range = [
            StatusCode::PARTIAL_CONTENT,
            StatusCode::RANGE_NOT_SATISFIABLE,
        ];
        if answers_range.contains(&response.status()) && !is_current(validator, response.headers())
        {
            return self.serve(whole).await;
        }
        Ok(response)
    }

    /// Of an empty file there is no part: `ServeDir` would send its bytes 0 to 0, of none. A range
    /// may always be ignored (RFC 9110, 14.2).
    async fn serve(&self, request: Request<()>) -> io::Result<Response<FileBody>> {
        let asks_for_part = request.headers().contains_key(RANGE);
        let whole = asks_for_part.then(|| without_range(&request));
        let response = self.service.clone().try_call(request).await?;
        match whole {
            Some(whole) if is_part_of_nothing(&response) => {
                self.service.clone().try_call(whole).await
            }
            _ => Ok(response),
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

/// How [`Beneath`] says that a path names nothing it serves.
fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    )
}

/// A range is defined for GET alone, and one in an unknown unit must be ignored (RFC 9110, 14.2).
fn forget_senseless_range(request: &mut Request<()>) {
    let understood = request.headers().get(RANGE).is_some_and(|range| {
        let unit = range.as_bytes().split(|byte| *byte == b'=').next();
        unit.is_some_and(|unit| unit.eq_ignore_ascii_case(b"bytes"))
    });
    if request.method() != Method::GET || !understood {
        request.headers_mut().remove(RANGE);
    }
}

fn without_range(request: &Request<()>) -> Request<()> {
    let mut whole = request.clone();
    whole.headers_mut().remove(RANGE);
    whole
}

fn is_part_of_nothing<B>(response: &Response<B>) -> bool {
    let range = response.headers().get(CONTENT_RANGE);
    response.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.as_bytes().ends_with(b"/0"))
}

fn is_current(validator: &HeaderValue, headers: &HeaderMap) -> bool {
    headers.get(ETAG) == Some(validator) || headers.get(LAST_MODIFIED) == Some(validator)
}

fn finish(mut response: Response<FileBody>) -> Response<FileBody> {
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(charset) = headers.get(CONTENT_TYPE).and_then(with_charset) {
        headers.insert(CONTENT_TYPE, charset);
    }
    if status == StatusCode::NOT_MODIFIED {
        // A cache must know that the stored answer it may use again depends on this too.
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    response
}

/// Without it browsers read a text as windows-1252.
fn with_charset(content_type: &HeaderValue) -> Option<HeaderValue> {
    let charset = match content_type.as_bytes() {
        b"text/html" => HeaderValue::from_static("text/html; charset=utf-8"),
        b"text/css" => HeaderValue::from_static("text/css; charset=utf-8"),
        b"text/javascript" => HeaderValue::from_static("text/javascript; charset=utf-8"),
        b"text/plain" => HeaderValue::from_static("text/plain; charset=utf-8"),
        other if other.starts_with(b"text/") && !other.contains(&b';') => {
            let value = [other, b"; charset=utf-8"].concat();
            HeaderValue::from_bytes(&value).ok()?
        }
        _ => return None,
    };
    Some(charset)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
