//! Connections that do not open: their clients are silent, slow, or not understood.

use tokio::runtime::{Builder, LocalOptions};
use tokio::task::{spawn_local, yield_now};

use super::*;
use crate::http::Server;
use crate::http::registry::state::Stage;

/// More ticks than a round trip has, and fewer than the header timeout.
const TICKS: usize = 10;

/// A server whose clock the test turns.
struct Host {
    peers: Peers,
    server: Server,
}

impl Host {
    fn new() -> Self {
        let peers = Peers::new(None);
        let server = Server::new(Http::new(), peers.stats.clone());
        Self { peers, server }
    }

    /// A client that has sent these bytes, and the server has read them.
    async fn client(&self, sent: &[u8], stage: Stage) -> TcpStream {
        let service = hyper::service::service_fn(async |_: crate::http::Request| {
            Ok::<_, io::Error>(http::Response::new(http_body_util::Empty::<Bytes>::new()))
        });
        let (mut client, secure) = self.peers.connected().await;
        client.write_all(sent).await.expect("it is open");
        spawn_local(self.server.endpoint(service).serve(secure));
        let is_there = || {
            let members = self.server.registry.members.borrow();
            let mut stages = members.entries.iter().map(|(_, entry)| entry.state.stage());
            stages.any(|it| it == stage)
        };
        while !is_there() {
            yield_now().await;
        }
        client
    }

    /// Lets the time pass in which a client's first bytes may be on their way.
    async fn pass(&self) {
        for _ in 0..TICKS {
            self.server.registry.tick();
            yield_now().await;
        }
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .expect("a runtime");
    runtime.block_on(async { timeout(CEILING, test).await.expect("it ends") });
}

/// Reads the end of the connection, which must have no bytes before it.
async fn expect_end(mut client: TcpStream) {
    let end = client.read(&mut [0]).await.expect("no reset");
    assert_eq!(end, 0);
}

#[test]
fn a_silent_client_is_evicted_and_one_whose_handshake_has_begun_is_not() {
    run(async {
        let host = Host::new();
        let silent = host.client(b"", Stage::Unopened).await;
        let _begun = host.client(&[22], Stage::Opening).await;
        host.server.evict_idle();
        yield_now().await;
        assert_eq!(
            host.server.connections(),
            2,
            "its first bytes may be on their way"
        );
        host.pass().await;
        for _ in 0..2 {
            host.server.evict_idle();
            yield_now().await;
        }
        assert_eq!(host.server.connections(), 1);
        expect_end(silent).await;
    });
}

#[test]
fn a_client_whose_first_bytes_have_just_come_is_not_evicted() {
    run(async {
        let host = Host::new();
        let mut client = host.client(b"", Stage::Unopened).await;
        host.pass().await;
        // The runtime does not know of the byte yet.
        let byte = SockRef::from(&client).send(&[22]);
        assert_eq!(byte.expect("it is open"), 1);
        host.server.evict_idle();
        yield_now().await;
        assert_eq!(host.server.connections(), 1);
        client.shutdown().await.expect("it is open");
        while host.server.connections() > 0 {
            yield_now().await;
        }
    });
}

#[test]
fn a_drain_does_not_wait_for_a_silent_client() {
    run(async {
        let host = Host::new();
        let silent = host.client(b"", Stage::Unopened).await;
        let _begun = host.client(&[22], Stage::Opening).await;
        host.server.drain();
        host.pass().await;
        assert_eq!(host.server.connections(), 1);
        expect_end(silent).await;
        assert_eq!(host.server.count(Count::HeaderTimeouts), 0);
    });
}

#[test]
fn a_client_whose_handshake_has_failed_has_a_round_trip_to_close() {
    run(async {
        let host = Host::new();
        let mut client = host.client(&[0; 64], Stage::Ending).await;
        let mut alert = Vec::new();
        client.read_to_end(&mut alert).await.expect("no reset");
        assert_eq!(alert.first(), Some(&21), "an alert: {alert:?}");
        assert_eq!(host.server.connections(), 1);
        host.pass().await;
        assert_eq!(host.server.connections(), 0);
    });
}
