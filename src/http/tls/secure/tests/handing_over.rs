//! What a handover target gets of a TLS stream, and what comes back.

use std::cell::RefCell;

use super::*;

/// A target that takes one socket.
#[derive(Default)]
struct Takes(RefCell<Option<Tcp>>);

impl HandoverTarget<Tcp> for Takes {
    fn hand_over(self: Rc<Self>, mut tcp: Tcp, moved: Moved) -> HandoverFuture<Tcp> {
        tcp.moved = Some(moved);
        self.0.replace(Some(tcp));
        Box::pin(ready(Ok(())))
    }
}

fn moved() -> Moved {
    Moved {
        http2: Some(Bytes::from_static(b"the client")),
        read_ahead: Bytes::from_static(b"read "),
        ..Moved::default()
    }
}

async fn hand_over(
    peers: &Peers,
    target: Rc<dyn HandoverTarget<Tcp>>,
    secure: Secure<Tcp>,
) -> Option<Secure<Tcp>> {
    let target = peers.acceptor.handover_target(target);
    target.hand_over(secure, moved()).await.err()
}

/// The bytes that come after those that a server of HTTP/2 takes.
async fn goes_on(mut secure: Secure<Tcp>, client: &mut (impl AsyncWriteExt + Unpin)) {
    assert_eq!(
        open(&mut secure).await.expect("it was open"),
        Version::Http1
    );
    assert_eq!(
        tls_info(&secure).map(|tls| tls.version),
        Some(TlsVersion::Tls13)
    );
    assert_eq!(secure.take_http2(), Some(moved()));
    assert_eq!(secure.take_http2(), None);
    client.write_all(b"after that").await.expect("it is open");
    let mut bytes = [0; 10];
    secure.read_exact(&mut bytes).await.expect("they come");
    assert_eq!(bytes, *b"after that");
}

#[tokio::test]
async fn a_session_goes_on_at_the_target_or_here_if_the_target_gives_it_back() {
    let peers = Peers::new(None);
    let (mut client, secure) = peers.opened().await;
    let target = Rc::new(Takes::default());
    assert!(hand_over(&peers, target.clone(), secure).await.is_none());
    let tcp = target.0.take().expect("it was handed over");
    let session = tcp.moved.as_ref().and_then(|moved| moved.tls.as_ref());
    assert!(session.is_some());
    goes_on(peers.acceptor.accept(tcp), &mut client).await;

    let (mut client, secure) = peers.opened().await;
    let back = hand_over(&peers, Rc::new(GivesBack), secure).await;
    goes_on(back.expect("it comes back"), &mut client).await;
    assert_eq!(peers.counts(), [2, 0, 0], "they were opened once");
}

#[tokio::test]
async fn a_session_that_cannot_move_comes_back_with_all_that_was_read() {
    let peers = Peers::new(None);
    let (mut client, mut secure) = peers.opened().await;
    client.shutdown().await.expect("it is open");
    assert_eq!(secure.read(&mut [0]).await.expect("close_notify"), 0);
    let back = hand_over(&peers, Rc::new(Takes::default()), secure).await;
    let mut secure = back.expect("it stays");
    assert_eq!(secure.take_http2(), Some(moved()));
    assert_eq!(secure.read(&mut [0]).await.expect("close_notify"), 0);
}
