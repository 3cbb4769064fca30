mod handshakes;

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, CipherSuite, KeyLog};

use super::*;
use crate::codec;
use crate::http::info::tls::{TlsHandshake, TlsVersion};
use crate::http::tls::crypto::provider;
use crate::http::tls::stream::input::HEADER;
use crate::http::tls::stream::output::Output;
use crate::http::tls::stream::taken_session::TakenSession;
use crate::http::tls::stream::traffic::{ALERT, APPLICATION_DATA, HANDSHAKE};
use crate::http::tls::stream::wire::{
    ALL, Pair, Wire, client_config, server_config, server_config_of_suite,
};
use crate::http::tls::stream::{Detached, TlsStream};
use crate::secret::Secret;

/// Each version with each of its ciphers.
fn pairs() -> impl Iterator<Item = Pair> {
    [&TLS12, &TLS13].into_iter().flat_map(|version| {
        (0..3).map(move |suite| {
            let mut pair = Pair::new(server_config_of_suite(version, suite), client_config());
            pair.open();
            pair
        })
    })
}

fn moves(pair: &mut Pair) {
    assert!(pair.move_session(), "it can move");
}

fn exchange(pair: &mut Pair, bytes: &[u8]) {
    pair.send_plain(bytes);
    assert_eq!(pair.read_all(100), bytes);
    assert!(matches!(pair.write(bytes), Poll::Ready(Ok(written)) if written == bytes.len()));
    pair.received.clear();
    pair.take(ALL).expect("the server is right");
    assert_eq!(pair.received, bytes);
}

#[test]
fn a_session_goes_on_at_other_servers() {
    for mut pair in pairs() {
        let before = pair.server.session().info();
        exchange(&mut pair, b"at the first server");
        for _ in 0..3 {
            moves(&mut pair);
            assert_eq!(pair.server.session().info(), before);
            exchange(&mut pair, b"a request");
            exchange(&mut pair, &[7; 40_000]);
            assert_eq!(pair.server.held(), 0);
        }
    }
}

#[test]
fn what_has_come_and_was_not_read_moves_too() {
    for mut pair in pairs() {
        pair.send_plain(b"whole");
        let first = pair.read(2);
        assert!(
            matches!(&first, Poll::Ready(Ok(bytes)) if bytes == b"wh"),
            "{first:?}"
        );
        pair.send_plain(b"divided");
        let rest = pair.net.borrow_mut().up.split_off(9);
        assert_eq!(pair.read_all(3), b"ole");
        moves(&mut pair);
        pair.net.borrow_mut().up.extend(rest);
        pair.server.put_back(b"read before, ");
        assert_eq!(pair.read_all(100), b"read before, divided");
        exchange(&mut pair, b"more");
    }
}

#[test]
fn keys_change_before_and_after_a_move() {
    for suite in 0..3 {
        let mut pair = Pair::new(server_config_of_suite(&TLS13, suite), client_config());
        pair.open();
        for _ in 0..3 {
            for _ in 0..2 {
                pair.client.refresh_traffic_keys().expect("it is open");
                exchange(&mut pair, b"under other keys");
            }
            moves(&mut pair);
        }
    }
}

#[test]
fn a_session_stays_until_the_client_has_the_key_update_that_it_has_asked_for() {
    let mut pair = Pair::opened(&TLS13);
    for _ in 0..2 {
        pair.client.refresh_traffic_keys().expect("it is open");
        pair.send();
        assert!(pair.read(1).is_pending());
        assert!(!pair.move_session(), "the server owes it");
        exchange(&mut pair, b"data");
        moves(&mut pair);
    }
}

#[test]
fn a_client_that_sends_one_key_update_after_the_other_is_refused_after_a_move_too() {
    for has_moved in [false, true] {
        for (updates, is_served) in [(32, true), (33, false)] {
            let mut pair = Pair::opened(&TLS13);
            if has_moved {
                moves(&mut pair);
            }
            for _ in 0..2 {
                for _ in 0..updates {
                    pair.client.refresh_traffic_keys().expect("it is open");
                }
                pair.send_plain(b"data");
            }
            let read = pair.read(100);
            let is_read = matches!(&read, Poll::Ready(Ok(bytes)) if bytes == b"datadata");
            assert_eq!(is_read, is_served, "{has_moved} {updates}: {read:?}");
        }
    }
}

/// The client is done with the handshake before the server.
#[test]
fn a_key_update_that_comes_with_the_end_of_the_handshake_is_not_forgotten() {
    for tickets in [0, 2] {
        let mut server = server_config(&TLS13);
        server.send_tls13_tickets = tickets;
        let mut pair = Pair::new(server, client_config());
        while pair.client.is_handshaking() {
            pair.send();
            assert!(pair.handshake().is_pending());
            pair.take(ALL).expect("the server is right");
        }
        pair.client.refresh_traffic_keys().expect("it is open");
        pair.open();
        assert!(!pair.move_session(), "the server owes one");
        exchange(&mut pair, b"data");
        moves(&mut pair);
        exchange(&mut pair, b"more");
    }
}

/// The first secret of what a client sends.
#[derive(Debug, Default)]
struct ClientSecret(Mutex<Option<Secret>>);

impl KeyLog for ClientSecret {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "CLIENT_TRAFFIC_SECRET_0" {
            *self.0.lock().expect("no panic") = Some(Secret::new(secret));
        }
    }
}

/// What another implementation of TLS sends, record by record.
struct Records {
    pair: Pair,
    sent: Traffic,
}

impl Records {
    fn opened(has_moved: bool) -> Self {
        let secret = Arc::new(ClientSecret::default());
        let mut client = client_config();
        client.key_log = Arc::clone(&secret) as _;
        let mut pair = Pair::new(server_config(&TLS13), client);
        pair.open();
        let suite = pair.client.negotiated_cipher_suite().expect("it is open");
        if has_moved {
            moves(&mut pair);
        }
        let record = TrafficRecord {
            secret: secret.0.lock().expect("no panic").take().expect("logged"),
            iv: Bytes::new(),
            next: 0,
        };
        let sent = Traffic::new(suite, record).expect("it is of this suite");
        Self { pair, sent }
    }

    /// Sends a record, and returns what the server reads then.
    fn send(&mut self, kind: u8, content: &[u8]) -> Poll<io::Result<Vec<u8>>> {
        let mut out = [0; 100];
        let sealed = self
            .sent
            .seal(kind, content, &mut out)
            .expect("it is short");
        self.pair.net.borrow_mut().up.extend(&out[..sealed]);
        self.pair.read(100)
    }
}

#[test]
fn a_key_update_in_several_records_ends_no_session_and_keeps_it_until_it_is_whole() {
    for has_moved in [false, true] {
        let mut records = Records::opened(has_moved);
        for parts in [
            &[&[24][..], &[0], &[0, 1], &[1]][..],
            &[&[24, 0, 0, 1], &[0]],
            &[&[24, 0, 0, 1, 0]],
        ] {
            let (last, parts) = parts.split_last().expect("some");
            for part in parts {
                assert!(records.send(HANDSHAKE, part).is_pending(), "{part:?}");
                assert!(!records.pair.move_session(), "a part has come: {part:?}");
            }
            assert!(records.send(HANDSHAKE, last).is_pending());
            records.sent.update();
            let read = records.send(APPLICATION_DATA, b"under the next key");
            assert!(matches!(&read, Poll::Ready(Ok(bytes)) if bytes == b"under the next key"));
            assert!(records.pair.write(b"response").is_ready());
            if has_moved {
                moves(&mut records.pair);
            }
        }
    }
}

#[test]
fn a_key_update_is_refused_if_other_bytes_come_within_it_or_with_it() {
    for has_moved in [false, true] {
        for (first, (kind, next)) in [
            (&[24, 0][..], (APPLICATION_DATA, &b"data"[..])),
            (&[24, 0], (HANDSHAKE, &[0, 1, 0, 24])),
            (&[24], (HANDSHAKE, &[0, 0, 1, 2])),
        ] {
            let mut records = Records::opened(has_moved);
            assert!(records.send(HANDSHAKE, first).is_pending());
            let read = records.send(kind, next);
            assert!(matches!(read, Poll::Ready(Err(_))), "{has_moved} {next:?}");
            let alert = records.pair.take(ALL);
            // rustls sends none.
            let is_sent = matches!(alert, Err(rustls::Error::AlertReceived(_)));
            assert!(is_sent || !has_moved, "{next:?}");
        }
    }
}

#[test]
fn a_wrong_record_gets_an_alert_from_the_next_server_too() {
    for mut pair in pairs() {
        moves(&mut pair);
        pair.send_plain(b"right");
        pair.send_plain(b"wrong");
        *pair.net.borrow_mut().up.back_mut().expect("a tag") ^= 1;
        let read = pair.read(100);
        assert!(
            matches!(&read, Poll::Ready(Ok(bytes)) if bytes == b"right"),
            "{read:?}"
        );
        assert!(matches!(pair.read(100), Poll::Ready(Err(_))));
        assert!(matches!(pair.write(b"no"), Poll::Ready(Err(_))));
        let alert = pair.take(ALL);
        let expected = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
        assert_eq!(alert, Err(expected));
        assert!(!pair.server.can_move());
    }
}

#[test]
fn bytes_that_are_no_record_are_refused_before_and_after_a_move() {
    for has_moved in [false, true] {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[23, 2, 0, 0, 99]] {
            for mut pair in pairs() {
                if has_moved {
                    moves(&mut pair);
                }
                pair.net.borrow_mut().up.extend(&bytes[..HEADER]);
                let read = pair.read(100);
                assert!(matches!(read, Poll::Ready(Err(_))), "{has_moved} {bytes:?}");
                let expected = rustls::Error::AlertReceived(AlertDescription::DecodeError);
                assert_eq!(pair.take(ALL), Err(expected));
            }
        }
    }
}

#[test]
fn both_sides_can_end_a_session_that_has_moved() {
    for mut pair in pairs() {
        moves(&mut pair);
        pair.send_plain(b"last");
        pair.client.send_close_notify();
        pair.send();
        assert_eq!(pair.read_all(100), b"last");
        assert!(!pair.server.can_move(), "the next server would not know");
        assert!(matches!(pair.write(b"response"), Poll::Ready(Ok(8))));
        assert!(matches!(pair.shutdown(), Poll::Ready(Ok(()))));
        pair.take(ALL).expect("the server is right");
        assert_eq!(pair.received, b"response");
        let state = pair.client.process_new_packets().expect("no error");
        assert!(state.peer_has_closed());
    }
}

#[test]
fn no_session_goes_on_where_it_would_not_have_begun() {
    let pair = Pair::opened(&TLS13);
    let terms = pair.terms();
    let Detached { io, session, .. } = pair.server.detach(&terms).expect("it can move");
    let attach = |session: &[u8], terms: &Terms| {
        let detached = Detached {
            io: Wire(Rc::clone(&io.0)),
            session: Secret::new(session),
            plain: Bytes::new(),
        };
        TlsStream::attach(detached, terms).is_some()
    };
    assert!(attach(&session, &terms));
    let other_clients = Terms {
        policy: [1; 32],
        ..terms.clone()
    };
    assert!(!attach(&session, &other_clients));
    let other_ciphers = Terms {
        suites: Vec::new(),
        ..terms.clone()
    };
    assert!(!attach(&session, &other_ciphers));
    for length in 0..session.len() {
        assert!(!attach(&session[..length], &terms), "{length}");
    }
}

/// Both ends of a session, each of whose keys has encrypted so many records.
fn ends(suite: SupportedCipherSuite, records: u64) -> [TakenSession; 2] {
    let (secret, version) = match suite {
        SupportedCipherSuite::Tls13(suite) => {
            let hash = suite.common.hash_provider.output_len();
            (hash, TlsVersion::Tls13)
        }
        SupportedCipherSuite::Tls12(suite) => {
            let key = suite.aead_alg.key_block_shape().enc_key_len;
            (key, TlsVersion::Tls12)
        }
    };
    let info = TlsInfo {
        version,
        alpn: None,
        server_name: None,
        client_certificates: Vec::new(),
        handshake: TlsHandshake::Full,
    };
    [[1, 2], [2, 1]].map(|secrets| {
        let [received, sent] = secrets.map(|byte| {
            let record = TrafficRecord {
                secret: Secret::new(&vec![byte; secret]),
                iv: Bytes::copy_from_slice(&[byte; 12]),
                next: records,
            };
            Traffic::new(suite, record).expect("they are long enough")
        });
        TakenSession::new(received, sent, info.clone())
    })
}

/// What the other end reads of these bytes in one write.
fn passed(from: &mut TakenSession, to: &mut TakenSession, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = vec![0; 1000];
    let (_, len) = from.encrypt(&[IoSlice::new(bytes)], &mut out)?;
    let mut read = Vec::new();
    let put = &mut |plain: &[u8]| read.extend_from_slice(plain);
    to.decrypt(&mut out[..len], put, &mut Output::default())?;
    Ok(read)
}

#[test]
fn a_key_that_is_used_up_is_replaced_in_tls_1_3_and_ends_the_session_in_tls_1_2() {
    const AES_128_GCM: [CipherSuite; 2] = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ];
    for name in AES_128_GCM {
        let suites = &provider().cipher_suites;
        let suite = suites.iter().find(|suite| suite.suite() == name);
        let suite = *suite.expect("each provider has it");
        let (limit, is_tls13) = match suite {
            SupportedCipherSuite::Tls13(suite) => (suite.common.confidentiality_limit, true),
            SupportedCipherSuite::Tls12(suite) => (suite.common.confidentiality_limit, false),
        };
        let [mut server, mut client] = ends(suite, limit - 1);
        let last = passed(&mut server, &mut client, b"last under this key");
        assert_eq!(last.expect("one is left"), b"last under this key");
        let next = passed(&mut server, &mut client, b"first under the next");
        if is_tls13 {
            assert_eq!(next.expect("there is another"), b"first under the next");
            continue;
        }
        assert!(next.is_err(), "there is no other");
    }
}

/// By an alert that is no `close_notify`: a response may be cut.
#[test]
fn a_client_learns_that_tls_1_2_has_used_up_a_key() {
    let mut pair = Pair::opened(&TLS12);
    let terms = pair.terms();
    let Detached { io, session, plain } = pair.server.detach(&terms).expect("it can move");
    let mut record: SessionRecord = codec::from_bytes(&session).expect("it is whole");
    let suite = pair.client.negotiated_cipher_suite().expect("it is open");
    let SupportedCipherSuite::Tls12(of_tls12) = suite else {
        unreachable!("it is TLS 1.2");
    };
    record.sent.next = of_tls12.common.confidentiality_limit - 2;
    let [received, sent] = [&record.sent, &record.received].map(|of| {
        let record = TrafficRecord {
            secret: of.secret.clone(),
            iv: of.iv.clone(),
            next: of.next,
        };
        Traffic::new(suite, record).expect("they are the server's")
    });
    let mut client = TakenSession::new(received, sent, record.info.clone());
    let session = Secret::of_record(&record);
    let attached = TlsStream::attach(Detached { io, session, plain }, &terms);
    pair.server = attached.expect("it is valid");
    // Three records.
    assert!(matches!(pair.write(&[7; 40_000]), Poll::Ready(Err(_))));
    let mut bytes: Vec<u8> = pair.net.borrow_mut().down.drain(..).collect();
    let put = &mut |_: &[u8]| unreachable!("no data");
    let read = client.decrypt(&mut bytes, put, &mut Output::default());
    let alert = read.err().expect("an alert").to_string();
    assert!(alert.ends_with(" alert 80"), "{alert}");
}

#[test]
fn a_number_of_another_worker_that_has_no_next_one_ends_the_session() {
    for suite in provider().cipher_suites.iter().copied() {
        let [mut server, mut client] = ends(suite, u64::MAX);
        assert!(passed(&mut server, &mut client, b"data").is_err());
        let mut record = [23, 3, 3, 0, 17]
            .into_iter()
            .chain([0; 17])
            .collect::<Vec<u8>>();
        let mut output = Output::default();
        assert!(
            server
                .decrypt(&mut record, &mut |_| {}, &mut output)
                .is_err()
        );
        server.last_words(&mut output);
        server.close(&mut output);
        assert!(output.is_empty(), "no alert can be encrypted");
    }
}
