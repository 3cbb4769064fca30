//! Sends the body of a plain response, one piece after the other. A short piece is copied behind
//! the head, and one write sends both. A long piece is sent from where it is: from memory by
//! writev(2), together with the head, or from a file by sendfile(2).

use std::any::TypeId;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::Body;
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::exchange::length::WrongLength;
use crate::http::exchange::piece::{self, FILE_CHANGED, Piece};
use crate::http::http1::turn::Turn;
use crate::http::http1::write;

/// A longer piece is not copied.
const COPY_MAX: usize = 16 * 1024;

pin_project! {
    /// The body of a response.
    pub(crate) struct Sending<B: Body> {
        // `None` is the empty body.
        #[pin]
        body: Option<B>,
        // A long piece, while it is being sent.
        piece: Option<B::Data>,
        length: u64,
        left: u64,
        start: Start,
    }
}

/// Where the response begins.
#[derive(Clone, Copy)]
pub(crate) enum Start {
    /// After so many bytes of the stream's buffer. No byte of the response is sent.
    Held(usize),
    /// A part of the response may be sent.
    Sent,
}

/// Why a response breaks off.
pub(crate) enum Failed {
    Body(BoxError),
    /// The body is shorter than its length.
    Short(WrongLength),
    Stream(io::Error),
}

impl Failed {
    fn short(length: u64, left: u64) -> Self {
        Self::Short(WrongLength {
            said: Some(length),
            body: Some(length - left),
        })
    }
}

impl<B> Sending<B>
where
    B: Body<Error: Into<BoxError>> + 'static,
{
    /// Of the body `length` bytes will be sent.
    pub(crate) fn new(body: Option<B>, length: u64, start: Start) -> Self {
        Self {
            body,
            piece: None,
            length,
            left: length,
            start,
        }
    }

    pub(crate) fn start(self: Pin<&mut Self>) -> &mut Start {
        self.project().start
    }

    /// Whether a piece is being sent, which the socket has not taken as a whole.
    pub(crate) fn is_in_a_piece(&self) -> bool {
        self.piece.is_some()
    }

    /// Passes all of the body on: to the stream's buffer or to the socket.
    #[inline(never)]
    pub(crate) fn poll<I: Socket>(
        self: Pin<&mut Self>,
        stream: &mut Stream<I>,
        turn: &mut Turn,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        let mut this = self.project();
        loop {
            if let Some(piece) = this.piece {
                ready!(poll_piece(piece, this.left, stream, turn, cx))?;
                *this.piece = None;
            }
            if *this.left == 0 {
                return Poll::Ready(Ok(()));
            }
            let Some(body) = this.body.as_mut().as_pin_mut() else {
                return Poll::Ready(Err(Failed::short(*this.length, *this.left)));
            };
            let may_be_files = TypeId::of::<B::Data>() == TypeId::of::<Piece>();
            let polled = match may_be_files && stream.sends_files() {
                true => piece::while_parts_are_sent(|| body.poll_frame(cx)),
                false => body.poll_frame(cx),
            };
            match ready!(polled) {
                Some(Ok(frame)) => {
                    let Ok(piece) = frame.into_data() else {
                        continue;
                    };
                    let is_short = piece.remaining() <= COPY_MAX && !stream.is_full();
                    if is_short && piece::file_part(&piece).is_none() {
                        write::write_piece(stream.held(), piece, this.left);
                    } else {
                        *this.piece = Some(piece);
                        *this.start = Start::Sent;
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(Failed::Body(error.into()))),
                None => return Poll::Ready(Err(Failed::short(*this.length, *this.left))),
            }
        }
    }
}

/// Sends what the stream holds and the piece, but at most `left` bytes of the piece.
#[inline(never)]
fn poll_piece<I: Socket, D: Buf + 'static>(
    piece: &mut D,
    left: &mut u64,
    stream: &mut Stream<I>,
    turn: &mut Turn,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Failed>> {
    loop {
        let length = piece.remaining();
        let length = usize::try_from(*left).map_or(length, |left| length.min(left));
        if length == 0 {
            stream.note_all_written();
            return Poll::Ready(Ok(()));
        }
        if turn.has_sent_enough() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let sent = match piece::file_part(piece) {
            Some(part) => {
                let (file, at) = part.place();
                let sent = ready!(stream.poll_send_file(cx, file, at, length));
                match sent {
                    Ok(0) => return Poll::Ready(Err(Failed::Body(FILE_CHANGED.into()))),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        return Poll::Ready(Err(Failed::Body(error.into())));
                    }
                    sent => sent,
                }
            }
            None => {
                let chunk = piece.chunk();
                ready!(stream.poll_send_chunk(cx, &chunk[..chunk.len().min(length)]))
            }
        };
        let sent = sent.map_err(Failed::Stream)?;
        piece.advance(sent);
        *left -= sent as u64;
        turn.count_bytes(sent);
    }
}
