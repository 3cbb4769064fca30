//! A client of rustls and a transport that divides, delays, changes and cuts what they send, as the
//! input says. Other servers go on with the session. What arrives is what was sent. Of a client
//! whose bytes were changed or cut, nothing arrives that it has not sent.

use rustls::version::{TLS12, TLS13};

use super::wire::{ALL, Pair, client_config, server_config_of_suite};
use super::*;
use crate::fuzz;

/// At most so many key updates of a client: rustls refuses more than 32 in a row.
const KEY_UPDATES_MAX: u32 = 30;

/// A run of one input.
struct Run<'a> {
    pair: Pair,
    input: std::slice::Iter<'a, u8>,
    phase: Phase,
    /// Encrypted bytes that are not yet on their way to the server.
    delayed: Vec<u8>,
    up: Plain,
    down: Plain,
    transport: Transport,
    key_updates: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    Open,
    /// The server has got an error.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Right,
    /// Bytes of the client were changed, or do not come.
    Wrong,
}

/// The plaintext in one direction: numbered bytes.
#[derive(Default)]
struct Plain {
    sent: usize,
    received: usize,
}

impl Plain {
    fn make(&mut self, len: usize) -> Vec<u8> {
        let range = self.sent..self.sent + len;
        self.sent = range.end;
        range.map(numbered).collect()
    }

    fn check(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            assert_eq!(byte, numbered(self.received), "byte {}", self.received);
            self.received += 1;
        }
        assert!(self.received <= self.sent);
    }
}

fn numbered(at: usize) -> u8 {
    (at ^ at >> 8) as u8
}

impl Run<'_> {
    /// A length: small ones are as likely as large ones.
    fn len(&mut self) -> usize {
        let byte = usize::from(self.input.next().copied().unwrap_or(0));
        match byte {
            ..128 => byte,
            _ => (byte - 127) * 337,
        }
    }

    fn step(&mut self, what: u8) {
        match what % 13 {
            0 | 1 => {
                let len = self.len();
                let plain = self.up.make(len);
                if let Err(error) = self.pair.queue(&plain) {
                    assert!(self.transport == Transport::Wrong, "{error}");
                    self.up.sent -= len;
                }
            }
            2 | 3 => {
                let len = self.len();
                self.pass(len);
            }
            4 | 5 => {
                let size = self.len();
                self.serve(size);
            }
            6 => {
                let len = self.len();
                self.write(len);
            }
            7 => {
                let len = self.len();
                self.take(len);
            }
            8 => {
                let len = self.len();
                let mut net = self.pair.net.borrow_mut();
                (net.read_max, net.write_max) = (len + 1, len / 2 + 1);
                net.space = len * 4 + 1;
            }
            // Fails before the handshake is done, and in TLS 1.2.
            9 if self.key_updates < KEY_UPDATES_MAX => {
                self.key_updates += 1;
                drop(self.pair.client.refresh_traffic_keys());
            }
            9 => {}
            10 => {
                let at = self.len();
                if let Some(byte) = self.pair.net.borrow_mut().up.get_mut(at) {
                    *byte ^= 1 << (at % 8);
                    self.transport = Transport::Wrong;
                }
            }
            11 => {
                self.pair.move_session();
            }
            _ => {
                let cut = self.len();
                if cut % 16 == 1 {
                    self.pair.net.borrow_mut().up_is_closed = true;
                    self.delayed.clear();
                    self.transport = Transport::Wrong;
                }
            }
        }
    }

    /// So many encrypted bytes of the client go on their way.
    fn pass(&mut self, len: usize) {
        let client = &mut self.pair.client;
        while client.wants_write() {
            client.write_tls(&mut self.delayed).expect("memory");
        }
        let mut net = self.pair.net.borrow_mut();
        let len = len.min(self.delayed.len());
        let passed = self.delayed.drain(..len);
        if !net.up_is_closed {
            net.up.extend(passed);
        }
    }

    /// The server goes on: with the handshake, or with a read.
    fn serve(&mut self, size: usize) {
        let result = match self.phase {
            Phase::Handshake => match self.pair.handshake() {
                Poll::Pending => return,
                Poll::Ready(opened) => opened.map(|()| self.phase = Phase::Open),
            },
            Phase::Open => match self.pair.read(size) {
                Poll::Pending => return,
                Poll::Ready(read) => read.map(|read| self.up.check(&read)),
            },
            Phase::Failed => {
                let again = self.pair.read(1);
                assert!(matches!(again, Poll::Ready(Err(_))), "{again:?}");
                return;
            }
        };
        if let Err(error) = result {
            assert!(self.transport == Transport::Wrong, "{error}");
            self.phase = Phase::Failed;
        }
    }

    fn write(&mut self, len: usize) {
        if self.phase == Phase::Handshake {
            return;
        }
        let begin = self.down.sent;
        let plain = self.down.make(len);
        let written = match self.pair.write(&plain) {
            Poll::Pending => 0,
            Poll::Ready(Ok(written)) => written,
            // The server may have read the wrong bytes, and its reader not yet.
            Poll::Ready(Err(error)) => {
                assert!(self.transport == Transport::Wrong, "{error}");
                0
            }
        };
        self.down.sent = begin + written;
    }

    fn take(&mut self, len: usize) {
        let taken = self.pair.take(len);
        let received = std::mem::take(&mut self.pair.received);
        self.down.check(&received);
        if let Err(error) = taken {
            assert!(self.transport == Transport::Wrong, "{error}");
        }
    }

    /// All that is under way arrives.
    fn end(&mut self) {
        let mut net = self.pair.net.borrow_mut();
        (net.read_max, net.write_max, net.space) = (ALL, ALL, ALL);
        drop(net);
        // The handshake takes up to three rounds.
        for _ in 0..4 {
            self.pass(ALL);
            for _ in 0..self.up.sent / 1000 + 4 {
                self.serve(100_000);
            }
            if self.phase == Phase::Open {
                assert!(matches!(self.pair.flush(), Poll::Ready(Ok(()))));
            }
            self.take(ALL);
        }
        if self.transport == Transport::Wrong {
            return;
        }
        assert!(self.phase == Phase::Open);
        assert_eq!(self.up.received, self.up.sent);
        assert_eq!(self.down.received, self.down.sent);
        assert_eq!(self.pair.server.held(), 0);
        self.pair.client.send_close_notify();
        self.pass(ALL);
        let read = self.pair.read(1);
        assert!(matches!(&read, Poll::Ready(Ok(end)) if end.is_empty()));
        assert!(matches!(self.pair.shutdown(), Poll::Ready(Ok(()))));
        self.take(ALL);
        let state = self.pair.client.process_new_packets();
        assert!(state.expect("no error").peer_has_closed());
    }
}

#[test]
fn streams() {
    fuzz::check("http-tls-stream-streams", |bytes| {
        let mut input = bytes.iter();
        let first = input.next().copied().unwrap_or(0);
        let version = match first % 2 {
            0 => &TLS13,
            _ => &TLS12,
        };
        let mut client = client_config();
        if first & 2 != 0 {
            client.max_fragment_size = Some(32 + usize::from(first >> 2) * 8);
        }
        let mut run = Run {
            pair: Pair::new(
                server_config_of_suite(version, usize::from(first >> 3)),
                client,
            ),
            input,
            phase: Phase::Handshake,
            delayed: Vec::new(),
            up: Plain::default(),
            down: Plain::default(),
            transport: Transport::Right,
            key_updates: 0,
        };
        while let Some(&what) = run.input.next() {
            run.step(what);
        }
        run.end();
    });
}
