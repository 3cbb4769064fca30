//! The types that a handler takes and returns.

use crate::http::exchange::body::Body;

/// A request as a handler gets it.
///
/// The server refuses a request that is invalid by RFC 9112, so that no handler gets it: a request
/// has one valid `Host` (an HTTP/1.0 request may have none), the target fits the method, and the
/// body is framed by a `Content-Length` or by `chunked` and no other coding. The target is as the
/// client sent it, without its fragment: a path, or a whole URI, or `*` for OPTIONS, or host and
/// port for CONNECT.
///
/// In HTTP/1, if the target names a host, the server sets `Host` to it, and the value that the
/// client sent is lost (RFC 9112 3.2.2). In HTTP/2 the host is in the target, in `Host`, or the
/// same in both. The server refuses a request in which the value of a field begins or ends with
/// white space (RFC 9113 8.2.1). RFC 9113 8.3.1 allows no fragment, but a request with one is not
/// refused: h2 removes the fragment before the server gets the request.
pub type Request = http::Request<Body>;

/// A response. The default body is one piece of bytes, made by `"text".into()`.
pub type Response<B = http_body_util::Full<bytes::Bytes>> = http::Response<B>;
