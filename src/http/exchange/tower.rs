//! A tower service as a hyper service.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http_body::Body;
use hyper::service::Service;
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::http::exchange::connect_info;
use crate::http::exchange::message::{Request, Response};

/// Makes a hyper service of a tower service. [`Prefork::serve`](crate::Prefork::serve) does that
/// itself. If the compiler refuses a service there, it says with this function what the service
/// lacks. Requests to this service do not have axum's `ConnectInfo`, and save its allocations.
///
/// ```
/// use axum::{Router, routing::get};
/// use prefork_server::tower_service;
///
/// let service = tower_service(Router::new().route("/", get(async || "hello")));
/// # let _: prefork_server::TowerService<Router> = service;
/// ```
pub fn tower_service<S, B>(service: S) -> TowerService<S>
where
    S: tower_service::Service<Request, Response = Response<B>, Error: Into<BoxError>>,
    S: Clone + 'static,
    B: Body<Error: Into<BoxError>> + 'static,
{
    TowerService {
        instances: Rc::new(Instances {
            original: service,
            unused: RefCell::default(),
            added: Added::Nothing,
        }),
    }
}

/// As [`tower_service`], with what axum's `ConnectInfo` extracts, if there is the feature `axum`.
pub(crate) fn with_connect_info<S>(service: S) -> TowerService<S> {
    TowerService {
        instances: Rc::new(Instances {
            original: service,
            unused: RefCell::default(),
            added: Added::ConnectInfo,
        }),
    }
}

/// A tower service that responds to the requests of [`Prefork::serve`](crate::Prefork::serve).
///
/// Each request has an instance of the service to itself until the service is ready (`poll_ready`)
/// and has been called with the request. Then another request may have the instance. So a request
/// makes a clone only while the only instance waits to be ready, and allocates nothing.
///
/// ```
/// use std::io::{Write, read_to_string};
///
/// use axum::{Router, routing::get};
/// use prefork_server::{BoxError, TestServer, TowerService, Worker, tower_service};
///
/// async fn app(worker: Worker) -> Result<TowerService<Router>, BoxError> {
///     let slot = worker.slot();
///     let router = Router::new().route("/", get(async move || format!("slot {slot}")));
///     Ok(tower_service(router))
/// }
///
/// let server = TestServer::start(app)?;
/// let mut client = std::net::TcpStream::connect(server.address())?;
/// client.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
/// assert!(read_to_string(client)?.ends_with("slot 0"));
/// # Ok::<(), BoxError>(())
/// ```
pub struct TowerService<S> {
    instances: Rc<Instances<S>>,
}

struct Instances<S> {
    /// It is cloned, and never polled or called.
    original: S,
    /// An instance that is not in use. Between a call and the next `poll_ready` it holds nothing
    /// reserved.
    unused: RefCell<Option<S>>,
    added: Added,
}

/// What each request gets before the service has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Added {
    Nothing,
    /// With the feature `axum`.
    ConnectInfo,
}

impl<S: Clone> Instances<S> {
    fn take(&self) -> S {
        let unused = self.unused.borrow_mut().take();
        unused.unwrap_or_else(|| self.original.clone())
    }

    fn put_back(&self, instance: S) {
        let surplus = self.unused.borrow_mut().replace(instance);
        // After the borrow: this calls the user's code.
        drop(surplus);
    }
}

impl<S, B> Service<Request> for TowerService<S>
where
    S: tower_service::Service<Request, Response = Response<B>> + Clone,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = TowerFuture<S, S::Future>;

    fn call(&self, request: Request) -> Self::Future {
        TowerFuture {
            instances: Rc::clone(&self.instances),
            step: Step::Waiting {
                instance: None,
                request: Some(request),
            },
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for TowerService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = &self.instances.original;
        f.debug_tuple("TowerService").field(service).finish()
    }
}

pin_project! {
    /// The future of a [`TowerService`]: waits until the service is ready, then calls it.
    ///
    /// ```
    /// use hyper::service::Service;
    /// use prefork_server::{Request, Response, TowerFuture, TowerService};
    ///
    /// /// Writes a line for each request. It boxes no future.
    /// struct Logged<S>(TowerService<S>);
    ///
    /// impl<S, B> Service<Request> for Logged<S>
    /// where
    ///     S: tower::Service<Request, Response = Response<B>> + Clone,
    /// {
    ///     type Response = Response<B>;
    ///     type Error = S::Error;
    ///     type Future = TowerFuture<S, S::Future>;
    ///
    ///     fn call(&self, request: Request) -> Self::Future {
    ///         println!("{} {}", request.method(), request.uri());
    ///         self.0.call(request)
    ///     }
    /// }
    /// ```
    #[must_use = "futures do nothing unless they are polled"]
    pub struct TowerFuture<S, F> {
        instances: Rc<Instances<S>>,
        #[pin]
        step: Step<S, F>,
    }
}

pin_project! {
    #[project = StepPinned]
    enum Step<S, F> {
        // The service is not ready. `instance` is `None` before the first poll.
        Waiting { instance: Option<S>, request: Option<Request> },
        Called { #[pin] response: F },
    }
}

impl<S, B> Future for TowerFuture<S, S::Future>
where
    S: tower_service::Service<Request, Response = Response<B>> + Clone,
{
    type Output = Result<Response<B>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let StepPinned::Waiting { instance, request } = this.step.as_mut().project() {
            // An instance that panics or fails is dropped.
            let mut ready = instance.take().unwrap_or_else(|| this.instances.take());
            match ready.poll_ready(cx) {
                Poll::Pending => {
                    *instance = Some(ready);
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {}
            }
            let mut request = request.take().expect("it is called once");
            if this.instances.added == Added::ConnectInfo {
                connect_info::add(&mut request);
            }
            let response = ready.call(request);
            this.instances.put_back(ready);
            this.step.set(Step::Called { response });
        }
        match this.step.project() {
            StepPinned::Called { response } => Poll::Ready(ready!(response.poll(cx))),
            StepPinned::Waiting { .. } => unreachable!("it was called above"),
        }
    }
}

impl<S, F> fmt::Debug for TowerFuture<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerFuture").finish_non_exhaustive()
    }
}
