//! Session tickets: a client resumes its session with a ticket, on any worker.
//!
//! A ticket is `name of the key (16) | nonce (12) | encrypted session | tag (16)`, by AES-256-GCM
//! (RFC 5116). The tag also authenticates the name and the [`ClientPolicy`]: a client that was
//! accepted under other CAs must send its certificate again.

#[cfg(test)]
mod fuzz;

use std::fmt;
use std::time::Duration;

use rustls::server::ProducesTickets;

use crate::http::tls::crypto::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use crate::http::tls::crypto::rand::{SecureRandom, SystemRandom};
use crate::http::tls::identity::ClientPolicy;
use crate::keyring::{Key, Keyring, NAME};

/// Encrypts and decrypts session tickets.
pub(crate) struct Tickets {
    keys: Box<dyn Fn() -> Option<Keyring> + Send + Sync>,
    lifetime: Duration,
    policy: ClientPolicy,
    random: SystemRandom,
}

impl Tickets {
    /// `keys` returns the current keys. Without keys the server issues no tickets.
    pub(crate) fn new(
        keys: impl Fn() -> Option<Keyring> + Send + Sync + 'static,
        lifetime: Duration,
        policy: ClientPolicy,
    ) -> Self {
        Self {
            keys: Box::new(keys),
            lifetime,
            policy,
            random: SystemRandom::new(),
        }
    }

    fn context(&self, key: &Key) -> Aad<Vec<u8>> {
        Aad::from([&key.name[..], &self.policy].concat())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        (self.keys)().is_some()
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX)
    }

    /// Nonces are random. With random nonces one key may encrypt 2^32 tickets (NIST SP 800-38D
    /// 8.3). That is 100 000 tickets a second within 12 h, far more than a server issues.
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = (self.keys)()?;
        let key = &keys.current;
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        cipher(key)
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                self.context(key),
                &mut sealed,
            )
            .ok()?;
        Some([&key.name[..], &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = (self.keys)()?;
        let key = keys.named(name)?;
        let mut opened = sealed.to_vec();
        let plain = cipher(key)
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                self.context(key),
                &mut opened,
            )
            .ok()?;
        let length = plain.len();
        opened.truncate(length);
        Some(opened)
    }
}

fn cipher(key: &Key) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, &key.secret[..]);
    LessSafeKey::new(key.expect("a secret has the length of an AES-256 key"))
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets")
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);
    const SESSION: &[u8] = b"all that was agreed on";

    fn key(byte: u8) -> Key {
        Key::of(byte)
    }

    fn ring() -> Keyring {
        Keyring::new(key(1), Duration::ZERO)
    }

    fn worker(ring: Keyring) -> Tickets {
        Tickets::new(
            move || Some(ring.clone()),
            LIFETIME,
            ClientPolicy::default(),
        )
    }

    #[test]
    fn every_worker_decrypts_a_ticket_of_another() {
        let ticket = worker(ring()).encrypt(SESSION).expect("there is a key");
        assert_eq!(worker(ring()).decrypt(&ticket).as_deref(), Some(SESSION));
        assert_eq!(ticket[..NAME], [1; NAME], "it has the key's name");
        let again = worker(ring()).encrypt(SESSION).expect("there is a key");
        assert_ne!(again, ticket, "no nonce is used again");
    }

    #[test]
    fn a_ticket_is_valid_after_one_rotation_and_not_after_two() {
        let ticket = worker(ring()).encrypt(SESSION).expect("there is a key");
        let once = ring().rotated(key(2), LIFETIME, LIFETIME);
        assert_eq!(
            worker(once.clone()).decrypt(&ticket).as_deref(),
            Some(SESSION)
        );
        let twice = once.rotated(key(3), LIFETIME * 2, LIFETIME);
        assert_eq!(worker(twice).decrypt(&ticket), None);
    }

    #[test]
    fn a_changed_or_shortened_ticket_is_not_decrypted() {
        let here = worker(ring());
        let ticket = here.encrypt(SESSION).expect("there is a key");
        for at in 0..ticket.len() {
            let mut forged = ticket.clone();
            forged[at] ^= 1;
            assert_eq!(here.decrypt(&forged), None, "byte {at}");
            assert_eq!(here.decrypt(&ticket[..at]), None, "{at} bytes of it");
        }
    }

    #[test]
    fn a_ticket_under_another_client_policy_is_not_decrypted() {
        let strict = Tickets::new(|| Some(ring()), LIFETIME, [1; 32]);
        let ticket = worker(ring()).encrypt(SESSION).expect("there is a key");
        assert_eq!(strict.decrypt(&ticket), None);
    }

    #[test]
    fn no_tickets_are_issued_or_decrypted_without_keys() {
        let none = Tickets::new(|| None, LIFETIME, ClientPolicy::default());
        assert!(!none.enabled());
        assert_eq!(none.encrypt(SESSION), None);
        let ticket = worker(ring()).encrypt(SESSION).expect("there is a key");
        assert_eq!(none.decrypt(&ticket), None);
    }
}
