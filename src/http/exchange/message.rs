//! The types that a handler takes and returns.

use crate::http::exchange::body::Body;

/// A request as handlers get it.
///
/// What is no request by RFC 9112 never becomes one: there is one valid `Host` (HTTP/1.0 may lack
/// it), the target fits the method, the body is framed by a `Content-Length` or by `chunked` and no
/// other coding. The target is as it was sent, less a fragment: a path, or a whole URI, or `*` for
/// OPTIONS, or host and port for CONNECT. If it names a host, `Host` names the same, whatever the
/// client sent (RFC 9112 3.2.2). That is for HTTP/1; in HTTP/2 the host is in the target, in
/// `Host`, or the same in both, and a field's value that begins or ends with white space is refused
/// (RFC 9113 8.2.1). A fragment is left out in HTTP/2 too, though RFC 9113 8.3.1 has no place for
/// one: h2 has removed it when the server gets the request.
pub type Request = http::Request<Body>;

/// An answer. The default body is one piece of bytes, made by `"text".into()`.
pub type Response<B = http_body_util::Full<bytes::Bytes>> = http::Response<B>;
