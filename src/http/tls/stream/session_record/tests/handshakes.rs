//! Handshake messages that a client sends after the handshake, and that are no key update.

use super::*;

/// A session of TLS 1.2 that has moved, and what its client receives.
fn opened_tls12() -> (Records, Traffic) {
    let mut pair = Pair::opened(&TLS12);
    let terms = pair.terms();
    let detached = pair.server.detach(&terms).expect("it can move");
    let keys: SessionRecord = codec::from_bytes(&detached.session).expect("it is whole");
    pair.server = TlsStream::attach(detached, &terms).expect("it is valid");
    let suite = pair.client.negotiated_cipher_suite().expect("it is open");
    let [sent, received] = [keys.received, keys.sent].map(|keys| {
        let traffic = Traffic::new(suite, keys);
        traffic.expect("they are the server's")
    });
    (Records { pair, sent }, received)
}

/// As with rustls' own session (RFC 5246 7.2.2).
#[test]
fn a_client_that_asks_for_another_handshake_learns_once_that_there_is_none() {
    let hello = [1, 0, 0, 2, 3, 3];
    for parts in [
        &[&hello[..]][..],
        &[&hello[..5], &hello[5..]],
        &[&hello[..1], &hello[1..4], &hello[4..]],
    ] {
        let (mut records, mut received) = opened_tls12();
        let (last, parts) = parts.split_last().expect("some");
        for part in parts {
            assert!(records.send(HANDSHAKE, part).is_pending(), "{part:?}");
            assert!(!records.pair.move_session(), "a part has come: {part:?}");
        }
        assert!(records.send(HANDSHAKE, last).is_pending());
        let mut alert: Vec<u8> = records.pair.net.borrow_mut().down.drain(..).collect();
        assert_eq!(received.open(&mut alert), Ok((ALERT, &[1, 100][..])));
        let read = records.send(APPLICATION_DATA, b"data");
        assert!(matches!(&read, Poll::Ready(Ok(bytes)) if bytes == b"data"));
        let again = records.send(HANDSHAKE, &hello);
        assert!(matches!(again, Poll::Ready(Err(_))), "{again:?}");
    }
}

#[test]
fn what_is_no_request_for_another_handshake_ends_the_session_at_once() {
    for (first, (kind, next)) in [
        // A finished message.
        (&[1][..], (HANDSHAKE, &[0, 0, 1, 3, 20][..])),
        // A client hello of 16,385 bytes.
        (&[1, 0], (HANDSHAKE, &[64, 1])),
        (&[1, 0, 0], (APPLICATION_DATA, b"data")),
        (&[1, 0, 0], (HANDSHAKE, &[])),
    ] {
        let (mut records, _) = opened_tls12();
        assert!(records.send(HANDSHAKE, first).is_pending());
        let read = records.send(kind, next);
        assert!(matches!(read, Poll::Ready(Err(_))), "{next:?}");
    }
}

/// Nothing of it is kept.
#[test]
fn a_long_message_ends_a_session_of_tls_1_3_when_it_begins() {
    for message in [1, 20] {
        let mut records = Records::opened(true);
        let read = records.send(HANDSHAKE, &[message, 0, 128, 0, 0]);
        assert!(matches!(read, Poll::Ready(Err(_))), "{message}");
    }
}
