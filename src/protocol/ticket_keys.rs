//! The keys of session tickets: one page in memory that the master writes and every worker reads.
//!
//! A client may resume its session on any worker of any generation, and on workers of the next
//! image too. So the master makes the keys, and workers see at once when it replaces one. Their
//! descriptor of the page cannot write. Cores do not contain the page, but may contain keys in use:
//! the master's copy, or a cipher on the stack. A key that is not used any more is wiped.
//!
//! | words | what they are |
//! |---|---|
//! | 0, 1 | what layout this is |
//! | 2 | the sequence: odd while the master writes what follows |
//! | 3 | since when there is the current key, in milliseconds of the monotonic clock |
//! | 4 to 9 | the current key: two words of name, four of secret |
//! | 10 to 15 | the previous one; zeroes if there is none |
//!
//! A reader reads the sequence, the words, and the sequence again. If it was even and has not
//! changed, the words belong together.

#[cfg(test)]
mod fuzz;

use std::io;
use std::iter;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::keyring::{Key, Keyring, NAME, SECRET};
use crate::sys::memory::{self, Mapping, View};
use crate::sys::random;

const LAYOUT: [u64; 2] = [u64::from_le_bytes(*b"tickets\0"), 1];
const SEQUENCE: usize = LAYOUT.len();
const RING: usize = SEQUENCE + 1;
const KEY_WORDS: usize = (NAME + SECRET) / 8;
const RING_WORDS: usize = 1 + 2 * KEY_WORDS;
const ALL_WORDS: usize = RING + RING_WORDS;

/// How often a reader tries to read while the master writes. The master writes for less than a
/// microsecond, twice a day, but may be killed while it does.
const TRIES_MAX: usize = 10_000;

type RingWords = Zeroizing<[u64; RING_WORDS]>;

/// The master's side.
#[derive(Debug)]
pub(crate) struct TicketKeys {
    fd: OwnedFd,
    /// The same file, opened to read only, for the workers.
    for_workers: OwnedFd,
    map: Mapping,
    keyring: Keyring,
}

/// A worker's side.
#[derive(Debug)]
pub(crate) struct SharedKeys(View);

impl TicketKeys {
    pub(crate) fn new(keyring: Keyring) -> io::Result<Self> {
        let fd = memory::create(c"prefork-ticket-keys", ALL_WORDS)?;
        let map = Mapping::new(&fd, 0, ALL_WORDS)?;
        map.exclude_from_core_dumps()?;
        for (word, value) in map.iter().zip(LAYOUT) {
            word.store(value, Relaxed);
        }
        let keys = Self {
            for_workers: memory::read_only(&fd)?,
            fd,
            map,
            keyring,
        };
        keys.publish();
        Ok(keys)
    }

    /// Takes over the keys of the image before.
    pub(crate) fn inherit(fd: OwnedFd) -> io::Result<Self> {
        let for_workers = memory::read_only(&fd)?;
        let keyring = SharedKeys::new(&for_workers)?.keyring();
        let keyring = keyring.ok_or(io::ErrorKind::InvalidData)?;
        let map = Mapping::new(&fd, 0, ALL_WORDS)?;
        map.exclude_from_core_dumps()?;
        Ok(Self {
            fd,
            for_workers,
            map,
            keyring,
        })
    }

    /// A duplicate of the descriptor, for the next image.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The descriptor that workers inherit; close-on-exec here.
    pub(crate) fn number(&self) -> RawFd {
        self.for_workers.as_raw_fd()
    }

    pub(crate) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Replaces the keys. Workers use the new ones at once.
    pub(crate) fn replace(&mut self, keyring: Keyring) {
        self.keyring = keyring;
        self.publish();
    }

    fn publish(&self) {
        let sequence = self.map[SEQUENCE].load(Relaxed);
        self.map[SEQUENCE].store(sequence | 1, Relaxed);
        // Pairs with the second fence of `keyring`: a reader that sees a word of the new ring also
        // sees the odd sequence.
        fence(Release);
        for (word, value) in self.map[RING..].iter().zip(words(&self.keyring)) {
            word.store(value, Relaxed);
        }
        // Pairs with the first fence of `keyring`: a reader that sees this sequence sees the ring.
        self.map[SEQUENCE].store((sequence | 1).wrapping_add(1), Release);
    }
}

impl SharedKeys {
    /// Fails if the page has another layout.
    pub(crate) fn new(fd: &OwnedFd) -> io::Result<Self> {
        let same_size = memory::words(fd)? == ALL_WORDS;
        let view = View::new(fd)?;
        view.exclude_from_core_dumps()?;
        let same = same_size && (0..LAYOUT.len()).all(|at| view.load(at) == LAYOUT[at]);
        same.then_some(Self(view))
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The keys as of now; `None` if the master has ended while it wrote them.
    pub(crate) fn keyring(&self) -> Option<Keyring> {
        for _ in 0..TRIES_MAX {
            let before = self.0.load(SEQUENCE);
            fence(Acquire);
            let mut words = RingWords::default();
            for (at, word) in words.iter_mut().enumerate() {
                *word = self.0.load(RING + at);
            }
            fence(Acquire);
            if before.is_multiple_of(2) && self.0.load(SEQUENCE) == before {
                return Some(from_words(&words));
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// A new random key.
pub(crate) fn fresh_key() -> io::Result<Key> {
    let mut key = Key::blank();
    random::fill(&mut key.name)?;
    random::fill(&mut key.secret[..])?;
    Ok(key)
}

/// The words of the ring in the page.
fn words(keyring: &Keyring) -> impl Iterator<Item = u64> {
    let since = u64::try_from(keyring.since.as_millis()).unwrap_or(u64::MAX);
    let keys = [Some(&keyring.current), keyring.previous.as_ref()];
    let keys = keys.into_iter().flatten();
    let words = keys.flat_map(|key| key.name.chunks(8).chain(key.secret.chunks(8)));
    let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("chunks of 8")));
    iter::once(since)
        .chain(words)
        .chain(iter::repeat(0))
        .take(RING_WORDS)
}

fn from_words(words: &[u64; RING_WORDS]) -> Keyring {
    let (current, previous) = words[1..].split_at(KEY_WORDS);
    let key = |words: &[u64]| {
        let mut key = Key::blank();
        let Key { name, secret } = &mut key;
        let bytes = name.chunks_mut(8).chain(secret.chunks_mut(8));
        for (to, word) in bytes.zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        key
    };
    let is_there = previous.iter().any(|&word| word != 0);
    Keyring {
        current: key(current),
        previous: is_there.then(|| key(previous)),
        since: Duration::from_millis(words[0]),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    /// A ring in which all bytes are the same, so that a torn one can be recognised.
    fn ring(byte: u8) -> Keyring {
        let key = Key::of(byte);
        Keyring {
            current: key.clone(),
            previous: Some(key),
            since: Duration::from_millis(byte.into()),
        }
    }

    fn worker(keys: &TicketKeys) -> SharedKeys {
        SharedKeys::new(&keys.for_workers).expect("the master has made it")
    }

    #[test]
    fn a_worker_sees_what_the_master_writes() {
        let first = Keyring::new(Key::of(1), Duration::from_secs(5));
        let mut keys = TicketKeys::new(first.clone()).expect("memory");
        let worker = worker(&keys);
        assert_eq!(worker.keyring(), Some(first.clone()));
        let second = fresh_key().expect("random");
        let second = first.rotated(second, Duration::from_secs(6), LIFETIME);
        keys.replace(second.clone());
        assert_eq!(worker.keyring(), Some(second));
    }

    #[test]
    fn the_next_image_goes_on_with_the_same_keys_and_the_same_workers() {
        let keys = TicketKeys::new(ring(1)).expect("memory");
        let old_worker = worker(&keys);
        let left = keys.share().expect("a descriptor");
        drop(keys);
        let mut next = TicketKeys::inherit(left).expect("it is whole");
        assert_eq!(next.keyring(), &ring(1));
        next.replace(ring(2));
        assert_eq!(old_worker.keyring(), Some(ring(2)));
        assert_eq!(worker(&next).keyring(), Some(ring(2)));
    }

    #[test]
    fn a_worker_cannot_write_and_reads_nothing_else() {
        let keys = TicketKeys::new(ring(1)).expect("memory");
        Mapping::new(&keys.for_workers, 0, ALL_WORDS).expect_err("not to write");
        let other = memory::create(c"other", ALL_WORDS).expect("memory");
        SharedKeys::new(&other).expect_err("zeroes are no keys");
        TicketKeys::inherit(other).expect_err("for the master neither");
        let longer = memory::create(c"other", ALL_WORDS + 1).expect("memory");
        SharedKeys::new(&longer).expect_err("of another size");
    }

    /// How many copies of this secret the private memory of this process holds. The argument has
    /// all bits inverted, so that it is not found itself.
    fn copies(inverted: &[u8; SECRET]) -> usize {
        let maps = fs::read_to_string("/proc/self/maps").expect("proc(5) is mounted");
        let memory = File::open("/proc/self/mem").expect("it is ours");
        let (first, rest) = inverted.split_first().expect("it is not empty");
        let is_copy = |found: &[u8]| found.iter().zip(rest).all(|(one, other)| *one == !other);
        let mut found = 0;
        for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
            let (range, _) = line.split_once(' ').expect("a range and its rights");
            let (begin, end) = range.split_once('-').expect("a range");
            let [begin, end] = [begin, end].map(|at| u64::from_str_radix(at, 16).expect("hex"));
            let mut bytes = vec![0; usize::try_from(end - begin).expect("it is mapped")];
            for (page, at) in bytes.chunks_mut(4096).zip((begin..).step_by(4096)) {
                // Another thread may have unmapped it meanwhile: then it stays zero.
                let _ = memory.read_exact_at(page, at);
            }
            let begins = (0..=bytes.len() - SECRET).filter(|&at| bytes[at] == !first);
            found += begins
                .filter(|&at| is_copy(&bytes[at + 1..at + SECRET]))
                .count();
        }
        found
    }

    #[test]
    fn a_key_that_opens_no_ticket_any_more_is_wiped_from_memory() {
        let first = Keyring::new(fresh_key().expect("random"), Duration::ZERO);
        let inverted: [u8; SECRET] = std::array::from_fn(|at| !first.current.secret[at]);
        let mut keys = TicketKeys::new(first).expect("memory");
        let worker = worker(&keys);
        assert!(worker.keyring().is_some());
        assert_ne!(copies(&inverted), 0, "the master has it");
        for _ in 0..2 {
            let fresh = fresh_key().expect("random");
            let ring = keys.keyring().clone();
            keys.replace(ring.rotated(fresh, Duration::ZERO, LIFETIME));
        }
        assert!(worker.keyring().is_some());
        assert_eq!(copies(&inverted), 0);
    }

    #[test]
    fn keys_that_are_being_written_are_not_used() {
        let keys = TicketKeys::new(ring(1)).expect("memory");
        let worker = worker(&keys);
        keys.map[SEQUENCE].fetch_add(1, Relaxed);
        assert_eq!(worker.keyring(), None, "as if the master had died there");
        keys.publish();
        assert_eq!(worker.keyring(), Some(ring(1)));
    }

    #[test]
    fn no_torn_ring_is_ever_read() {
        let mut keys = TicketKeys::new(ring(1)).expect("memory");
        let worker = worker(&keys);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut read = 0;
                while read == 0 || !over.load(Relaxed) {
                    // In this test the master writes without a pause.
                    let Some(found) = worker.keyring() else {
                        continue;
                    };
                    assert_eq!(found, ring(found.current.name[0]));
                    read += 1;
                }
                read
            });
            for round in 0..200_000_u32 {
                keys.replace(ring(1 + (round % 250) as u8));
            }
            over.store(true, Relaxed);
            let read = reader.join().expect("it finds no torn one");
            assert_ne!(read, 0);
        });
    }
}
