//! Serves plain requests, one after the other. A connection finds each request in its input, writes
//! the response into the stream's buffer, and sends the buffer when no further request has come.

use std::any::Any;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::response::Parts;
use http::{Response, Version};
use http_body::Body;
use hyper::service::Service;
use pin_project_lite::pin_project;

use crate::http::conn::protocol::Failure;
use crate::http::conn::socket::Socket;
use crate::http::conn::stream::{READ_AT_ONCE, Stream};
use crate::http::exchange::body::ResponseBody;
use crate::http::exchange::lifecycle::{
    Asks, Exchange, NOT_FINAL, ResponseSource, server_response,
};
use crate::http::exchange::message::Request;
use crate::http::exchange::request_line::RequestLine;
use crate::http::exchange::service::{Guarded, Handler};
use crate::http::http1::head::{self, Found, Head};
use crate::http::http1::head_cache::{HeadCache, NewValues};
use crate::http::http1::input::{Input, InputBuffer, SocketInput};
use crate::http::http1::resumed::Resumed;
use crate::http::http1::sending::{Failed, Sending, Start};
use crate::http::http1::shared::Shared;
use crate::http::http1::turn::Turn;
use crate::http::http1::write::{self, AfterHead, Wanted};
use crate::http::options::DateHeader;
use crate::pool::field_maps;

/// A connection that is served without hyper, one plain request after the other.
///
/// | current | input | after | output |
/// |---|---|---|---|
/// | `Vacant` | read and not parsed; an empty buffer is returned | any | any |
/// | `Handler` | begins with the head, if the head is `InInput` | as the request says | any |
/// | `Body` | the same | as the request or the response says | any, then `Unflushed` |
///
/// `After::Close` with `Vacant` ends the connection.
pub(crate) struct Direct<I, S: Handler> {
    stream: Stream<I>,
    guarded: Guarded<S>,
    /// Begins again with each request.
    exchange: Exchange,
    shared: Rc<Shared>,
    input: Input,
    /// The head of the current request. hyper gets it if the response is not plain.
    head: Head,
    /// Of the fields of the current request.
    new_values: NewValues,
    wanted: Wanted,
    after: After,
    output: Output,
    cache: HeadCache,
    /// At one address while the connection exists, so that a request allocates nothing for it.
    current: Pin<Box<Current<S::Future, S::Body>>>,
}

pin_project! {
    /// The current step in serving a request.
    #[project = CurrentPinned]
    enum Current<F, B: Body> {
        Vacant,
        Handler { #[pin] handler: F },
        Body { #[pin] sending: Sending<B> },
    }
}

/// The step after the current response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    NextRequest,
    Close,
}

/// Whether the stream's buffer may hold responses that are not sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Flushed,
    Unflushed,
}

/// Why [`Direct`] stops serving the connection.
pub(crate) enum Outcome<B> {
    /// The connection ends.
    Over(Result<(), Failure>),
    /// hyper serves it from now on, and sends this response first, if there is one.
    NotPlain(Option<Box<Response<Option<B>>>>),
}

impl<B> From<io::Error> for Outcome<B> {
    fn from(error: io::Error) -> Self {
        Self::Over(Err(Failure::Stream(error)))
    }
}

/// The result of a step. `None`: take the next step.
type Step<B> = Option<Outcome<B>>;

impl<I, S> Direct<I, S>
where
    I: Socket,
    S: Handler,
{
    pub(crate) fn new(mut stream: Stream<I>, guarded: Guarded<S>, shared: Rc<Shared>) -> Self {
        let (buffer, socket) = match stream.input().is_empty() {
            true => (InputBuffer::Absent, SocketInput::Unknown),
            // The bytes came with a short read, as most do. If not, the socket is readable.
            false if stream.is_bare() => (InputBuffer::Taken, SocketInput::Empty),
            false => (InputBuffer::Taken, SocketInput::Unknown),
        };
        Self {
            stream,
            exchange: Exchange::new(&guarded.registry, &guarded.state),
            guarded,
            shared,
            input: Input {
                buffer,
                part: 0,
                socket,
            },
            head: Head::default(),
            new_values: NewValues::All,
            wanted: Wanted::Content,
            after: After::NextRequest,
            output: Output::Flushed,
            cache: HeadCache::default(),
            current: Box::pin(Current::Vacant),
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<S::Body>> {
        if self.guarded.registry.http.date_header == DateHeader::Sent {
            self.shared.date.renew();
        }
        let polled = self.poll_requests(cx);
        if polled.is_pending() {
            // Bytes may come until the next poll.
            self.input.socket = SocketInput::Unknown;
        }
        polled
    }

    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<S::Body>> {
        let mut turn = Turn::default();
        loop {
            // One `catch_unwind` for all calls of the user's code: with one for each call, each
            // result would be moved once more. The assertion holds because what a panic has left in
            // an unknown state is dropped and not used again.
            let steps = AssertUnwindSafe(|| self.poll_steps(cx, &mut turn));
            let step = match catch_unwind(steps) {
                Ok(Poll::Pending) if self.exchange.is_under_way() => {
                    return self.poll_while_pending(cx);
                }
                Ok(polled) => return polled,
                Err(payload) => self.on_panic(payload),
            };
            if let Some(outcome) = step {
                return Poll::Ready(outcome);
            }
        }
    }

    fn poll_steps(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<Outcome<S::Body>> {
        loop {
            let step = match self.current.as_mut().project() {
                CurrentPinned::Vacant => ready!(self.poll_vacant(cx, turn)),
                CurrentPinned::Handler { handler } => match ready!(handler.poll(cx)) {
                    Ok(response) if self.exchange.permits(response.status()) => {
                        let (head, body) = response.into_parts();
                        self.respond(head, Some(body), ResponseSource::Handler)
                    }
                    failed => {
                        let error = failed.map_or_else(Into::into, |_| NOT_FINAL.into());
                        self.name_request();
                        let (head, body, source) = server_response(self.exchange.failed(&*error));
                        self.respond(head, body, source)
                    }
                },
                CurrentPinned::Body { sending } => {
                    let outcome = ready!(sending.poll(&mut self.stream, turn, cx));
                    self.end_body(outcome)
                }
            };
            if let Some(outcome) = step {
                return Poll::Ready(outcome);
            }
        }
    }

    /// The handler has panicked, or the body of its response.
    fn on_panic(&mut self, payload: Box<dyn Any + Send>) -> Step<S::Body> {
        if !self.exchange.is_under_way() {
            resume_unwind(payload);
        }
        self.name_request();
        let status = self.exchange.panicked(&*payload);
        if let CurrentPinned::Body { .. } = self.current.as_mut().project() {
            return self.end_response(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let (head, body, source) = server_response(status);
        self.respond(head, body, source)
    }

    /// Notes for the log which request fails.
    fn name_request(&mut self) {
        let head = self.head.bytes(self.stream.input());
        self.exchange.line = RequestLine::of_head(head);
    }

    /// Looks for the next request.
    fn poll_vacant(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<Step<S::Body>> {
        if self.after == After::Close {
            self.return_empty_input();
            let ended = ready!(self.stream.poll_end(cx)).map_err(Failure::Stream);
            return Poll::Ready(Some(Outcome::Over(ended)));
        }
        if self.stream.input().len() == self.input.part {
            return self.poll_read(cx);
        }
        let yields = turn.has_served_enough() || turn.has_sent_enough();
        if (yields || self.stream.is_full())
            && let Err(error) = ready!(self.poll_flush(cx))
        {
            return over(error);
        }
        if yields {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        turn.count_request();
        let http = &self.guarded.registry.http;
        let mut request = Request::new(self.guarded.empty_body());
        let input = self.stream.input();
        match head::find(input, &mut request, &mut self.cache, http) {
            Found::Plain {
                head,
                body,
                new,
                is_last,
            } => {
                self.input.part = 0;
                if !body.is_empty() {
                    request.body_mut().fill(body);
                }
                self.head = head;
                self.new_values = new;
                self.after = match is_last {
                    true => After::Close,
                    false => After::NextRequest,
                };
                self.exchange.begin(Version::HTTP_11, Asks::Nothing);
                self.exchange.note_request(&mut request);
                self.wanted = Wanted::by(request.method());
                // `poll` catches a panic.
                let handler = self.guarded.inner.call(request);
                self.current.set(Current::Handler { handler });
            }
            // A head in more than two pieces goes to hyper, which does not parse it again from the
            // start for each piece.
            Found::Part if self.input.part > 0 => {
                return Poll::Ready(Some(Outcome::NotPlain(None)));
            }
            Found::Part => self.input.part = self.stream.input().len(),
            Found::PartOfBody if self.input.part == 0 && self.reads_on(cx) => {}
            Found::PartOfBody => return Poll::Ready(Some(Outcome::NotPlain(None))),
            Found::Other(taken) => {
                self.head = Head::Taken(taken);
                return Poll::Ready(Some(Outcome::NotPlain(None)));
            }
        }
        Poll::Ready(None)
    }

    /// Reads more of a request whose body has not come as a whole. Many clients send it right after
    /// the head. Returns whether bytes have come; the server does not wait for them, because the
    /// handler may respond before.
    fn reads_on(&mut self, cx: &mut Context<'_>) -> bool {
        self.input.part = self.stream.input().len();
        self.input.socket = SocketInput::Unknown;
        self.input.part < READ_AT_ONCE && matches!(self.stream.poll_fill(cx), Poll::Ready(Ok(1..)))
    }

    /// Reads more input. The responses to all requests that have come are written.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Step<S::Body>> {
        if self.output == Output::Unflushed
            && let Err(error) = ready!(self.poll_flush(cx))
        {
            return over(error);
        }
        if self.input.socket == SocketInput::Empty {
            self.return_empty_input();
            ready!(self.stream.poll_readable(cx));
        }
        if self.input.buffer == InputBuffer::Absent {
            self.input.buffer = InputBuffer::Taken;
            *self.stream.input() = self.guarded.registry.inputs.take();
        }
        let read = self.stream.poll_fill(cx);
        self.return_empty_input();
        let is_short = matches!(read, Poll::Ready(Ok(..READ_AT_ONCE)));
        self.input.socket = match is_short && self.stream.is_bare() {
            true => SocketInput::Empty,
            false => SocketInput::Unknown,
        };
        match ready!(read) {
            Ok(0) if self.stream.input().is_empty() => self.after = After::Close,
            Ok(0) => return Poll::Ready(Some(Outcome::NotPlain(None))),
            Ok(_) => {}
            // Between requests an error is an end of the connection too.
            Err(_) if self.stream.input().is_empty() => self.after = After::Close,
            Err(error) => return over(error),
        }
        Poll::Ready(None)
    }

    fn return_empty_input(&mut self) {
        if self.input.buffer == InputBuffer::Taken && self.stream.input().is_empty() {
            self.input.buffer = InputBuffer::Absent;
            let input = mem::take(self.stream.input());
            self.guarded.registry.inputs.put_back(input);
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(self.stream.poll_flush_unconstrained(cx));
        self.output = Output::Flushed;
        // No buffer is needed until the next response.
        self.stream.release();
        Poll::Ready(flushed)
    }

    /// Sends the responses before the current one while the handler or the response's body is
    /// pending: they must not wait for it. A failed write also shows that the client has closed the
    /// connection.
    fn poll_while_pending(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<S::Body>> {
        if let CurrentPinned::Body { sending } = self.current.as_mut().project() {
            if sending.is_in_a_piece() {
                return Poll::Pending;
            }
            *sending.start() = Start::Sent;
        }
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(error.into()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    #[inline]
    fn respond(
        &mut self,
        mut head: Parts,
        body: Option<S::Body>,
        source: ResponseSource,
    ) -> Step<S::Body> {
        self.exchange.complete_head(&mut head, source);
        let length = write::plain_len(&head, body.as_ref());
        let start = self.stream.held_len();
        let Some(written) = length.and_then(|length| self.write_head(&head, length)) else {
            self.name_request();
            let body = match self.exchange.fit(&mut head, body) {
                Ok(body) => body,
                Err(status) => {
                    let (head, body, source) = server_response(status);
                    return self.respond(head, body, source);
                }
            };
            self.exchange.count_response(head.status);
            let response = Box::new(Response::from_parts(head, body));
            return Some(Outcome::NotPlain(Some(response)));
        };
        self.exchange.count_response(head.status);
        // From here on a panic does not make a 500 response.
        self.current.set(Current::Body {
            sending: Sending::new(body, written.sent, Start::Held(start)),
        });
        if written.has_close {
            self.after = After::Close;
        }
        let cached = self.cache.cached();
        let new = self.new_values;
        let keeps = |fields: &mut _| cached.is_some_and(|cached| cached.keep_fields(fields, new));
        field_maps::put_back(head.headers, keeps);
        None
    }

    /// Writes the head into the stream's buffer. `None`: the response is not plain, and nothing is
    /// written.
    #[inline]
    fn write_head(&mut self, head: &Parts, length: u64) -> Option<AfterHead> {
        let date = match self.guarded.registry.http.date_header {
            DateHeader::Sent => Some(self.shared.date.line()),
            DateHeader::Omitted => None,
        };
        let (wanted, is_last) = (self.wanted, self.after == After::Close);
        let out = self.stream.held();
        out.extend_with(|out| write::write_head(out, head, length, wanted, is_last, date.as_ref()))
    }

    /// The body is written, or has failed, or is shorter than its length.
    fn end_body(&mut self, outcome: Result<(), Failed>) -> Step<S::Body> {
        let outcome = outcome.map_err(|failed| match failed {
            Failed::Stream(error) => error,
            Failed::Short(wrong) => {
                self.name_request();
                self.exchange.broke_length(wrong);
                io::ErrorKind::UnexpectedEof.into()
            }
            Failed::Body(error) => {
                self.name_request();
                self.exchange.broke_off(&*error);
                io::ErrorKind::UnexpectedEof.into()
            }
        });
        self.end_response(outcome)
    }

    /// Ends the current response: its body is written, or has failed. If it has failed and no byte
    /// of the response is sent, the part of the response is removed from the buffer. hyper would
    /// send that part if the body is shorter than its length.
    fn end_response(&mut self, outcome: io::Result<()>) -> Step<S::Body> {
        if outcome.is_err()
            && let CurrentPinned::Body { sending } = self.current.as_mut().project()
            && let Start::Held(before) = *sending.start()
        {
            self.stream.held().truncate(before);
        }
        self.stream.note_held();
        self.output = Output::Unflushed;
        self.exchange.end();
        let dropped = catch_unwind(AssertUnwindSafe(|| self.current.set(Current::Vacant)));
        if let Err(payload) = dropped {
            // The response is complete and is sent. The connection ends then, so that the user's
            // code is not called again for it.
            self.name_request();
            self.exchange.panicked(&*payload);
            self.after = After::Close;
        }
        if let Head::InInput(len) = mem::take(&mut self.head) {
            self.stream.input().advance(len);
        }
        outcome.err().map(Outcome::from)
    }

    /// Converts the connection for hyper: the stream with the bytes that were read, the service
    /// with the response to send first, and what the connections share.
    pub(crate) fn into_hyper(
        self,
        response: Option<Box<Response<Option<S::Body>>>>,
    ) -> (Stream<I>, Resumed<S>, Rc<Shared>) {
        let mut stream = self.stream;
        if let Head::Taken(head) = self.head {
            stream.put_back(head);
        }
        let exchange = self.exchange;
        let response = response.map(|response| {
            let (head, body) = response.into_parts();
            let body = ResponseBody::new(body, &head.headers, exchange);
            Response::from_parts(head, body)
        });
        let resumed = Resumed::new(self.guarded, response);
        (stream, resumed, self.shared)
    }

    /// Returns the stream, with the bytes that were read and not parsed.
    pub(crate) fn into_stream(self) -> Stream<I> {
        let mut stream = self.stream;
        if let Head::InInput(len) = self.head {
            stream.input().advance(len);
        }
        stream
    }
}

fn over<B>(error: io::Error) -> Poll<Step<B>> {
    Poll::Ready(Some(error.into()))
}
