//! The response to a request: which part of which file, and the fields of its head.

use std::io;
use std::mem;
use std::ops;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION,
    RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use nix::errno::Errno;

use super::beneath::Reach;
use super::body::FileBody;
use super::budget::Permit;
use super::cors::Asked;
use super::encoding::Encoding;
use super::lookup::{Chosen, Lookup, Resolved};
use super::path::Target;
use super::range::Range;
use super::rules::{self, Fields};
use super::validators::Verdict;
use crate::pool::field_maps;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const BYTES: HeaderValue = HeaderValue::from_static("bytes");

/// A response without its head map, which is that of the request.
struct Draft {
    status: StatusCode,
    kind: Kind,
}

enum Kind {
    /// A version of a file, with what is sent of it. `None`: no content at all.
    File {
        chosen: Chosen,
        content: Option<Content>,
    },
    Moved(HeaderValue),
    /// What is in a directory, with the fields that it needs.
    Listing(Bytes, HeaderMap),
    /// The name of the status, as text.
    Text,
    /// The same for a file that does not exist, with what the response depends on.
    NotFound(Option<HeaderValue>),
    /// No content, and the methods.
    Options,
}

struct Content {
    length: u64,
    /// The value of `Content-Range`.
    range: Option<HeaderValue>,
    body: FileBody,
}

/// What a body may use: the permit of its response.
pub(super) type TakePermit<'a> = &'a mut dyn FnMut() -> io::Result<Permit>;

impl Lookup {
    /// The response to a request, whose header map it reuses. The error is
    /// [`io::ErrorKind::WouldBlock`] if it has to wait, and the request is unchanged then.
    pub(super) fn respond(
        &self,
        head: &mut Parts,
        reach: Reach,
        permit: TakePermit<'_>,
    ) -> io::Result<Response<FileBody>> {
        let draft = match head.method {
            Method::GET | Method::HEAD => Self::retry(|| self.draft(head, reach, permit)),
            Method::OPTIONS => Ok(Draft::new(StatusCode::NO_CONTENT, Kind::Options)),
            _ => Ok(Draft::new(StatusCode::METHOD_NOT_ALLOWED, Kind::Text)),
        };
        let draft = match draft {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Err(error) => Draft::new(status_of(&error), Kind::Text),
            Ok(draft) => draft,
        };
        let fields = match draft.kind {
            Kind::File { .. } => Fields::default(),
            _ => self.fields_without_file(head),
        };
        let asked = Asked::of(head, &self.options.origins);
        let mut headers = mem::take(&mut head.headers);
        field_maps::exchange(&mut headers);
        let mut response = draft.write(headers, &head.method);
        rules::write(&fields, response.status(), response.headers_mut());
        if let Some(asked) = asked {
            asked.write(response.headers_mut());
        }
        Ok(response)
    }

    fn fields_without_file(&self, head: &Parts) -> Fields {
        let target = Target::of(&head.uri);
        let path = target.as_ref().map_or(&[][..], Target::path);
        self.options.rules.fields_without_file(path)
    }

    fn draft(&self, head: &Parts, reach: Reach, permit: TakePermit<'_>) -> io::Result<Draft> {
        match self.resolve(head, reach)? {
            Resolved::File(chosen) => self.judged(chosen, head, reach, permit),
            Resolved::NotFoundPage(chosen) => {
                let length = chosen.version.identity.length();
                let content = self.content(&chosen, 0..length, head, reach, permit)?;
                let content = Some(content);
                Ok(Draft::new(
                    StatusCode::NOT_FOUND,
                    Kind::File { chosen, content },
                ))
            }
            Resolved::Moved(place) => Ok(Draft::new(
                StatusCode::PERMANENT_REDIRECT,
                Kind::Moved(place),
            )),
            Resolved::Listing(page, fields) => {
                let page = permit()?.hold(page);
                Ok(Draft::new(StatusCode::OK, Kind::Listing(page, fields)))
            }
            Resolved::NotFound(vary) => Ok(Draft::new(StatusCode::NOT_FOUND, Kind::NotFound(vary))),
        }
    }

    fn judged(
        &self,
        chosen: Chosen,
        head: &Parts,
        reach: Reach,
        permit: TakePermit<'_>,
    ) -> io::Result<Draft> {
        let length = chosen.version.identity.length();
        let validators = &chosen.version.validators;
        let range = match head.method == Method::GET && validators.allow_range(&head.headers) {
            true => Range::asked(&head.headers, length),
            false => Range::Whole,
        };
        let (status, content) = match (validators.judge(&head.headers), range) {
            (Verdict::NotModified, _) => (StatusCode::NOT_MODIFIED, None),
            (Verdict::Failed, _) => (StatusCode::PRECONDITION_FAILED, None),
            (Verdict::Send, Range::Beyond) => {
                let content = Content {
                    length: 0,
                    range: Some(value(format!("bytes */{length}"))),
                    body: FileBody::default(),
                };
                (StatusCode::RANGE_NOT_SATISFIABLE, Some(content))
            }
            (Verdict::Send, Range::Part { first, last }) => {
                let content = self.content(&chosen, first..last + 1, head, reach, permit)?;
                let range = Some(value(format!("bytes {first}-{last}/{length}")));
                let content = Content { range, ..content };
                (StatusCode::PARTIAL_CONTENT, Some(content))
            }
            (Verdict::Send, Range::Whole) => {
                let content = self.content(&chosen, 0..length, head, reach, permit)?;
                (StatusCode::OK, Some(content))
            }
        };
        Ok(Draft::new(status, Kind::File { chosen, content }))
    }

    fn content(
        &self,
        chosen: &Chosen,
        part: ops::Range<u64>,
        head: &Parts,
        reach: Reach,
        permit: TakePermit<'_>,
    ) -> io::Result<Content> {
        let length = part.end - part.start;
        let body = match head.method == Method::GET && length > 0 {
            true => match &chosen.version.contents {
                Some(contents) => slice(contents, part).into(),
                None => {
                    let permit = permit()?;
                    FileBody::part_of(
                        self.open_file(&chosen.name, &chosen.version, reach)?,
                        part,
                        permit,
                        self.options.sendfile,
                    )
                }
            },
            false => FileBody::default(),
        };
        Ok(Content {
            length,
            range: None,
            body,
        })
    }
}

/// A part that the bytes have.
fn slice(bytes: &Bytes, part: ops::Range<u64>) -> Bytes {
    let position = |at| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(position(part.start)..position(part.end))
}

impl Draft {
    fn new(status: StatusCode, kind: Kind) -> Self {
        Self { status, kind }
    }

    /// The response. `headers` is an empty map. In a response to GET the server writes the length,
    /// which needs no memory for a value.
    fn write(self, mut headers: HeaderMap, method: &Method) -> Response<FileBody> {
        let Self { status, kind } = self;
        headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        let (length, body) = match kind {
            Kind::File { chosen, content } => {
                let written = write_file(&mut headers, status, &chosen, content);
                rules::write(&chosen.plain.fields, status, &mut headers);
                written
            }
            Kind::Moved(place) => {
                headers.insert(LOCATION, place);
                Default::default()
            }
            Kind::Listing(page, fields) => {
                headers.extend(fields);
                (page.len() as u64, page.into())
            }
            Kind::Text => write_text(&mut headers, status),
            Kind::NotFound(vary) => {
                headers.extend(vary.map(|vary| (VARY, vary)));
                write_text(&mut headers, status)
            }
            Kind::Options => {
                headers.insert(ALLOW, METHODS);
                Default::default()
            }
        };
        let mut response = Response::new(match *method {
            Method::HEAD => FileBody::default(),
            _ => body,
        });
        if method == Method::HEAD && status != StatusCode::NOT_MODIFIED {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// Returns the length that a response to GET has, and the body.
fn write_file(
    headers: &mut HeaderMap,
    status: StatusCode,
    chosen: &Chosen,
    content: Option<Content>,
) -> (u64, FileBody) {
    headers.insert(VARY, chosen.vary.clone());
    if status != StatusCode::NOT_FOUND {
        chosen.version.validators.write(headers);
    }
    let Some(Content {
        length,
        range,
        body,
    }) = content
    else {
        return Default::default();
    };
    if let Some(range) = range {
        headers.insert(CONTENT_RANGE, range);
    }
    if status == StatusCode::RANGE_NOT_SATISFIABLE {
        return (length, body);
    }
    headers.insert(CONTENT_TYPE, chosen.plain.content_type.clone());
    // A range is one of a file, and what the server has compressed itself is no file.
    let is_file = chosen.encoding.is_none() || Encoding::of_name(chosen.name.as_slice()).is_some();
    if status != StatusCode::NOT_FOUND && is_file {
        headers.insert(ACCEPT_RANGES, BYTES);
    }
    if let Some(encoding) = chosen.encoding {
        headers.insert(CONTENT_ENCODING, encoding.name());
    }
    (length, body)
}

/// The name of the status.
fn write_text(headers: &mut HeaderMap, status: StatusCode) -> (u64, FileBody) {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, METHODS);
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from(1));
        }
        _ => {}
    }
    let text = status.canonical_reason().unwrap_or_default();
    headers.insert(CONTENT_TYPE, PLAIN_TEXT);
    let body = Bytes::from_static(text.as_bytes());
    (text.len() as u64, body.into())
}

/// The response if a worker lacks what it may have again later.
pub(super) fn unavailable(method: &Method) -> Response<FileBody> {
    Draft::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Text).write(HeaderMap::new(), method)
}

/// The status if no file can be sent.
fn status_of(error: &io::Error) -> StatusCode {
    let errno = error.raw_os_error().map(Errno::from_raw);
    match error.kind() {
        io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
        // The worker has as many files open as it may. Later some of them are closed.
        io::ErrorKind::QuotaExceeded => StatusCode::SERVICE_UNAVAILABLE,
        // No descriptor was left, in this process or in the system.
        _ if matches!(errno, Some(Errno::EMFILE | Errno::ENFILE)) => {
            tracing::error!(%error, "cannot open a file");
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => {
            tracing::error!(%error, "cannot read a file");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("visible ASCII")
}
