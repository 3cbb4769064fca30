use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::pin::pin;

use bytes::Bytes;
use tokio::time::timeout;

use super::*;
use crate::protocol::inbox::{Inbox, Note, Reason, Sender};
use crate::stats::Count;
use crate::sys::listener::listen_again;
use crate::worker::placing::tests::sibling;

fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("it is open");
    listener
}

fn queue(listener: TcpListener) -> Arc<Queue> {
    Queue::new(vec![listener.into()], None, 1000, None, WorkerStats::own()).expect("a runtime")
}

#[tokio::test]
async fn a_listener_that_was_shut_down_does_not_spin() {
    let listener = listener();
    // The same as `ss -K` from another process: accept(2) gives EINVAL from then on.
    socket2::SockRef::from(&listener)
        .shutdown(Shutdown::Both)
        .expect("it listens");
    let queue = queue(listener);
    let mut incoming = Incoming::new(Arc::clone(&queue));
    let pause = EXHAUSTED_PAUSE * 3;
    let ended = timeout(pause, incoming.accept()).await;
    assert!(ended.is_err(), "it waits");
    queue.drain(Idle::Close);
    assert!(incoming.accept().await.is_none());
}

/// As the master does it. The runtime never forgets that a descriptor was shut down.
#[tokio::test]
async fn a_listener_that_listens_again_does_not_spin() {
    let listener = listener();
    let address = listener.local_addr().expect("it is bound");
    let same = listener.try_clone().expect("descriptors are left");
    let queue = queue(listener);
    let mut incoming = Incoming::new(Arc::clone(&queue));
    socket2::SockRef::from(&same)
        .shutdown(Shutdown::Both)
        .expect("it listens");
    let ended = timeout(EXHAUSTED_PAUSE / 2, incoming.accept()).await;
    assert!(ended.is_err(), "it pauses");
    listen_again(&same, address, 8).expect("nobody else has its port");
    let mut accept = pin!(incoming.accept());
    let mut polls = 0;
    let counted = poll_fn(|cx| {
        polls += 1;
        accept.as_mut().poll(cx)
    });
    let ended = timeout(EXHAUSTED_PAUSE * 3, counted).await;
    assert!(
        ended.is_err() && polls < 10,
        "it waits for an event: {polls}"
    );
    let client = TcpStream::connect(address).expect("it listens");
    let accepted = accept.await.expect("no drain");
    let peer = client.local_addr().expect("it is connected");
    assert_eq!(accepted.peer(), Peer::Tcp(peer));
}

#[tokio::test]
async fn many_new_connections_do_not_delay_the_open_ones() {
    const COUNT: usize = 3 * ACCEPTED_IN_A_ROW;

    let listener = listener();
    let address = listener.local_addr().expect("it is bound");
    let connect = |_| TcpStream::connect(address).expect("it listens");
    let _clients: Vec<_> = (0..COUNT).map(connect).collect();
    let mut incoming = Incoming::new(queue(listener));
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    tokio::spawn(async move {
        while incoming.accept().await.is_some() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut before = 0;
    while before < COUNT {
        // Lets the event loop run the other task.
        yield_now().await;
        let at_once = accepted.load(Ordering::Relaxed) - before;
        assert!(at_once <= ACCEPTED_IN_A_ROW, "{at_once} at once");
        before += at_once;
    }
}

/// A worker with more load than its sibling gives away what comes from its listener, and serves
/// what is in its inbox. Both came at once.
#[tokio::test]
async fn a_connection_that_is_given_away_does_not_hide_the_next_source() {
    let (listener, stats) = (listener(), WorkerStats::own());
    let address = listener.local_addr().expect("it is bound");
    let inbox = Inbox::new().expect("a pair");
    let end = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().expect("a number");
    let receiver = end(inbox.receiver());
    let queue = Queue::new(
        vec![listener.into()],
        Some(receiver),
        1000,
        None,
        stats.clone(),
    );
    let queue = queue.expect("a runtime");
    let (_sibling, theirs, ends) = sibling();
    queue.set_siblings(vec![ends]);
    (0..9).for_each(|_| stats.connection_begins(Count::Connections));
    let note = Note {
        reason: Reason::HandedOver,
        local: Address::Tcp(address),
        forwarded: None,
        read_ahead: Bytes::new(),
    };
    let mut incoming = Incoming::new(Arc::clone(&queue));
    for first in 0..2 {
        let clients = [(); 2].map(|()| TcpStream::connect(address).expect("it listens"));
        clients[0].set_nonblocking(true).expect("it is open");
        let sender = Sender::new(end(inbox.sender()));
        sender.send(&clients[0], &note).expect("room");
        // Lets the runtime find that both are ready.
        yield_now().await;
        queue.state().next = first;
        let accepted = poll_fn(|cx| Poll::Ready(incoming.poll_accept(cx))).await;
        assert!(accepted.is_ready(), "from the inbox");
    }
    assert!(theirs.is_waited_in());
}
