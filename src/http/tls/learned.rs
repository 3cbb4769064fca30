//! What rustls tells only while it does a handshake.
//!
//! An unbuffered connection of rustls has no function for the name that the client asked for, nor
//! for the secrets of its traffic. rustls chooses a certificate by the name, and tells the secrets
//! to its log of keys. It does both on the thread that processes the client's bytes.

use std::cell::RefCell;
use std::mem;

use rustls::KeyLog;

use crate::secret::Secret;

/// The labels of the first secrets of TLS 1.3's traffic.
const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

thread_local! {
    static LEARNED: RefCell<Learned> = const { RefCell::new(Learned::NOTHING) };
}

/// What was learned in one handshake.
#[derive(Debug)]
pub(super) struct Learned {
    /// The name that the client asked for, in lower case.
    pub(super) name: Option<Box<str>>,
    /// The first secret of what the client sends; `None` in TLS 1.2.
    pub(super) client_secret: Option<Secret>,
    /// The first secret of what the server sends; `None` in TLS 1.2.
    pub(super) server_secret: Option<Secret>,
}

impl Learned {
    pub(super) const NOTHING: Self = Self {
        name: None,
        client_secret: None,
        server_secret: None,
    };

    pub(super) fn has_secrets(&self) -> bool {
        self.client_secret.is_some() && self.server_secret.is_some()
    }

    /// Has rustls process a part of the handshake, and adds what it tells.
    pub(super) fn during<T>(&mut self, process: impl FnOnce() -> T) -> T {
        LEARNED.set(mem::replace(self, Self::NOTHING));
        let processed = process();
        *self = LEARNED.replace(Self::NOTHING);
        processed
    }
}

/// The client of the handshake asks for this name.
pub(super) fn learn_name(name: Option<&str>) {
    LEARNED.with_borrow_mut(|learned| learned.name = name.map(Box::from));
}

/// rustls' log of keys. It keeps the secrets for the handshake.
#[derive(Debug)]
pub(super) struct SecretsLog;

impl KeyLog for SecretsLog {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        LEARNED.with_borrow_mut(|learned| match label {
            CLIENT => learned.client_secret = Some(Secret::new(secret)),
            SERVER => learned.server_secret = Some(Secret::new(secret)),
            // The secrets of the handshake, and in TLS 1.2 the one of everything.
            _ => {}
        });
    }

    fn will_log(&self, label: &str) -> bool {
        label == CLIENT || label == SERVER
    }
}
