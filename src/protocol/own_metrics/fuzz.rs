//! Any words as the metrics of an app.

use super::*;
use crate::fuzz;
use crate::id::Slot;

#[test]
fn entries() {
    fuzz::check("protocol-own_metrics-entries", |bytes| {
        let mut words = bytes.chunks(size_of::<u64>()).map(|part| {
            let mut whole = [0; size_of::<u64>()];
            whole[..part.len()].copy_from_slice(part);
            AtomicU64::new(u64::from_le_bytes(whole))
        });
        let used = words.next().unwrap_or_default();
        let words: Vec<_> = words.collect();
        let hostile = Directory::new(&used, &words);
        let length: usize = hostile.entries().map(|entry| entry.words).sum();
        assert!(length <= words.len());

        // What is read can be written, and is the same then.
        let (used, words) = (
            AtomicU64::new(0),
            words.iter().map(|_| AtomicU64::default()),
        );
        let words: Vec<_> = words.collect();
        let copy = Directory::new(&used, &words);
        for entry in hostile.entries() {
            let values = copy.append(&entry.key).expect("as long as it was");
            assert_eq!(values.len(), entry.values.len());
        }
        let copied = copy.entries().map(|entry| entry.key);
        assert!(hostile.entries().map(|entry| entry.key).eq(copied));

        let mut sum = Sum::default();
        sum.add_ended(hostile);
        sum.add_running(hostile, Slot(0), Turn::Newest);
        for (series, values) in sum.series() {
            assert!(is_name(&series.name));
            assert_eq!(values.len(), Key::Series(series.clone()).values());
        }
    });
}
