//! A service from a function whose types need no annotations.

use hyper::service::{Service, service_fn};

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
/// [`service_fn`](crate::service_fn) and write the types. What both make is a service of hyper, and
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
pub fn handler<F, R>(
    handle: F,
) -> impl Service<Request, Response = Response, Error = BoxError, Future = R>
where
    F: Fn(Request) -> R,
    R: Future<Output = Result<Response, BoxError>>,
{
    service_fn(handle)
}
