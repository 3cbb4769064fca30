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
use crate::http::exchange::service::Guarded;
use crate::http::http1::head::{self, Found, Head};
use crate::http::http1::head_cache::HeadCache;
use crate::http::http1::resumed::Resumed;
use crate::http::http1::shared::Shared;
use crate::http::http1::write::{self, Plan};
use crate::http::options::DateHeader;
use crate::pool::Buffer;

/// After so many requests in a row others may go first.
const IN_A_ROW: usize = 16;

/// See the module's head.
pub(crate) struct Direct<I, S, B>
where
    S: Service<Request, Response = Response<B>>,
{
    stream: Stream<I>,
    guarded: Guarded<S>,
    /// The one after the other.
    exchange: Exchange,
    shared: Rc<Shared>,
    /// Read and not answered; perhaps the head that is being answered comes first.
    input: BytesMut,
    /// Whether that has room of its own.
    has_room: bool,
    /// So many bytes of it are known to be part of a head.
    part: usize,
    /// That of the request that is being answered, for hyper if the answer is not plain.
    head: Head,
    /// That answer.
    response_for_hyper: Option<Box<Response<Option<B>>>>,
    /// Whether the answer to it ends the connection.
    is_last: bool,
    /// Whether answers may not have left.
    is_unflushed: bool,
    /// Whether the last read seems to have taken all that there was. Asking costs less then than
    /// reading in vain.
    has_emptied: bool,
    /// How much was held before that answer, if nothing of it has been sent.
    held_before: Option<usize>,
    cache: HeadCache,
    /// In one place for the life of the connection, so that a request costs no allocation for it.
    current: Pin<Box<Current<S::Future, B>>>,
}

pin_project! {
    #[project = CurrentPinned]
    enum Current<F, B> {
        Vacant,
        Handler { #[pin] handler: F },
        // `None` is the empty body.
        Body { #[pin] body: Option<B>, left: u64 },
    }
}

/// What becomes of the connection.
pub(crate) enum Outcome {
    Over(Result<(), Failure>),
    /// It is hyper's now.
    NotPlain,
}

impl From<io::Error> for Outcome {
    fn from(error: io::Error) -> Self {
        Self::Over(Err(Failure::Stream(error)))
    }
}

/// What has come of a step; `None` if the next one is due.
type Step = Option<Outcome>;

impl<I, S, B> Direct<I, S, B>
where
    I: Socket,
    S: Service<Request, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub(crate) fn new(stream: Stream<I>, guarded: Guarded<S>, shared: Rc<Shared>) -> Self {
        Self {
            stream,
            exchange: Exchange::new(&guarded.registry, &guarded.state),
            guarded,
            shared,
            input: BytesMut::new(),
            has_room: false,
            part: 0,
            head: Head::default(),
            response_for_hyper: None,
            is_last: false,
            is_unflushed: false,
            has_emptied: false,
            held_before: None,
            cache: HeadCache::default(),
            current: Box::pin(Current::Vacant),
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        if self.guarded.registry.http.date_header == DateHeader::Sent {
            self.shared.date.renew();
        }
        let mut served = 0;
        // Since then something may have come.
        self.has_emptied = false;
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

    fn poll_steps(&mut self, cx: &mut Context<'_>, served: &mut usize) -> Poll<Outcome> {
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
                CurrentPinned::Body { body, left } => {
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
    fn on_panic(&mut self, payload: Box<dyn Any + Send>) -> Step {
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
    fn poll_vacant(&mut self, cx: &mut Context<'_>, served: &mut usize) -> Poll<Step> {
        if self.is_last {
            self.give_room_back();
            let ended = ready!(self.stream.poll_end(cx)).map_err(Failure::Stream);
            return Poll::Ready(Some(Outcome::Over(ended)));
        }
        if self.input.len() == self.part {
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
            &mut self.input,
            &mut request,
            &mut self.cache,
            buffers,
            http,
        ) {
            Found::Plain { head, is_last } => {
                self.part = 0;
                self.head = head;
                self.is_last = is_last;
                self.exchange.begin(Version::HTTP_11, false);
                // Should it panic, that is caught around all steps.
                let handler = self.guarded.inner.call(request);
                self.current.set(Current::Handler { handler });
            }
            // Whoever sends a head in more than two pieces is served by somebody who does not
            // begin it anew with each.
            Found::Part if self.part > 0 => return Poll::Ready(Some(Outcome::NotPlain)),
            Found::Part => self.part = self.input.len(),
            Found::Other(taken) => {
                self.head = Head::HandoverFuture(taken);
                return Poll::Ready(Some(Outcome::NotPlain));
            }
        }
        Poll::Ready(None)
    }

    /// All requests that have come are answered.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.is_unflushed
            && let Err(error) = ready!(self.poll_flush(cx))
        {
            return over(error);
        }
        if self.has_emptied {
            self.give_room_back();
            ready!(self.stream.poll_readable(cx));
        }
        if !self.has_room {
            self.has_room = true;
            self.input = self.shared.buffers.input();
        }
        let read = self.stream.poll_fill(cx, &mut self.input);
        self.give_room_back();
        let is_short = matches!(read, Poll::Ready(Ok(..READ_AT_ONCE)));
        self.has_emptied = is_short && self.stream.is_bare();
        match ready!(read) {
            Ok(0) if self.input.is_empty() => self.is_last = true,
            Ok(0) => return Poll::Ready(Some(Outcome::NotPlain)),
            Ok(_) => {}
            // Between requests it is only another way to leave.
            Err(_) if self.input.is_empty() => self.is_last = true,
            Err(error) => return over(error),
        }
        Poll::Ready(None)
    }

    fn give_room_back(&mut self) {
        if self.has_room && self.input.is_empty() {
            self.has_room = false;
            self.shared.buffers.keep_input(mem::take(&mut self.input));
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(self.stream.poll_flush_unconstrained(cx));
        self.is_unflushed = false;
        // Nobody needs room for an answer until there is one.
        self.stream.release();
        Poll::Ready(flushed)
    }

    /// A handler, or the body of its answer, takes its time: those before it must not wait for it,
    /// and the client may leave.
    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        self.held_before = None;
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(error.into()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    #[inline]
    fn answer(&mut self, mut head: Parts, body: Option<B>, source: ResponseSource) -> Step {
        self.exchange.complete_head(&mut head, source);
        let plan = Plan::of(&head, body.as_ref());
        self.exchange.count_response(head.status);
        let Some(plan) = plan else {
            self.response_for_hyper = Some(Box::new(Response::from_parts(head, body)));
            return Some(Outcome::NotPlain);
        };
        let registry = &self.guarded.registry;
        let date = match registry.http.date_header {
            DateHeader::Sent => Some(self.shared.date.line()),
            DateHeader::Omitted => None,
        };
        self.held_before = Some(self.stream.held().remaining());
        // Before a byte is written: nothing that panics now is answered for.
        self.current.set(Current::Body {
            body,
            left: plan.length,
        });
        let out = self.stream.held();
        out.extend_with(|out| write::write_head(out, &head, plan, self.is_last, date.as_ref()));
        self.is_last |= plan.says_close;
        self.shared.buffers.keep_fields(head.headers);
        None
    }

    /// Its body is written, or has broken off. Then nobody is told half an answer of which nothing
    /// has been sent; hyper would send it, if the body is shorter than it said.
    fn end_answer(&mut self, outcome: io::Result<()>) -> Step {
        if let (Err(_), Some(before)) = (&outcome, self.held_before) {
            self.stream.held().truncate(before);
        }
        self.stream.note_held();
        self.is_unflushed = true;
        self.exchange.end();
        let dropped = catch_unwind(AssertUnwindSafe(|| self.current.set(Current::Vacant)));
        if let Err(payload) = dropped {
            // What is written is whole, and leaves; whoever did this is not called again.
            self.exchange.panicked(&*payload);
            self.is_last = true;
        }
        if let Head::InInput(len) = mem::take(&mut self.head) {
            self.input.advance(len);
        }
        outcome.err().map(Outcome::from)
    }

    /// What hyper goes on with.
    pub(crate) fn into_hyper(self) -> (Stream<I>, Resumed<S, B>, Rc<Shared>) {
        let mut stream = self.stream;
        stream.put_back(self.input.freeze());
        if let Head::HandoverFuture(head) = self.head {
            stream.put_back(head);
        }
        let exchange = self.exchange;
        let response_for_hyper =
            |answer: Box<_>| Response::map(*answer, |body| ResponseBody::new(body, exchange));
        let resumed = Resumed::new(
            self.guarded,
            self.response_for_hyper.map(response_for_hyper),
        );
        (stream, resumed, self.shared)
    }

    /// The stream, into which is put back what was read from it and not understood.
    pub(crate) fn into_stream(self) -> Stream<I> {
        let (mut stream, mut input) = (self.stream, self.input);
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

fn over(error: io::Error) -> Poll<Step> {
    Poll::Ready(Some(error.into()))
}
