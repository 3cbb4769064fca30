//! Any words as a keyring.

use super::*;
use crate::fuzz;

#[test]
fn rings() {
    fuzz::check("protocol-ticket_keys-rings", |bytes| {
        let mut words = RingWords::default();
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        let keyring = from_words(&words);
        assert!(super::words(&keyring).eq(*words));

        let lifetime = Duration::from_secs(60);
        let now = keyring.since.saturating_add(lifetime);
        assert_eq!(keyring.left(now, lifetime), Duration::ZERO);
        let (fresh, before) = (Key::of(7), keyring.current.clone());
        let rotated = keyring.rotated(fresh, now, lifetime);
        assert_eq!(rotated.previous, Some(before));
    });
}
