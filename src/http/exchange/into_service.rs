//! What `serve` takes: a hyper service, or with the feature `tower` a tower service.

use http_body::Body;
use hyper::service::Service;

use crate::error::BoxError;
use crate::http::exchange::message::{Request, Response};
#[cfg(feature = "tower")]
use crate::http::exchange::tower::{TowerService, with_connect_info};

/// A service that [`Prefork::serve`](crate::Prefork::serve) takes.
///
/// | service | feature |
/// |---|---|
/// | a `hyper::service::Service<Request>`, such as [`service_fn`](crate::service_fn) | none |
/// | a `tower::Service<Request>` that is `Clone`, such as axum's `Router` | `tower` |
///
/// The service's error converts into a [`BoxError`], and the body of its response is any
/// `http_body::Body` whose error does. The service, its futures and its bodies need not be `Send`.
/// The compiler finds `Kind`, so that no program names it. In HTTP/2 the server takes the data of a
/// body by [`Buf::copy_to_bytes`](bytes::Buf::copy_to_bytes), which copies nothing from `Bytes` and
/// [`Piece`](crate::Piece).
///
/// A tower service that takes another body than [`Body`](crate::Body) gets one by `map_request` of
/// `tower::ServiceExt`: `service.map_request(|request: Request| request.map(Other::new))`. The
/// [guide](crate::guide) has a page with a program for each framework.
///
/// ```no_run
/// use prefork_server::{Error, IntoService, Prefork};
///
/// /// Serves any kind of service.
/// fn serve<S, Kind>(service: impl Fn() -> S) -> Result<(), Error>
/// where
///     S: IntoService<Kind>,
/// {
///     Prefork::bind("127.0.0.1:8080").serve(async |_worker| Ok(service()))
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`serve` cannot use `{Self}`",
    label = "the app returns this",
    note = "an app returns a hyper service, such as `service_fn(handler)`, or with the feature \
            `tower` a tower service that is `Clone`, such as axum's `Router`",
    note = "it takes a `prefork_server::Request`, and its error converts into \
            `prefork_server::BoxError`, as the error of its response's body does",
    note = "its request is that of `http` 1: axum 0.7, hyper 1, tonic 0.12, warp 0.4 or newer",
    note = "an axum `Router<S>` still needs its state: `router.with_state(..)` gives it, and \
            `.into_make_service()` is not called",
    note = "for a tower service, `Ok(prefork_server::tower_service(service))` makes the compiler \
            say what is missing"
)]
pub trait IntoService<Kind> {
    /// The body of its responses.
    type Body: Body<Error: Into<BoxError>> + 'static;

    /// The service that gets the requests.
    type Service: Service<Request, Response = Response<Self::Body>, Error = Self::Error> + 'static;

    /// The error of the service, for which the client gets 500.
    type Error: Into<BoxError>;

    /// Makes the service. The server calls it once in each worker.
    fn into_service(self) -> Self::Service;
}

/// The kind of services that implement `hyper::service::Service`.
#[derive(Debug)]
pub enum Hyper {}

impl<S, B> IntoService<Hyper> for S
where
    S: Service<Request, Response = Response<B>, Error: Into<BoxError>> + 'static,
    B: Body<Error: Into<BoxError>> + 'static,
{
    type Body = B;
    type Service = S;
    type Error = S::Error;

    fn into_service(self) -> S {
        self
    }
}

/// The kind of services that implement `tower::Service`.
#[cfg(feature = "tower")]
#[derive(Debug)]
pub enum Tower {}

#[cfg(feature = "tower")]
impl<S, B> IntoService<Tower> for S
where
    S: tower_service::Service<Request, Response = Response<B>, Error: Into<BoxError>>,
    S: Clone + 'static,
    B: Body<Error: Into<BoxError>> + 'static,
{
    type Body = B;
    type Service = TowerService<S>;
    type Error = S::Error;

    fn into_service(self) -> TowerService<S> {
        with_connect_info(self)
    }
}
