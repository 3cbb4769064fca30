//! The streams of one connection: their service, and what is known of those that wait for their
//! client.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use http::Response;
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;

use crate::http::exchange::body::ResponseBody;
use crate::http::exchange::service::{Guarded, Handler, ResponseFuture};
use crate::http::http2::budget::ResponseBudget;
use crate::http::http2::tasks::{Task, Tasks};
use crate::http::http2::tracked_body::TrackedBody;
use crate::http::registry::list::Registry;
use crate::http::registry::state::ConnState;
use crate::http::registry::timeouts::Deadline;
use crate::http::registry::wheel::Tick;

/// See the module's head.
pub(crate) struct Streams {
    connection: Arc<ConnState>,
    /// Those that anybody still works on: a handler, whoever has the request's body, or hyper
    /// with pieces of the response's. The others are removed now and then.
    open: RefCell<Vec<Weak<ConnState>>>,
    /// The one whose request was passed on last: what hyper spawns next is its task.
    called: Cell<Option<Arc<ConnState>>>,
    spawned: RefCell<Vec<Task>>,
    /// When the client was told GOAWAY.
    told: Cell<Option<Tick>>,
}

/// Streams whose client takes too long.
#[derive(Default)]
pub(crate) struct Overdue {
    /// They wait for more of the request's body.
    pub(crate) bodies: Vec<Arc<ConnState>>,
    /// Nothing of their response is taken.
    pub(crate) responses: Vec<Arc<ConnState>>,
    /// Since when the others have waited, at the most.
    pub(crate) waiting_since: Option<Tick>,
}

impl Streams {
    pub(crate) fn new(connection: &Arc<ConnState>) -> Self {
        Self {
            connection: Arc::clone(connection),
            open: RefCell::default(),
            called: Cell::default(),
            spawned: RefCell::default(),
            told: Cell::default(),
        }
    }

    fn begin(&self) -> Arc<ConnState> {
        let stream = Arc::new(ConnState::of_stream(&self.connection));
        let mut open = self.open.borrow_mut();
        if open.len() == open.capacity() {
            open.retain(|stream| stream.strong_count() > 0);
        }
        open.push(Arc::downgrade(&stream));
        self.called.set(Some(Arc::clone(&stream)));
        stream
    }

    /// The client was told GOAWAY.
    pub(crate) fn end(&self, now: Tick) {
        self.told.set(Some(now));
    }

    /// Whether the client was told GOAWAY so long ago that it has heard it. h2 itself refuses
    /// streams once the client has acknowledged the PING after it, which a client may never do.
    fn are_over(&self, registry: &Registry) -> bool {
        let told = self.told.get();
        told.is_some_and(|told| registry.is_round_trip_over(told))
    }

    /// hyper calls the service and spawns what becomes of that, and nothing in between. What it
    /// spawns without a call is the task of a tunnel.
    pub(crate) fn spawn(&self, future: Pin<Box<dyn Future<Output = ()>>>) {
        let stream = self.called.take();
        self.spawned.borrow_mut().push(Task { future, stream });
    }

    pub(crate) fn hand_over(&self, tasks: &mut Tasks) {
        for task in self.spawned.borrow_mut().drain(..) {
            tasks.insert(task);
        }
    }

    /// Whether any is.
    pub(crate) fn are_open(&self) -> bool {
        let mut open = self.open.borrow_mut();
        open.retain(|stream| stream.strong_count() > 0);
        !open.is_empty()
    }

    /// Streams that keep what the client does not take, although it was heard of since.
    pub(crate) fn in_the_way(&self, registry: &Registry, heard: Tick) -> Vec<Arc<ConnState>> {
        if self.connection.write_blocked_since().is_some() {
            return Vec::new();
        }
        let open = self.open.borrow();
        let open = open.iter().filter_map(Weak::upgrade);
        open.filter(|stream| registry.is_in_the_way(stream, heard))
            .collect()
    }

    pub(crate) fn overdue(&self, registry: &Registry) -> Overdue {
        let mut overdue = Overdue::default();
        let reads_nothing = self.connection.write_blocked_since().is_some();
        for stream in self.open.borrow().iter().filter_map(Weak::upgrade) {
            let waiting = match registry.overdue(&stream) {
                Some(Deadline::Body) => {
                    overdue.bodies.push(stream);
                    continue;
                }
                // The connection has a deadline of its own for that; if it is met after all, the
                // stream is looked at again.
                Some(_) if reads_nothing => Some(registry.now()),
                Some(_) => {
                    overdue.responses.push(stream);
                    continue;
                }
                None => {
                    let since = [stream.body_awaited_since(), stream.write_blocked_since()];
                    since.into_iter().flatten().min()
                }
            };
            overdue.waiting_since = [overdue.waiting_since, waiting].into_iter().flatten().min();
        }
        overdue
    }
}

/// The service of a connection: each request gets a state of its own.
pub(crate) struct StreamService<S> {
    inner: Rc<S>,
    registry: Rc<Registry>,
    streams: Rc<Streams>,
    budget: Rc<ResponseBudget>,
}

impl<S> StreamService<S> {
    pub(crate) fn new(
        inner: &Rc<S>,
        registry: &Rc<Registry>,
        streams: &Rc<Streams>,
        budget: &Rc<ResponseBudget>,
    ) -> Self {
        Self {
            inner: Rc::clone(inner),
            registry: Rc::clone(registry),
            streams: Rc::clone(streams),
            budget: Rc::clone(budget),
        }
    }
}

impl<S> Service<http::Request<Incoming>> for StreamService<S>
where
    S: Handler,
{
    type Response = Response<TrackedBody<ResponseBody<S::Body>>>;
    type Error = h2::Error;
    type Future = Answering<S::Future, S::Body>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        if self.streams.are_over(&self.registry) {
            return Answering::Refused;
        }
        let stream = self.streams.begin();
        let service = Guarded {
            inner: Rc::clone(&self.inner),
            registry: Rc::clone(&self.registry),
            state: Arc::clone(&stream),
        };
        Answering::Given {
            answer: service.call(request),
            stream,
            budget: Rc::clone(&self.budget),
        }
    }
}

pin_project! {
    /// An answer whose body is watched on its way.
    #[project = AnsweringPinned]
    pub(crate) enum Answering<F, B> {
        Given {
            #[pin]
            answer: ResponseFuture<F, B>,
            stream: Arc<ConnState>,
            budget: Rc<ResponseBudget>,
        },
        // The client may ask again elsewhere (RFC 9113 8.7).
        Refused,
    }
}

impl<F, B> Future for Answering<F, B>
where
    ResponseFuture<F, B>: Future<Output = Result<Response<ResponseBody<B>>, Infallible>>,
{
    /// hyper resets the stream with the reason that is in the error.
    type Output = Result<Response<TrackedBody<ResponseBody<B>>>, h2::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let AnsweringPinned::Given {
            answer,
            stream,
            budget,
        } = self.project()
        else {
            return Poll::Ready(Err(h2::Reason::REFUSED_STREAM.into()));
        };
        let Ok(response) = ready!(answer.poll(cx));
        Poll::Ready(Ok(
            response.map(|body| TrackedBody::new(body, stream, budget))
        ))
    }
}
