//! What a handover target gets of a TLS stream, and what comes back.

use std::cell::RefCell;
use std::future::ready;
use std::rc::Rc;

use super::*;
use crate::http::HandoverTarget;
use crate::http::conn::handover::HandoverFuture;

/// A target that takes one socket, or gives each back.
enum Target {
    Takes(RefCell<Option<Tcp>>),
    GivesBack,
}

impl HandoverTarget<Tcp> for Target {
    fn hand_over(self: Rc<Self>, mut tcp: Tcp, moved: Moved) -> HandoverFuture<Tcp> {
        tcp.moved = Some(moved);
        Box::pin(ready(match &*self {
            Self::Takes(taken) => {
                taken.replace(Some(tcp));
                Ok(())
            }
            Self::GivesBack => Err(tcp),
        }))
    }
}

fn moved() -> Moved {
    Moved {
        http2: Some(Bytes::from_static(b"the client")),
        read_ahead: Bytes::from_static(b"read "),
        ..Moved::default()
    }
}

async fn hand_over(peers: &Peers, target: &Rc<Target>, secure: Secure<Tcp>) -> Option<Secure<Tcp>> {
    let target = peers
        .acceptor
        .handover_target::<Tcp>(Rc::clone(target) as _);
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
    let target = Rc::new(Target::Takes(RefCell::default()));
    assert!(hand_over(&peers, &target, secure).await.is_none());
    let Target::Takes(taken) = &*target else {
        unreachable!("it was made so");
    };
    let tcp = taken.take().expect("it was handed over");
    let session = tcp.moved.as_ref().and_then(|moved| moved.tls.as_ref());
    assert!(session.is_some());
    goes_on(peers.acceptor.accept(tcp), &mut client).await;

    let (mut client, secure) = peers.opened().await;
    let back = hand_over(&peers, &Rc::new(Target::GivesBack), secure).await;
    goes_on(back.expect("it comes back"), &mut client).await;
    assert_eq!(peers.counts(), [2, 0, 0], "they were opened once");
}

#[tokio::test]
async fn a_session_that_cannot_move_comes_back_with_all_that_was_read() {
    let peers = Peers::new(None);
    let (mut client, mut secure) = peers.opened().await;
    client.shutdown().await.expect("it is open");
    assert_eq!(secure.read(&mut [0]).await.expect("close_notify"), 0);
    let target = Rc::new(Target::Takes(RefCell::default()));
    let back = hand_over(&peers, &target, secure).await;
    let mut secure = back.expect("it stays");
    assert_eq!(secure.take_http2(), Some(moved()));
    assert_eq!(secure.read(&mut [0]).await.expect("close_notify"), 0);
}
