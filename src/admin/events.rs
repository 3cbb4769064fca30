//! The event stream: the notices that are kept, then each new one (HTML Standard, "Server-sent
//! events"). The number of a notice is its id, by which a client that connects again goes on, also
//! in the next admin process.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::Full;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How many notices may wait for a client that does not read. Its stream ends at the next one.
const WAITING_MAX: usize = 512;

/// How many clients may listen to a stream at once.
const LISTENERS_MAX: usize = 16;

/// How often a client gets a comment. A proxy may end a stream that is quiet for a minute, and a
/// client that has gone without a word is noticed only when something is sent.
pub(super) const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// The clients that listen to a stream.
#[derive(Debug, Default)]
pub(super) struct Listeners(Vec<Sender<Bytes>>);

/// The body of a response: one piece, or the event stream.
pub(super) enum Page {
    Whole(Full<Bytes>),
    Events(Receiver<Bytes>),
}

/// A notice as an event, with the time at which it was reported.
pub(super) fn event(number: u64, millis: u64, line: &str) -> Bytes {
    // The line is an object, and gets one more field.
    let rest = line.strip_prefix('{').unwrap_or(line);
    let at = millis as f64 / 1000.0;
    format!("id: {number}\ndata: {{\"at\":{at:.3},{rest}\n\n").into()
}

impl Listeners {
    /// A stream that begins with these events. `None` if too many clients listen.
    pub(super) fn join(&mut self, before: impl Iterator<Item = Bytes>) -> Option<Page> {
        self.0.retain(|listener| !listener.is_closed());
        if self.0.len() >= LISTENERS_MAX {
            return None;
        }
        let (sender, receiver) = channel(WAITING_MAX);
        // So that the client has the head of the response at once.
        let begin = Bytes::from_static(b": notices\n\n");
        for event in std::iter::once(begin).chain(before) {
            let _ = sender.try_send(event);
        }
        self.0.push(sender);
        Some(Page::Events(receiver))
    }

    /// Whether no client listens any more.
    pub(super) fn is_empty(&mut self) -> bool {
        self.0.retain(|listener| !listener.is_closed());
        self.0.is_empty()
    }

    pub(super) fn comment(&mut self) {
        self.tell(&Bytes::from_static(b":\n\n"));
    }

    pub(super) fn tell(&mut self, event: &Bytes) {
        self.0
            .retain(|listener| listener.try_send(event.clone()).is_ok());
    }
}

impl Body for Page {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Events(events) => events
                .poll_recv(cx)
                .map(|event| Some(Ok(Frame::data(event?)))),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Events(_) => http_body::SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Events(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_number_and_the_time_of_its_notice() {
        let event = event(7, 1_500, r#"{"notice":"draining"}"#);
        let expected = "id: 7\ndata: {\"at\":1.500,\"notice\":\"draining\"}\n\n";
        assert_eq!(event, expected.as_bytes());
    }

    #[test]
    fn a_client_gets_comments_too() {
        let mut listeners = Listeners::default();
        let Some(Page::Events(mut events)) = listeners.join(std::iter::empty()) else {
            panic!("there is room")
        };
        listeners.comment();
        let got: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        assert_eq!(got, [": notices\n\n", ":\n\n"]);
    }

    #[test]
    fn a_client_that_does_not_read_is_let_go_and_the_number_of_clients_is_limited() {
        let mut listeners = Listeners::default();
        let held: Vec<_> = (0..LISTENERS_MAX)
            .map(|_| listeners.join(std::iter::empty()).expect("there is room"))
            .collect();
        assert!(listeners.join(std::iter::empty()).is_none());
        for _ in 0..=WAITING_MAX {
            listeners.tell(&Bytes::from_static(b"x"));
        }
        assert!(listeners.0.is_empty());
        drop(held);
        assert!(listeners.join(std::iter::empty()).is_some());
    }
}
