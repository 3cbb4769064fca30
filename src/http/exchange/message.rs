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
///
/// ```
/// use http::{Method, StatusCode};
/// use http_body_util::BodyExt;
/// use prefork_server::{BoxError, Request, Response};
///
/// async fn respond(request: Request) -> Result<Response, BoxError> {
///     let mut response = Response::default();
///     match (request.method(), request.uri().path()) {
///         (&Method::GET, "/") => *response.body_mut() = "hello\n".into(),
///         (&Method::POST, "/echo") => {
///             let body = request.into_body().collect().await?;
///             *response.body_mut() = body.to_bytes().into();
///         }
///         _ => *response.status_mut() = StatusCode::NOT_FOUND,
///     }
///     Ok(response)
/// }
/// ```
pub type Request = http::Request<Body>;

/// A response. The default body is one piece of bytes, made by `"text".into()`.
///
/// A body may be a stream. This one is of events (SSE), which the server ends when the worker
/// drains:
///
/// ```
/// use std::convert::Infallible;
/// use std::io::{Write, read_to_string};
///
/// use bytes::Bytes;
/// use futures_util::stream::{self, Stream, StreamExt};
/// use http_body_util::StreamBody;
/// use hyper::body::Frame;
/// use prefork_server::{Request, Response, TestServer, service_fn};
///
/// type Event = Result<Frame<Bytes>, Infallible>;
///
/// async fn events(
///     _request: Request,
/// ) -> Result<Response<StreamBody<impl Stream<Item = Event>>>, http::Error> {
///     let events = stream::iter(["tea", "cake"]);
///     let events = events.map(|it| Ok(Frame::data(format!("data: {it}\n\n").into())));
///     Response::builder()
///         .header("content-type", "text/event-stream")
///         .body(StreamBody::new(events))
/// }
///
/// let server = TestServer::start(async |_worker| Ok(service_fn(events)))?;
/// let mut client = std::net::TcpStream::connect(server.address())?;
/// client.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
/// assert!(read_to_string(client)?.ends_with("\r\n\r\ndata: tea\n\ndata: cake\n\n"));
/// # Ok::<(), prefork_server::BoxError>(())
/// ```
pub type Response<B = http_body_util::Full<bytes::Bytes>> = http::Response<B>;
