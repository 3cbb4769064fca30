//! Services from functions.

use std::fmt;

use http_body::Body;
use hyper::service::Service;

use crate::error::BoxError;
use crate::http::exchange::message::{Request, Response};

/// Makes a service from a function.
///
/// The response has a body of one piece and the error is any error, so closures need no type
/// annotations:
///
/// ```no_run
/// use prefork_server::{Exit, Prefork, Response, handler};
///
/// fn main() -> Exit {
///     Prefork::bind("127.0.0.1:8080")
///         .serve(async |_worker| {
///             Ok(handler(async |request| {
///                 let name = request.uri().path().trim_start_matches('/');
///                 Ok(Response::new(format!("Hello, {name}!").into()))
///             }))
///         })
///         .into()
/// }
/// ```
///
/// If the function returns an error, the log has it, and the client gets 500, or 408, 413 or 400 if
/// the error came from the request's body. For a body of another type, such as a stream, use
/// [`service_fn`] and write the types. What both make is a service of hyper, and
/// layers of tower take a service of tower: `ServiceBuilder::service_fn(hello)` puts them around an
/// `async fn hello(Request) -> Result<Response, BoxError>`.
///
/// The future must not borrow from the function, since both live on their own. A closure that needs
/// something of its worker clones it for each request:
///
/// ```
/// use prefork_server::{BoxError, Request, Response, Worker, handler};
/// use hyper::service::Service;
///
/// fn app(worker: Worker) -> impl Service<Request, Response = Response, Error = BoxError> {
///     handler(move |_request| {
///         let worker = worker.clone();
///         async move { Ok(Response::new(format!("worker {}", worker.slot()).into())) }
///     })
/// }
/// ```
pub fn handler<F, R>(handle: F) -> ServiceFn<F>
where
    F: Fn(Request) -> R,
    R: Future<Output = Result<Response, BoxError>>,
{
    ServiceFn(handle)
}

/// Makes a service from a function whose response has any body, and whose error is any error.
///
/// Here the response has the body of the request, which is sent back while it comes:
///
/// ```
/// use std::convert::Infallible;
/// use std::io::{Write, read_to_string};
///
/// use prefork_server::{Body, Request, Response, TestServer, service_fn};
///
/// async fn echo(request: Request) -> Result<Response<Body>, Infallible> {
///     Ok(Response::new(request.into_body()))
/// }
///
/// let server = TestServer::start(async |_worker| Ok(service_fn(echo)))?;
/// let mut client = std::net::TcpStream::connect(server.address())?;
/// client.write_all(b"POST / HTTP/1.0\r\ncontent-length: 3\r\n\r\ntea")?;
/// assert!(read_to_string(client)?.ends_with("\r\n\r\ntea"));
/// # Ok::<(), prefork_server::BoxError>(())
/// ```
// It wants of the types what `serve` wants, unlike hyper's `service_fn`. So the compiler
// says which type is wrong, and knows that of the request.
pub fn service_fn<F, R, B, E>(respond: F) -> ServiceFn<F>
where
    F: Fn(Request) -> R,
    R: Future<Output = Result<Response<B>, E>>,
    B: Body<Error: Into<BoxError>> + 'static,
    E: Into<BoxError>,
{
    ServiceFn(respond)
}

/// A function as a service: what [`handler`] and [`service_fn`] return.
///
/// ```
/// use std::future::{Ready, ready};
///
/// use prefork_server::{BoxError, Request, Response, ServiceFn, handler};
///
/// /// One type for several functions.
/// type App = ServiceFn<fn(Request) -> Ready<Result<Response, BoxError>>>;
///
/// fn app(is_closed: bool) -> App {
///     match is_closed {
///         true => handler(|_request| ready(Err("closed".into()))),
///         false => handler(|_request| ready(Ok(Response::new("open".into())))),
///     }
/// }
/// # app(true);
/// ```
#[derive(Clone, Copy)]
pub struct ServiceFn<F>(F);

impl<F, R, B, E> Service<Request> for ServiceFn<F>
where
    F: Fn(Request) -> R,
    R: Future<Output = Result<Response<B>, E>>,
{
    type Response = Response<B>;
    type Error = E;
    type Future = R;

    fn call(&self, request: Request) -> R {
        (self.0)(request)
    }
}

impl<F> fmt::Debug for ServiceFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceFn").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Empty;

    use super::*;

    #[test]
    fn the_compiler_knows_the_type_of_the_request() {
        let service = service_fn(async |request| {
            let mut response = Response::new(Empty::<bytes::Bytes>::new());
            *response.version_mut() = request.version();
            Ok::<_, Infallible>(response)
        });
        assert_eq!(format!("{service:?}"), "ServiceFn { .. }");
    }
}
