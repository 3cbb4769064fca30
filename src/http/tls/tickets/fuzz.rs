//! Tickets from any bytes, and of sessions of any bytes.

use super::*;
use crate::fuzz;

#[test]
fn tickets() {
    fuzz::check("http-tls-tickets-tickets", |bytes| {
        let ring = |now| {
            let first = Keyring::new(Key::of(1), Duration::ZERO);
            first.rotated(Key::of(2), now, Duration::MAX)
        };
        let tickets = Tickets::new(
            move || Some(ring(Duration::from_secs(1))),
            Duration::from_secs(60),
            ClientPolicy::default(),
        );
        assert_eq!(tickets.decrypt(bytes), None, "a ticket without the key");
        for name in [1, 2] {
            let forged = [&[name; NAME][..], bytes].concat();
            assert_eq!(tickets.decrypt(&forged), None, "a ticket with a key's name");
        }

        let mut ticket = tickets.encrypt(bytes).expect("there is a key");
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(bytes));
        // The input decides which byte is changed, and how.
        let at = bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>() % ticket.len();
        ticket[at] ^= bytes.first().copied().unwrap_or(1).max(1);
        assert_eq!(tickets.decrypt(&ticket), None, "byte {at} was changed");
        ticket.truncate(at);
        assert_eq!(tickets.decrypt(&ticket), None, "{at} bytes of it");
    });
}
