//! Any bytes as a ticket, and as what is in one.

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
        assert_eq!(tickets.decrypt(bytes), None, "nobody can make one");
        for name in [1, 2] {
            let forged = [&[name; NAME][..], bytes].concat();
            assert_eq!(tickets.decrypt(&forged), None, "by knowing a key's name");
        }

        let mut ticket = tickets.encrypt(bytes).expect("there is a key");
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(bytes));
        // Which of its bytes is changed, and how, is for the input to say.
        let at = bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>() % ticket.len();
        ticket[at] ^= bytes.first().copied().unwrap_or(1).max(1);
        assert_eq!(tickets.decrypt(&ticket), None, "byte {at} was changed");
        ticket.truncate(at);
        assert_eq!(tickets.decrypt(&ticket), None, "{at} bytes of it");
    });
}
