//! Plain requests, one after the other: found in what was read, answered into the stream's buffer,
//! and sent when no other is waiting.

use std::any::Any;
use std::error::Error;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use http::response::Parts;
use http::{Response, Version};
use http_body::Body;
use hyper::service::Service;
use pin_project_lite::pin_project;

use crate::http::conn::protocol::Failure;
use crate::http::conn::socket::Socket;
use crate::http::conn::stream::{READ_AT_ONCE, Stream};
use crate::http::exchange::body::ResponseBody;
use crate::http::exchange::lifecycle::{Exchange, ResponseSource, own};
use crate::http::exchange::message::Request;
use crate::http::exchange::service::{Guarded, Handler};
use crate::http::http1::head::{self, Found, Head};
use crate::http::http1::head_cache::HeadCache;
use crate::http::http1::resumed::Resumed;
use crate::http::http1::shared::Shared;
use crate::http::http1::write::{self, Plan};
use crate::http::options::DateHeader;
use crate::pool::Buffer;

/// After so many requests in a row others may go first.
const IN_A_ROW: usize = 16;

/// A connection that is served without hyper, one plain request after the other.
///
/// | current | input | after | output |
/// |---|---|---|---|
/// | `Vacant` | read and not parsed; without bytes the buffer is given back | any | any |
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
    /// The head of the present request. hyper gets it if the response is not plain.
    head: Head,
    after: After,
    output: Output,
    cache: HeadCache,
    /// At one address for the life of the connection, so that a request allocates nothing for it.
    current: Pin<Box<Current<S::Future, S::Body>>>,
}

pin_project! {
    /// What is done for the present request.
    #[project = CurrentPinned]
    enum Current<F, B> {
        Vacant,
        Handler { #[pin] handler: F },
        // `None` is the empty body.
        Body { #[pin] body: Option<B>, left: u64, start: Start },
    }
}

/// Where a response begins.
#[derive(Clone, Copy)]
enum Start {
    /// Behind so many bytes that the stream holds. No byte of it is sent.
    Held(usize),
    /// Some of it may be sent.
    Sent,
}

/// What follows the present response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    NextRequest,
    Close,
}

/// Whether responses may wait in the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Flushed,
    Unflushed,
}

/// What was read and not parsed.
struct Input {
    bytes: BytesMut,
    buffer: InputBuffer,
    /// So many bytes are known to be the beginning of a head.
    part: usize,
    socket: SocketInput,
}

/// Whether the input has a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputBuffer {
    Absent,
    /// Taken from the shared buffers, and to be given back.
    Taken,
}

/// What the socket's receive buffer seems to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketInput {
    Unknown,
    /// The last read took everything. To ask whether there is more costs less than to read in vain.
    Empty,
}

/// What becomes of the connection.
pub(crate) enum Outcome<B> {
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
    pub(crate) fn new(stream: Stream<I>, guarded: Guarded<S>, shared: Rc<Shared>) -> Self {
        Self {
            stream,
            exchange: Exchange::new(&guarded.registry, &guarded.state),
            guarded,
            shared,
            input: Input {
                bytes: BytesMut::new(),
                buffer: InputBuffer::Absent,
                part: 0,
                socket: SocketInput::Unknown,
            },
            head: Head::default(),
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
        let mut served = 0;
        // Since then something may have come.
        self.input.socket = SocketInput::Unknown;
        loop {
            // One for all that users wrote: what came out of one of its own would be moved once
            // more each time. What they leave half-done is dropped and never seen again, hence the
            // assertion.
            let steps = AssertUnwindSafe(|| self.poll_steps(cx, &mut served));
            let step = match catch_unwind(steps) {
                Ok(Poll::Pending) if self.exchange.is_under_way() => {
                    return self.poll_meanwhile(cx);
                }
                Ok(polled) => return polled,
                Err(payload) => self.on_panic(payload),
            };
            if let Some(outcome) = step {
                return Poll::Ready(outcome);
            }
        }
    }

    fn poll_steps(&mut self, cx: &mut Context<'_>, served: &mut usize) -> Poll<Outcome<S::Body>> {
        loop {
            let step = match self.current.as_mut().project() {
                CurrentPinned::Vacant => ready!(self.poll_vacant(cx, served)),
                CurrentPinned::Handler { handler } => match ready!(handler.poll(cx)) {
                    Ok(response) => {
                        let (head, body) = response.into_parts();
                        self.answer(head, Some(body), ResponseSource::Handler)
                    }
                    Err(error) => {
                        let (head, body, source) = own(self.exchange.failed(&*error.into()));
                        self.answer(head, body, source)
                    }
                },
                CurrentPinned::Body { body, left, .. } => {
                    let out = self.stream.held();
                    let outcome = ready!(poll_body(body, left, out, &self.exchange, cx));
                    self.end_answer(outcome)
                }
            };
            if let Some(outcome) = step {
                return Poll::Ready(outcome);
            }
        }
    }

    /// A handler has panicked, or the body of its answer.
    fn on_panic(&mut self, payload: Box<dyn Any + Send>) -> Step<S::Body> {
        if !self.exchange.is_under_way() {
            resume_unwind(payload);
        }
        let status = self.exchange.panicked(&*payload);
        if let CurrentPinned::Body { .. } = self.current.as_mut().project() {
            return self.end_answer(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let (head, body, source) = own(status);
        self.answer(head, body, source)
    }

    /// Looks for the next request.
    fn poll_vacant(&mut self, cx: &mut Context<'_>, served: &mut usize) -> Poll<Step<S::Body>> {
        if self.after == After::Close {
            self.give_room_back();
            let ended = ready!(self.stream.poll_end(cx)).map_err(Failure::Stream);
            return Poll::Ready(Some(Outcome::Over(ended)));
        }
        if self.input.bytes.len() == self.input.part {
            return self.poll_read(cx);
        }
        let others_first = *served == IN_A_ROW;
        if (others_first || self.stream.is_full())
            && let Err(error) = ready!(self.poll_flush(cx))
        {
            return over(error);
        }
        if others_first {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        *served += 1;
        let http = &self.guarded.registry.http;
        let mut request = Request::new(self.guarded.empty_body());
        let buffers = &self.shared.buffers;
        match head::find(
            &mut self.input.bytes,
            &mut request,
            &mut self.cache,
            buffers,
            http,
        ) {
            Found::Plain { head, is_last } => {
                self.input.part = 0;
                self.head = head;
                self.after = match is_last {
                    true => After::Close,
                    false => After::NextRequest,
                };
                self.exchange.begin(Version::HTTP_11, false);
                // Should it panic, that is caught around all steps.
                let handler = self.guarded.inner.call(request);
                self.current.set(Current::Handler { handler });
            }
            // A head in more than two pieces goes to hyper, which does not parse it again from the
            // start for each piece.
            Found::Part if self.input.part > 0 => {
                return Poll::Ready(Some(Outcome::NotPlain(None)));
            }
            Found::Part => self.input.part = self.input.bytes.len(),
            Found::Other(taken) => {
                self.head = Head::Taken(taken);
                return Poll::Ready(Some(Outcome::NotPlain(None)));
            }
        }
        Poll::Ready(None)
    }

    /// All requests that have come are answered.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Step<S::Body>> {
        if self.output == Output::Unflushed
            && let Err(error) = ready!(self.poll_flush(cx))
        {
            return over(error);
        }
        if self.input.socket == SocketInput::Empty {
            self.give_room_back();
            ready!(self.stream.poll_readable(cx));
        }
        if self.input.buffer == InputBuffer::Absent {
            self.input.buffer = InputBuffer::Taken;
            self.input.bytes = self.shared.buffers.input();
        }
        let read = self.stream.poll_fill(cx, &mut self.input.bytes);
        self.give_room_back();
        let is_short = matches!(read, Poll::Ready(Ok(..READ_AT_ONCE)));
        self.input.socket = match is_short && self.stream.is_bare() {
            true => SocketInput::Empty,
            false => SocketInput::Unknown,
        };
        match ready!(read) {
            Ok(0) if self.input.bytes.is_empty() => self.after = After::Close,
            Ok(0) => return Poll::Ready(Some(Outcome::NotPlain(None))),
            Ok(_) => {}
            // Between requests the client may leave by an error too.
            Err(_) if self.input.bytes.is_empty() => self.after = After::Close,
            Err(error) => return over(error),
        }
        Poll::Ready(None)
    }

    fn give_room_back(&mut self) {
        if self.input.buffer == InputBuffer::Taken && self.input.bytes.is_empty() {
            self.input.buffer = InputBuffer::Absent;
            let bytes = mem::take(&mut self.input.bytes);
            self.shared.buffers.keep_input(bytes);
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(self.stream.poll_flush_unconstrained(cx));
        self.output = Output::Flushed;
        // Nobody needs room for an answer until there is one.
        self.stream.release();
        Poll::Ready(flushed)
    }

    /// A handler, or the body of its answer, takes its time: those before it must not wait for it,
    /// and the client may leave.
    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<S::Body>> {
        if let CurrentPinned::Body { start, .. } = self.current.as_mut().project() {
            *start = Start::Sent;
        }
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(error.into()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    #[inline]
    fn answer(
        &mut self,
        mut head: Parts,
        body: Option<S::Body>,
        source: ResponseSource,
    ) -> Step<S::Body> {
        self.exchange.complete_head(&mut head, source);
        let plan = Plan::of(&head, body.as_ref());
        self.exchange.count_response(head.status);
        let Some(plan) = plan else {
            let response = Box::new(Response::from_parts(head, body));
            return Some(Outcome::NotPlain(Some(response)));
        };
        let registry = &self.guarded.registry;
        let date = match registry.http.date_header {
            DateHeader::Sent => Some(self.shared.date.line()),
            DateHeader::Omitted => None,
        };
        // Before a byte is written: a panic from here on is not answered with 500.
        self.current.set(Current::Body {
            body,
            left: plan.length,
            start: Start::Held(self.stream.held().remaining()),
        });
        let out = self.stream.held();
        let is_last = self.after == After::Close;
        out.extend_with(|out| write::write_head(out, &head, plan, is_last, date.as_ref()));
        if plan.says_close {
            self.after = After::Close;
        }
        self.shared.buffers.keep_fields(head.headers);
        None
    }

    /// Its body is written, or has broken off. Then nobody is told half an answer of which nothing
    /// has been sent; hyper would send it, if the body is shorter than it said.
    fn end_answer(&mut self, outcome: io::Result<()>) -> Step<S::Body> {
        if outcome.is_err()
            && let CurrentPinned::Body {
                start: Start::Held(before),
                ..
            } = self.current.as_mut().project()
        {
            self.stream.held().truncate(*before);
        }
        self.stream.note_held();
        self.output = Output::Unflushed;
        self.exchange.end();
        let dropped = catch_unwind(AssertUnwindSafe(|| self.current.set(Current::Vacant)));
        if let Err(payload) = dropped {
            // What is written is whole, and leaves; whoever did this is not called again.
            self.exchange.panicked(&*payload);
            self.after = After::Close;
        }
        if let Head::InInput(len) = mem::take(&mut self.head) {
            self.input.bytes.advance(len);
        }
        outcome.err().map(Outcome::from)
    }

    /// What hyper goes on with: the stream with what was read, and the response to send first.
    pub(crate) fn into_hyper(
        self,
        response: Option<Box<Response<Option<S::Body>>>>,
    ) -> (Stream<I>, Resumed<S>, Rc<Shared>) {
        let mut stream = self.stream;
        stream.put_back(self.input.bytes.freeze());
        if let Head::Taken(head) = self.head {
            stream.put_back(head);
        }
        let exchange = self.exchange;
        let response = response
            .map(|response| Response::map(*response, |body| ResponseBody::new(body, exchange)));
        let resumed = Resumed::new(self.guarded, response);
        (stream, resumed, self.shared)
    }

    /// The stream, into which is put back what was read from it and not understood.
    pub(crate) fn into_stream(self) -> Stream<I> {
        let (mut stream, mut input) = (self.stream, self.input.bytes);
        if let Head::InInput(len) = self.head {
            input.advance(len);
        }
        stream.put_back(input.freeze());
        stream
    }
}

/// Writes what there is of a body.
fn poll_body<B>(
    mut body: Pin<&mut Option<B>>,
    left: &mut u64,
    out: &mut Buffer,
    exchange: &Exchange,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    while *left > 0
        && let Some(body) = body.as_mut().as_pin_mut()
    {
        match ready!(body.poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    write::write_piece(out, piece, left);
                }
                continue;
            }
            Some(Err(error)) => exchange.broke_off(&*error.into()),
            // It is shorter than it said.
            None => {}
        }
        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
    }
    Poll::Ready(Ok(()))
}

fn over<B>(error: io::Error) -> Poll<Step<B>> {
    Poll::Ready(Some(error.into()))
}
