//! The streams of one connection: their service, and those that wait for their client.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use http::Response;
use hyper::body::Incoming;
use hyper::service::Service;

use crate::http::http2::budget::ResponseBudget;
use crate::http::http2::kept_bodies::KeptBodies;
use crate::http::http2::response::{StreamHandler, StreamResponse, zeros};
use crate::http::http2::tasks::{Task, Tasks};
use crate::http::http2::tracked_body::TrackedBody;
use crate::http::registry::list::Registry;
use crate::http::registry::state::ConnState;
use crate::http::registry::timeouts::Deadline;
use crate::http::registry::wheel::Tick;

/// The streams of one connection.
pub(crate) struct Streams {
    connection: Arc<ConnState>,
    /// The states of the open streams. A stream is open while its handler runs, the request's body
    /// exists, or hyper has pieces of the response. Closed streams are removed now and then.
    open: RefCell<Vec<Open>>,
    /// What the next future that hyper spawns belongs to.
    called: Cell<Called>,
    tunnels: Cell<Tunnels>,
    spawned: RefCell<Vec<Task>>,
    pub(crate) kept: Rc<KeptBodies>,
    /// When the server sent GOAWAY.
    goaway_sent: Cell<Option<Tick>>,
}

/// A stream that may be open.
struct Open {
    state: Weak<ConnState>,
    since: Tick,
}

/// What the service was called for since the last future was spawned.
#[derive(Default)]
enum Called {
    /// Nothing: a future is the task of a tunnel.
    #[default]
    Nothing,
    /// A request that was refused.
    Refused,
    /// The request of this stream.
    Stream(Arc<ConnState>),
}

/// Whether a stream of the connection has become a tunnel (CONNECT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tunnels {
    None,
    Some,
}

/// Streams whose client takes too long.
#[derive(Default)]
pub(crate) struct Overdue {
    /// Streams that wait for more of the request's body.
    pub(crate) bodies: Vec<Arc<ConnState>>,
    /// Streams whose client takes no bytes of the response.
    pub(crate) responses: Vec<Arc<ConnState>>,
    /// Since when the longest of the other waits lasts.
    pub(crate) waiting_since: Option<Tick>,
}

impl Streams {
    pub(crate) fn new(connection: &Arc<ConnState>) -> Self {
        Self {
            connection: Arc::clone(connection),
            open: RefCell::default(),
            called: Cell::default(),
            tunnels: Cell::new(Tunnels::None),
            spawned: RefCell::default(),
            kept: Rc::default(),
            goaway_sent: Cell::default(),
        }
    }

    fn begin(&self, now: Tick) -> Arc<ConnState> {
        let stream = Arc::new(ConnState::of_stream(&self.connection));
        let mut open = self.open.borrow_mut();
        if open.len() == open.capacity() {
            open.retain(|stream| stream.state.strong_count() > 0);
        }
        open.push(Open {
            state: Arc::downgrade(&stream),
            since: now,
        });
        self.called.set(Called::Stream(Arc::clone(&stream)));
        stream
    }

    /// The server sends GOAWAY.
    pub(crate) fn end(&self, now: Tick) {
        self.goaway_sent.set(Some(now));
    }

    /// Whether the server sent GOAWAY so long ago that the client has received it. h2 itself
    /// refuses streams once the client has acknowledged the PING that follows the GOAWAY, but a
    /// client may never do that.
    pub(crate) fn are_over(&self, registry: &Registry) -> bool {
        let sent = self.goaway_sent.get();
        sent.is_some_and(|sent| registry.is_round_trip_over(sent))
    }

    /// Whether a stream was ever a tunnel. When the server has ended its half of one, only the
    /// handler still has the stream.
    pub(crate) fn tunnels(&self) -> Tunnels {
        self.tunnels.get()
    }

    /// Stores a future that hyper spawns. hyper calls the service and then spawns the future that
    /// it returned, with nothing in between. A future without a call is the task of a tunnel.
    pub(crate) fn spawn(&self, future: Pin<Box<dyn Future<Output = ()>>>) {
        let stream = match self.called.take() {
            Called::Stream(stream) => Some(stream),
            Called::Refused => None,
            Called::Nothing => {
                self.tunnels.set(Tunnels::Some);
                None
            }
        };
        self.spawned.borrow_mut().push(Task { future, stream });
    }

    /// Moves the spawned futures to the tasks.
    pub(crate) fn move_spawned(&self, tasks: &mut Tasks) {
        for task in self.spawned.borrow_mut().drain(..) {
            tasks.insert(task);
        }
    }

    /// Whether any stream is open.
    pub(crate) fn are_open(&self) -> bool {
        let mut open = self.open.borrow_mut();
        open.retain(|stream| stream.state.strong_count() > 0);
        !open.is_empty() || !self.kept.is_empty()
    }

    /// Whether a stream has been open for a second, or is a tunnel. It may be open for long.
    pub(crate) fn are_long(&self, registry: &Registry) -> bool {
        let open = self.open.borrow();
        let mut open = open.iter().filter(|stream| stream.state.strong_count() > 0);
        open.any(|stream| registry.is_second_over(stream.since)) || self.tunnels() == Tunnels::Some
    }

    /// Streams whose response the client does not take, although it has sent bytes since then.
    /// `last_read` is when bytes of the client were read last.
    pub(crate) fn blocking(&self, registry: &Registry, last_read: Tick) -> Vec<Arc<ConnState>> {
        if self.connection.write_blocked_since().is_some() {
            return Vec::new();
        }
        let open = self.open.borrow();
        let open = open.iter().filter_map(|stream| stream.state.upgrade());
        open.filter(|stream| registry.is_in_the_way(stream, last_read))
            .collect()
    }

    /// Streams whose client takes longer than a timeout allows.
    pub(crate) fn overdue(&self, registry: &Registry) -> Overdue {
        let mut overdue = Overdue::default();
        let reads_nothing = self.connection.write_blocked_since().is_some();
        let open = self.open.borrow();
        for stream in open.iter().filter_map(|stream| stream.state.upgrade()) {
            let waiting = match registry.overdue(&stream) {
                Some(Deadline::Body) => {
                    overdue.bodies.push(stream);
                    continue;
                }
                // The connection has a write timeout of its own. If the client reads again before
                // that, this stream is checked again.
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
pub(crate) struct StreamService {
    inner: Rc<dyn StreamHandler>,
    registry: Rc<Registry>,
    streams: Rc<Streams>,
    budget: Rc<ResponseBudget>,
}

impl StreamService {
    pub(crate) fn new(
        inner: &Rc<dyn StreamHandler>,
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

impl Service<http::Request<Incoming>> for StreamService {
    type Response = Response<TrackedBody>;
    type Error = h2::Error;
    type Future = StreamFuture;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let spent = self.budget.frames.spent_in_replay();
        let is_replaying = self.budget.frames.is_replaying();
        if spent == 0 && (is_replaying || self.streams.are_over(&self.registry)) {
            self.streams.called.set(Called::Refused);
            return StreamFuture::Refused;
        }
        let stream = self.streams.begin(self.registry.now());
        let response = match spent {
            0 => Rc::clone(&self.inner).call(request, &self.registry, &stream),
            // The last request of a replay. The client has had its response.
            length => zeros(length),
        };
        StreamFuture::Served {
            response: Some(response),
            stream,
            budget: Rc::clone(&self.budget),
            kept: Rc::clone(&self.streams.kept),
        }
    }
}

/// The future of a response whose body is tracked.
pub(crate) enum StreamFuture {
    Served {
        /// `None` after its head.
        response: Option<StreamResponse>,
        stream: Arc<ConnState>,
        budget: Rc<ResponseBudget>,
        kept: Rc<KeptBodies>,
    },
    /// The client may retry the request elsewhere (RFC 9113 8.7).
    Refused,
}

impl Future for StreamFuture {
    /// On an error hyper resets the stream with the reason in the error.
    type Output = Result<Response<TrackedBody>, h2::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self::Served {
            response,
            stream,
            budget,
            kept,
        } = self.get_mut()
        else {
            return Poll::Ready(Err(h2::Reason::REFUSED_STREAM.into()));
        };
        let polled = response.as_mut().expect("it is polled until its head");
        let head = ready!(polled.as_mut().poll_head(cx));
        let body = response.take().expect("it was there");
        let body = TrackedBody::new(body, stream, budget, kept);
        Poll::Ready(Ok(Response::from_parts(head, body)))
    }
}
