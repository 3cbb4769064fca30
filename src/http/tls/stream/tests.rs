use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, RootCertStore};

use std::task::{Wake, Waker};

use super::wire::{ALL, Pair, client_config, server_config};
use super::*;

/// Numbered, so that bytes in the wrong order are noticed.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8) as u8).collect()
}

/// The lengths of the records that are on their way to the client.
fn records(pair: &Pair) -> Vec<usize> {
    let mut bytes: Vec<u8> = pair.net.borrow().down.iter().copied().collect();
    let mut lengths = Vec::new();
    while let [_, _, _, high, low, ..] = *bytes {
        let len = usize::from(u16::from_be_bytes([high, low]));
        bytes.drain(..5 + len);
        lengths.push(len);
    }
    lengths
}

/// The alert that the client has received.
fn alert(error: Result<(), rustls::Error>) -> AlertDescription {
    match error {
        Err(rustls::Error::AlertReceived(alert)) => alert,
        other => panic!("no alert: {other:?}"),
    }
}

#[test]
fn bytes_arrive_however_the_transport_and_the_reader_divide_them() {
    let sent = pattern(40_000);
    for version in [&TLS12, &TLS13] {
        for most in [1, 7, 1000, 16_390, ALL] {
            for size in [1, 100, 16_384, 1 << 16] {
                let mut pair = Pair::new(server_config(version), client_config());
                (
                    pair.net.borrow_mut().read_max,
                    pair.net.borrow_mut().write_max,
                ) = (most, most);
                pair.open();
                pair.send_plain(&sent);
                assert_eq!(pair.read_all(size), sent, "{most} and {size}");
                let mut left = &sent[..];
                while !left.is_empty() {
                    let part = &left[..left.len().min(size)];
                    let Poll::Ready(written) = pair.write(part) else {
                        panic!("there is space");
                    };
                    left = &left[written.expect("it is open")..];
                }
                pair.take(ALL).expect("the server is right");
                assert_eq!(pair.received, sent, "{most} and {size}");
                assert_eq!(pair.server.held(), 0, "{most} and {size}");
            }
        }
    }
}

#[test]
fn a_read_decrypts_all_records_that_came() {
    let mut pair = Pair::opened(&TLS13);
    for part in pattern(300).chunks(100) {
        pair.send_plain(part);
    }
    let Poll::Ready(Ok(read)) = pair.read(1000) else {
        panic!("there are bytes");
    };
    assert_eq!(read, pattern(300));
    assert!(pair.read(1000).is_pending());
}

#[test]
fn a_stream_at_rest_holds_no_buffer_and_one_with_a_part_of_a_record_little_more_than_it() {
    for version in [&TLS12, &TLS13] {
        let mut pair = Pair::opened(version);
        assert_eq!(pair.server.held(), 0);
        assert!(!pair.server.has_unread());
        pair.send_plain(&pattern(10_000));
        let rest = pair.net.borrow_mut().up.split_off(9000);
        assert!(pair.read(100).is_pending());
        assert!((9000..9000 + 4096 + 1).contains(&pair.server.held()));
        assert!(!pair.server.has_unread(), "the socket has the rest");
        pair.net.borrow_mut().up.extend(rest);
        let Poll::Ready(Ok(read)) = pair.read(100) else {
            panic!("the record is complete");
        };
        assert_eq!(read, pattern(100));
        assert!(pair.server.has_unread(), "the reader's buffer was small");
        assert_eq!(pair.read_all(1000), pattern(10_000)[100..]);
        assert_eq!(pair.server.held(), 0);
        let answered = pair.write(&pattern(100_000));
        assert!(answered.is_ready());
        assert_eq!(pair.server.held(), 0);
    }
}

/// A message of the handshake in many records.
#[test]
fn a_client_may_divide_its_hello() {
    for version in [&TLS12, &TLS13] {
        for most in [1, 50, ALL] {
            let mut client = client_config();
            client.max_fragment_size = Some(32);
            let mut pair = Pair::new(server_config(version), client);
            pair.net.borrow_mut().read_max = most;
            pair.open();
            pair.send_plain(b"hello");
            assert_eq!(pair.read_all(100), b"hello");
            assert_eq!(pair.server.held(), 0);
        }
    }
}

/// The last message of the handshake and the first request, in one segment.
#[test]
fn bytes_that_come_with_the_end_of_the_handshake_are_not_lost() {
    let mut pair = Pair::new(server_config(&TLS13), client_config());
    pair.queue(b"first").expect("it has not failed");
    pair.open();
    assert!(pair.server.has_unread());
    assert_eq!(pair.read_all(2), b"first");
    assert_eq!(pair.server.held(), 0);
}

#[test]
fn bytes_between_the_handshake_and_a_wrong_record_are_not_lost() {
    let mut pair = Pair::new(server_config(&TLS13), client_config());
    pair.queue(b"first").expect("it has not failed");
    while pair.client.is_handshaking() {
        pair.send();
        assert!(pair.handshake().is_pending());
        pair.take(ALL).expect("the server is right");
    }
    pair.send();
    pair.net.borrow_mut().up.extend([23, 3, 3, 0, 40]);
    pair.net.borrow_mut().up.extend([7; 40]);
    assert!(matches!(pair.handshake(), Poll::Ready(Ok(()))));
    assert!(matches!(pair.read(100), Poll::Ready(Ok(read)) if read == b"first"));
    assert!(matches!(pair.read(100), Poll::Ready(Err(_))));
    assert_eq!(alert(pair.take(ALL)), AlertDescription::BadRecordMac);
}

#[test]
fn a_client_that_has_ended_its_half_still_reads() {
    for version in [&TLS12, &TLS13] {
        let mut pair = Pair::opened(version);
        pair.queue(b"last").expect("it has not failed");
        pair.client.send_close_notify();
        pair.send();
        // What follows `close_notify` is ignored.
        pair.net.borrow_mut().up.extend([0; 100]);
        assert_eq!(pair.read_all(100), b"last");
        assert!(pair.server.has_unread(), "the end of file");
        assert!(pair.write(b"response").is_ready());
        for _ in 0..2 {
            assert!(matches!(pair.shutdown(), Poll::Ready(Ok(()))));
        }
        let records = records(&pair);
        assert_eq!(records.len(), 2, "`close_notify` is sent once: {records:?}");
        pair.take(ALL).expect("the server is right");
        assert_eq!(pair.received, b"response");
        let state = pair.client.process_new_packets().expect("no error");
        assert!(state.peer_has_closed());
        assert!(pair.net.borrow().down_is_closed);
        assert!(matches!(pair.write(b"more"), Poll::Ready(Err(_))));
    }
}

#[test]
fn an_end_without_close_notify_is_an_error_and_the_client_may_still_read() {
    let mut pair = Pair::opened(&TLS13);
    pair.send_plain(b"part");
    pair.net.borrow_mut().up_is_closed = true;
    for _ in 0..2 {
        let read = pair.read(100);
        if let Poll::Ready(Ok(read)) = &read {
            assert_eq!(read, b"part");
            continue;
        }
        let Poll::Ready(Err(error)) = read else {
            panic!("{read:?}");
        };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
    assert!(pair.server.has_unread());
    assert!(pair.write(b"response").is_ready());
    pair.take(ALL).expect("the server is right");
    assert_eq!(pair.received, b"response");
}

#[test]
fn a_client_that_leaves_in_the_handshake_fails_it() {
    let mut pair = Pair::new(server_config(&TLS13), client_config());
    pair.send();
    pair.net.borrow_mut().up.truncate(100);
    assert!(pair.handshake().is_pending());
    pair.net.borrow_mut().up_is_closed = true;
    let Poll::Ready(Err(error)) = pair.handshake() else {
        panic!("no client is left");
    };
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn bytes_that_are_no_handshake_get_an_alert() {
    for bytes in [
        &[0; 5],
        &b"\x16\x03\x01\xff\xff"[..],
        &[22, 3, 1, 0, 4, 9, 0, 0, 0],
    ] {
        let mut pair = Pair::new(server_config(&TLS13), client_config());
        pair.net.borrow_mut().up.extend(bytes);
        let Poll::Ready(Err(error)) = pair.handshake() else {
            panic!("{bytes:?} are no handshake");
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let (mut wire, mut alert) = pair.server.into_parts();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(alert.poll_send(&mut wire, &mut cx).is_ready());
        // Its type is 21, it is fatal.
        let sent: Vec<u8> = pair.net.borrow().down.iter().copied().collect();
        assert!(
            matches!(sent[..], [21, 3, _, 0, 2, 2, _]),
            "{bytes:?}: {sent:?}"
        );
    }
}

#[test]
fn a_record_that_is_not_the_clients_gets_an_alert_after_what_came_before() {
    for version in [&TLS12, &TLS13] {
        let mut pair = Pair::opened(version);
        pair.send_plain(b"good");
        pair.net.borrow_mut().up.extend([23, 3, 3, 0, 40]);
        pair.net.borrow_mut().up.extend([7; 40]);
        pair.send_plain(b"never read");
        let Poll::Ready(Ok(read)) = pair.read(100) else {
            panic!("a record is good");
        };
        assert_eq!(read, b"good");
        for _ in 0..2 {
            let Poll::Ready(Err(error)) = pair.read(100) else {
                panic!("a record is not good");
            };
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(alert(pair.take(ALL)), AlertDescription::BadRecordMac);
        assert!(matches!(pair.write(b"more"), Poll::Ready(Err(_))));
        assert!(matches!(pair.shutdown(), Poll::Ready(Ok(()))));
        assert!(
            pair.net.borrow().down.is_empty(),
            "nothing follows an alert"
        );
    }
}

#[test]
fn a_client_with_the_certificate_of_another_ca_is_refused() {
    let other = || {
        let made = rcgen::generate_simple_self_signed(["other".to_owned()]);
        made.expect("random bytes")
    };
    let (shown, trusted) = (other(), other());
    let mut roots = RootCertStore::empty();
    roots
        .add(trusted.cert.der().clone())
        .expect("a certificate");
    let provider = crate::http::tls::crypto::provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_client_cert_verifier(verifier.build().expect("a CA"))
        .with_cert_resolver(server_config(&TLS13).cert_resolver);
    server.send_tls13_tickets = 0;
    let mut client = client_config();
    let key = shown.signing_key.serialize_der().try_into().expect("a key");
    let key = provider.key_provider.load_private_key(key).expect("a key");
    let chain: Vec<CertificateDer<'static>> = vec![shown.cert.der().clone()];
    let certified = rustls::sign::CertifiedKey::new(chain, key);
    client.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
    let mut pair = Pair::new(server, client);
    let refused = loop {
        pair.send();
        match pair.handshake() {
            Poll::Ready(refused) => break refused,
            Poll::Pending => pair.take(ALL).expect("so far it is right"),
        }
    };
    assert_eq!(
        refused.expect_err("refused").kind(),
        io::ErrorKind::InvalidData
    );
    assert!(matches!(pair.flush(), Poll::Ready(Ok(()))));
    // Both have the name of the CA. The signature is not the CA's.
    assert_eq!(alert(pair.take(ALL)), AlertDescription::DecryptError);
}

#[test]
fn keys_change_while_bytes_go_both_ways() {
    let mut pair = Pair::opened(&TLS13);
    let (up, down) = (pattern(20_000), pattern(30_000));
    for round in 1..=5 {
        pair.client.refresh_traffic_keys().expect("it is open");
        pair.send_plain(&up);
        assert_eq!(pair.read_all(700), up);
        // The server's own keys change with the next record.
        assert!(pair.write(&down).is_ready());
        let records = records(&pair);
        assert_eq!(
            records.len(),
            3,
            "a key update and two records: {records:?}"
        );
        pair.take(ALL).expect("the server is right");
        assert_eq!(pair.received.len(), round * down.len());
        assert_eq!(pair.server.held(), 0);
    }
}

#[test]
fn a_writer_waits_until_the_client_has_taken_what_was_encrypted() {
    let sent = pattern(200_000);
    for most in [ALL, 1000] {
        let mut pair = Pair::opened(&TLS13);
        pair.net.borrow_mut().space = 5000;
        pair.net.borrow_mut().write_max = most;
        let mut left = &sent[..];
        let mut pending = 0;
        while !left.is_empty() {
            match pair.write(left) {
                Poll::Ready(written) => left = &left[written.expect("it is open")..],
                Poll::Pending => {
                    pending += 1;
                    assert!(pair.server.held() > 0);
                    pair.take(ALL).expect("the server is right");
                }
            }
            assert!(pair.server.held() < 84_000, "{}", pair.server.held());
        }
        assert!(pending > 30, "{pending}");
        while pair.flush().is_pending() {
            pair.take(ALL).expect("the server is right");
        }
        pair.take(ALL).expect("the server is right");
        assert_eq!(pair.received, sent);
        assert_eq!(pair.server.held(), 0);
    }
}

struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// One task writes and another one reads, as in a tunnel.
#[test]
fn a_reader_does_not_take_the_place_of_a_writer_that_waits() {
    let mut pair = Pair::opened(&TLS13);
    pair.net.borrow_mut().space = 100;
    let writer = Waker::from(Arc::new(Task));
    let mut cx = Context::from_waker(&writer);
    let bytes = pattern(1000);
    let written = Pin::new(&mut pair.server).poll_write(&mut cx, &bytes);
    assert!(written.is_ready(), "they are encrypted, and wait");
    let written = Pin::new(&mut pair.server).poll_write(&mut cx, &bytes);
    assert!(written.is_pending());
    pair.send_plain(&bytes);
    assert_eq!(pair.read_all(1000), bytes);
    let waiting = pair.net.borrow_mut().writer.take();
    assert!(waiting.expect("it waits").will_wake(&writer));
}

#[test]
fn the_bytes_of_a_shutdown_wait_for_the_client_too() {
    let mut pair = Pair::opened(&TLS13);
    pair.net.borrow_mut().space = 10;
    assert!(pair.write(b"response").is_ready());
    while pair.shutdown().is_pending() {
        assert!(!pair.net.borrow().down_is_closed);
        pair.take(ALL).expect("the server is right");
    }
    pair.take(ALL).expect("the server is right");
    assert_eq!(pair.received, b"response");
    let state = pair.client.process_new_packets().expect("no error");
    assert!(state.peer_has_closed());
}

#[test]
fn pieces_of_one_write_share_records() {
    let all = pattern(60_000);
    for cuts in [
        &[200][..],
        &[0, 0, 200, 200, 50_000],
        &[16_384],
        &[16_384, 16_385],
        &[1, 2, 3, 4, 40_000, 59_999, 60_000],
        &[30_000, 30_001],
    ] {
        let mut pair = Pair::opened(&TLS13);
        let ends = cuts.iter().copied().chain([all.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces: Vec<_> = starts
            .zip(ends)
            .map(|(start, end)| IoSlice::new(&all[start..end]))
            .collect();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let written = Pin::new(&mut pair.server).poll_write_vectored(&mut cx, &pieces);
        assert!(matches!(written, Poll::Ready(Ok(60_000))), "{cuts:?}");
        // At most one more than 60 000 bytes need: a large piece is not copied.
        let records = records(&pair);
        assert!(records.len() <= 5, "{cuts:?}: {records:?}");
        pair.take(ALL).expect("the server is right");
        assert_eq!(pair.received, all, "{cuts:?}");
    }
}

#[test]
fn one_write_takes_a_body_of_64_kib_with_its_head() {
    let mut pair = Pair::opened(&TLS13);
    let body = pattern(65_536 + 300);
    assert!(matches!(pair.write(&body), Poll::Ready(Ok(65_836))));
    assert!(matches!(
        pair.write(&pattern(100_000)),
        Poll::Ready(Ok(81_920))
    ));
    assert!(matches!(pair.write(b""), Poll::Ready(Ok(0))));
}
