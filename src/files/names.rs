//! What is known of the names in the directory: the cache of a worker.

use std::hash::Hash;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::seen::Seen;
use super::version::Version;

/// What an entry costs beside its name and the contents: a version, its fields, and the cache's own
/// places.
const OVERHEAD: usize = 640;

/// The smallest entry, as an estimate for the cache.
const ENTRY: usize = 1024;

/// What is known of the names in the directory, bounded in bytes.
#[derive(Debug)]
pub(super) struct Names(Cache<Box<[u8]>, Arc<Entry>, Weight>);

#[derive(Clone, Copy, Debug)]
struct Weight;

/// What is known of one name.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) found: Found,
    /// When the file system has last shown that it is true.
    pub(super) seen: Seen,
}

#[derive(Clone, Debug)]
pub(super) enum Found {
    File(Arc<Version>),
    Directory,
    Missing,
}

/// An empty cache of a worker, in one part: more parts would be for more threads.
pub(super) fn cache<K, V, W>(entries: usize, bytes: usize, weighter: W) -> Cache<K, V, W>
where
    K: Eq + Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
{
    let options = OptionsBuilder::new()
        .shards(1)
        .estimated_items_capacity(entries)
        .weight_capacity(bytes as u64)
        .build()
        .expect("both capacities are set");
    let hasher = DefaultHashBuilder::default();
    Cache::with_options(options, weighter, hasher, DefaultLifecycle::default())
}

impl Names {
    /// An empty cache that holds at most so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self(cache(bytes / ENTRY, bytes, Weight))
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.0.weight()
    }

    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.0.iter().for_each(|(_, entry)| entry.seen.expire());
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Arc<Entry>> {
        self.0.get(name)
    }

    pub(super) fn insert(&self, name: &[u8], entry: Arc<Entry>) {
        self.0.insert(name.into(), entry);
    }

    pub(super) fn forget(&self, name: &[u8]) {
        self.0.remove(name);
    }
}

impl Weighter<Box<[u8]>, Arc<Entry>> for Weight {
    fn weight(&self, name: &Box<[u8]>, entry: &Arc<Entry>) -> u64 {
        let contents = match &entry.found {
            Found::File(version) => version.contents.as_ref().map_or(0, |bytes| bytes.len()),
            Found::Directory | Found::Missing => 0,
        };
        (OVERHEAD + name.len() + contents) as u64
    }
}

impl Entry {
    pub(super) fn new(found: Found) -> Self {
        let seen = Seen::now();
        Self { found, seen }
    }
}
