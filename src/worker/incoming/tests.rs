use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::pin::pin;

use socket2::{Domain, SockRef, Socket, Type};
use tokio::time::timeout;

use super::*;
use crate::moved::Moved;
use crate::protocol::inbox::{Inbox, Note, Reason, Sender};
use crate::stats::Count;
use crate::sys::listener::listen_again;
use crate::worker::placing::tests::sibling;

fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("it is open");
    listener
}

fn address(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("it is bound")
}

fn connect(listener: &TcpListener) -> TcpStream {
    TcpStream::connect(address(listener)).expect("it listens")
}

fn queue(listener: TcpListener) -> Arc<Queue> {
    Queue::new(vec![listener.into()], None, 1000, None, WorkerStats::own()).expect("a runtime")
}

#[tokio::test]
async fn a_listener_that_was_shut_down_does_not_spin() {
    let listener = listener();
    // The same as `ss -K` from another process: accept(2) gives EINVAL from then on.
    SockRef::from(&listener)
        .shutdown(Shutdown::Both)
        .expect("it listens");
    let queue = queue(listener);
    let mut incoming = Incoming::new(Arc::clone(&queue));
    let pause = PAUSE * 3;
    let ended = timeout(pause, incoming.accept()).await;
    assert!(ended.is_err(), "it waits");
    queue.drain(Idle::Close);
    assert!(incoming.accept().await.is_none());
}

/// A worker of the slot may have made it blocking, for all processes that have it.
#[tokio::test]
async fn a_listener_that_blocks_does_not_stop_the_event_loop() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let same = listener.try_clone().expect("descriptors are left");
    let mut incoming = Incoming::new(queue(listener));
    assert!(SockRef::from(&same).nonblocking().expect("a socket"));
    let _client = connect(&same);
    incoming.accept().await.expect("no drain");
    let next = poll_fn(|cx| Poll::Ready(incoming.poll_accept(cx))).await;
    assert!(next.is_pending(), "nobody has connected");
}

/// As the master does it. The runtime never forgets that a descriptor was shut down.
#[tokio::test]
async fn a_listener_that_listens_again_does_not_spin() {
    // An address of its own: no other test gets the port before it listens again.
    let listener = TcpListener::bind("127.0.0.26:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let same = listener.try_clone().expect("descriptors are left");
    let queue = queue(listener);
    let mut incoming = Incoming::new(Arc::clone(&queue));
    SockRef::from(&same)
        .shutdown(Shutdown::Both)
        .expect("it listens");
    let ended = timeout(PAUSE / 2, incoming.accept()).await;
    assert!(ended.is_err(), "it pauses");
    listen_again(&same, address, 8).expect("nobody else has its port");
    let mut accept = pin!(incoming.accept());
    let mut polls = 0;
    let counted = poll_fn(|cx| {
        polls += 1;
        accept.as_mut().poll(cx)
    });
    let ended = timeout(PAUSE * 3, counted).await;
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

/// A worker with one listener, one inbox and a limit on its connections.
struct Fixture {
    listener: TcpListener,
    /// Where the connections of the other worker come from.
    elsewhere: TcpListener,
    inbox: Inbox,
    stats: WorkerStats,
    queue: Arc<Queue>,
    incoming: Incoming,
}

impl Fixture {
    fn new(max_connections: usize) -> Self {
        let (listener, stats) = (listener(), WorkerStats::own());
        let inbox = Inbox::new().expect("a pair");
        let receiver = inbox.receiver().try_clone_to_owned().expect("a number");
        let same = listener.try_clone().expect("descriptors are left");
        let queue = Queue::new(
            vec![same.into()],
            Some(receiver),
            max_connections,
            None,
            stats.clone(),
        );
        let queue = queue.expect("a runtime");
        Self {
            listener,
            elsewhere: self::listener(),
            inbox,
            stats,
            incoming: Incoming::new(Arc::clone(&queue)),
            queue,
        }
    }

    /// Puts a descriptor into the inbox, as another worker does.
    fn hand_over(&self, connection: impl AsFd) {
        let note = Note {
            reason: Reason::HandedOver,
            local: Address::Tcp(address(&self.elsewhere)),
            forwarded: None,
            moved: Moved::default(),
        };
        let sender = self.inbox.sender().try_clone_to_owned().expect("a number");
        Sender::new(sender).send(connection, &note).expect("room");
    }

    /// A connection that another worker has accepted and hands over.
    fn connection(&self) -> TcpStream {
        let connection = connect(&self.elsewhere);
        connection.set_nonblocking(true).expect("it is open");
        connection
    }

    /// What one poll finds, after the runtime has found what is ready.
    async fn poll(&mut self) -> Poll<Option<Connection>> {
        yield_now().await;
        poll_fn(|cx| Poll::Ready(self.incoming.poll_accept(cx))).await
    }
}

/// Another worker may send anything.
#[tokio::test]
async fn a_descriptor_that_is_no_connection_does_not_hide_the_next_one() {
    let mut worker = Fixture::new(1000);
    let (pipe, _other_end) = io::pipe().expect("a pipe");
    let unix = std::os::unix::net::UnixStream::pair().expect("a pair");
    worker.hand_over(&pipe);
    worker.hand_over(&unix.0);
    let connection = worker.connection();
    worker.hand_over(&connection);
    assert!(worker.poll().await.is_ready());
}

#[tokio::test]
async fn a_source_that_fails_does_not_stop_the_others() {
    let mut worker = Fixture::new(1000);
    let listener = SockRef::from(&worker.listener);
    listener.shutdown(Shutdown::Both).expect("it listens");
    for first in 0..2 {
        let connection = worker.connection();
        worker.hand_over(&connection);
        worker.queue.state().next = first;
        assert!(worker.poll().await.is_ready(), "from the inbox");
    }
    let mut worker = Fixture::new(1000);
    let receiver = worker.inbox.receiver();
    let receiver = SockRef::from(&receiver);
    receiver.shutdown(Shutdown::Both).expect("a socket");
    for first in 0..2 {
        let _client = connect(&worker.listener);
        worker.queue.state().next = first;
        assert!(worker.poll().await.is_ready(), "from the listener");
    }
}

#[tokio::test]
async fn at_the_limit_a_connection_in_the_inbox_waits_too() {
    let mut worker = Fixture::new(1);
    let watch = worker.incoming.limit_watch();
    let connection = worker.connection();
    worker.hand_over(&connection);
    let Poll::Ready(Some(_open)) = worker.poll().await else {
        panic!("the worker has room");
    };
    assert!(worker.poll().await.is_pending());
    assert!(!watch.is_waiting(), "nothing waits");
    worker.hand_over(&connection);
    assert!(worker.poll().await.is_pending());
    assert!(watch.is_waiting());
    watch.connection_waits().await;
}

/// A worker with more load than its sibling gives away what comes from its listener, and serves
/// what is in its inbox. Both came at once.
#[tokio::test]
async fn a_connection_that_is_given_away_does_not_hide_the_next_source() {
    let mut worker = Fixture::new(1000);
    let (_sibling, theirs, ends) = sibling();
    worker.queue.set_siblings(vec![ends]);
    (0..9).for_each(|_| worker.stats.connection_begins(Count::Connections));
    for first in 0..2 {
        let _client = connect(&worker.listener);
        let connection = worker.connection();
        worker.hand_over(&connection);
        worker.queue.state().next = first;
        assert!(worker.poll().await.is_ready(), "from the inbox");
    }
    assert!(theirs.is_waited_in());
}

/// The master gives a worker all sockets of its slot if one of them is new.
#[tokio::test]
async fn a_worker_adopts_only_sockets_that_it_does_not_have() {
    let mut worker = Fixture::new(1000);
    let same = worker.listener.try_clone().expect("descriptors are left");
    let inbox = worker.inbox.receiver().try_clone_to_owned();
    let new = listener();
    let copy = new.try_clone().expect("descriptors are left");
    let sockets = vec![same.into(), copy.into()];
    let adopted = worker
        .queue
        .adopt(Slot(0), inbox.expect("a number"), sockets);
    adopted.expect("a runtime");
    assert_eq!(worker.queue.state().sources.len(), 3);
    let _client = connect(&new);
    assert!(worker.poll().await.is_ready());
}

/// As a service manager may pass it.
#[tokio::test]
async fn an_ipv4_client_of_a_listener_of_both_families_has_its_own_address() {
    let listener = Socket::new(Domain::IPV6, Type::STREAM, None).expect("a socket");
    listener.set_only_v6(false).expect("it is not bound");
    let any: SocketAddr = "[::]:0".parse().expect("an address");
    listener.bind(&any.into()).expect("a free port");
    listener.listen(8).expect("it is bound");
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(true).expect("it is open");
    let port = listener.local_addr().expect("it is bound").port();
    let client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let accepted = Incoming::new(queue(listener)).accept().await;
    let accepted = accepted.expect("it does not drain");
    assert_eq!(
        accepted.peer(),
        Peer::Tcp(client.local_addr().expect("it is open"))
    );
}
