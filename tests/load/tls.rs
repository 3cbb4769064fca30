//! The load driver against servers with TLS.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::support::load::{Ask, Driver, Extent, Failure, Handshakes, Outcome, Plan, Tls};
use super::{HELLO, assert_all_fail, hello, repeat, request, server};

type Stream = StreamOwned<ServerConnection, TcpStream>;

fn certified() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

fn config(certified: &CertifiedKey<KeyPair>) -> ServerConfig {
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let certificate = certified.cert.der().clone();
    let mut config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.ticketer = ring::Ticketer::new().unwrap();
    config
}

fn private(config: ServerConfig, serve: fn(Stream)) -> SocketAddr {
    let config = Arc::new(config);
    server(move |stream| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        serve(StreamOwned::new(session, stream));
    })
}

/// Sends one response and close_notify.
fn once(mut stream: Stream) {
    if request(&mut stream).is_some() {
        stream.write_all(HELLO).unwrap();
        stream.conn.send_close_notify();
        // A client that has seen an error may have closed the connection.
        let _ = stream.flush();
    }
}

/// Ten requests of two clients.
fn ten(address: SocketAddr, ask: Ask, tls: Tls) -> Outcome {
    let mut plan = Plan::new(2, ask);
    plan.tls = Some(tls);
    let mut driver = Driver::new(address, plan);
    driver.closed(Extent::Requests(10)).clone()
}

fn assert_all_right(outcome: &Outcome) {
    assert_eq!(outcome.failures.total(), 0, "{}", outcome.failures);
    assert_eq!(outcome.answered, 10);
}

#[test]
fn handshakes_are_full_or_resumed_as_configured() {
    let certified = certified();
    for handshakes in [Handshakes::Full, Handshakes::Resumed] {
        let tls = Tls::trusting(certified.cert.der().clone(), handshakes);
        let address = private(config(&certified), once);
        assert_all_right(&ten(address, hello().closing(), tls));
    }
}

#[test]
fn connections_are_kept_within_tls_too() {
    let certified = certified();
    let address = private(config(&certified), |stream| repeat(stream, HELLO));
    let tls = Tls::trusting(certified.cert.der().clone(), Handshakes::Resumed);
    assert_all_right(&ten(address, hello(), tls));
}

#[test]
fn a_full_handshake_does_not_count_as_resumed() {
    let certified = certified();
    let mut config = config(&certified);
    config.send_tls13_tickets = 0;
    let tls = Tls::trusting(certified.cert.der().clone(), Handshakes::Resumed);
    let outcome = ten(private(config, once), hello().closing(), tls);
    assert_eq!(outcome.answered, 2, "the first of each client");
    assert_eq!(outcome.failures.count(Failure::NotResumed), 8);
    assert_eq!(outcome.failures.total(), 8, "{}", outcome.failures);
}

#[test]
fn a_handshake_with_one_more_round_trip_does_not_count_as_full() {
    let certified = certified();
    let mut config = config(&certified);
    // A group for which the client's first message has no key share.
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![ring::kx_group::SECP384R1];
    config = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(config.cert_resolver);
    let tls = Tls::trusting(certified.cert.der().clone(), Handshakes::Full);
    let outcome = ten(private(config, once), hello().closing(), tls);
    assert_all_fail(&outcome, Failure::NotFull);
}

#[test]
fn an_end_without_close_notify_is_a_cut() {
    let certified = certified();
    let address = private(config(&certified), |mut stream| {
        if request(&mut stream).is_some() {
            stream.write_all(HELLO).unwrap();
        }
    });
    let tls = Tls::trusting(certified.cert.der().clone(), Handshakes::Full);
    assert_all_fail(&ten(address, hello().closing(), tls), Failure::Eof);
}

#[test]
fn a_server_with_another_certificate_is_refused() {
    let address = private(config(&certified()), once);
    let tls = Tls::trusting(certified().cert.der().clone(), Handshakes::Full);
    assert_all_fail(&ten(address, hello().closing(), tls), Failure::Tls);
}

#[test]
fn a_server_without_tls_is_refused() {
    let address = server(|mut stream| {
        stream.write_all(HELLO).unwrap();
        // Waits until the client closes: a close with unread bytes would be a reset.
        request(&mut stream);
    });
    let tls = Tls::trusting(certified().cert.der().clone(), Handshakes::Full);
    assert_all_fail(&ten(address, hello().closing(), tls), Failure::Tls);
}
