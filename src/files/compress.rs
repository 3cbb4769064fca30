//! Files that are compressed when they are asked for, and what came of it.
//!
//! A thread of the blocking pool compresses a file once; then the cache has it. While a few files
//! are being compressed, further ones are sent as they are: no request waits for its turn.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::header::RANGE;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::encoding::Encoding;
use super::names::cache;
use super::version::{Identity, Version};

/// A shorter file fits into one segment anyway.
const LENGTH_MIN: u64 = 1024;

/// To compress a longer file takes seconds.
const LENGTH_MAX: u64 = 8 << 20;

/// So many files are compressed at the same time.
const AT_ONCE: usize = 4;

/// If the cache is full, each file pushes another one out, and clients that ask for more files than
/// it holds could make the server compress all the time. So one file is compressed at a time then,
/// and none for so many times as long as it took.
const REST: u32 = 9;

/// What an entry costs beside its bytes.
const OVERHEAD: u64 = 512;

/// An estimate for the cache: the bytes of most compressed files.
const ENTRY: usize = 8 * 1024;

// Each is the best for its time: a little more costs several times as much.
const ZSTD_LEVEL: i32 = 6;
const BROTLI_QUALITY: u32 = 5;
const BROTLI_WINDOW: u32 = 22;
const GZIP_LEVEL: u32 = 6;

/// What files became. `None`: no shorter, or too long for the cache. A file is compressed only if
/// the cache keeps what comes of it: otherwise each request could make the server compress again.
#[derive(Debug)]
pub(super) struct Compressed {
    cache: Cache<(Identity, Encoding), Option<Arc<Version>>, Weight>,
    /// The heaviest entry that is kept: half of the cache.
    weight_max: u64,
    running: AtomicUsize,
    /// Until then no file is compressed if the cache is full.
    rest_until: Mutex<Instant>,
}

/// One of the files that are being compressed.
struct Running<'a>(&'a AtomicUsize);

#[derive(Clone, Copy, Debug)]
struct Weight;

impl Weighter<(Identity, Encoding), Option<Arc<Version>>> for Weight {
    fn weight(&self, _: &(Identity, Encoding), version: &Option<Arc<Version>>) -> u64 {
        let version = version.as_ref();
        OVERHEAD + version.map_or(0, |version| version.identity.length())
    }
}

impl<'a> Running<'a> {
    /// `None`: enough files are being compressed.
    fn one_more(running: &'a AtomicUsize, at_once: usize) -> Option<Self> {
        let more = |running| (running < at_once).then_some(running + 1);
        let before = running.fetch_update(Relaxed, Relaxed, more);
        before.is_ok().then(|| Self(running))
    }
}

/// Also if the encoder panics.
impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Compressed {
    /// An empty cache that holds at most so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            cache: cache(bytes / ENTRY, bytes, Weight),
            weight_max: bytes as u64 / 2,
            running: AtomicUsize::new(0),
            rest_until: Mutex::new(Instant::now()),
        }
    }

    /// The compressed version of a file. `None`: the file is sent as it is. `read` reads the whole
    /// file, or returns [`io::ErrorKind::WouldBlock`] on a thread that must not compress.
    pub(super) fn of(
        &self,
        plain: &Version,
        encoding: Encoding,
        read: impl FnOnce() -> io::Result<Bytes>,
    ) -> io::Result<Option<Arc<Version>>> {
        let key = (plain.identity, encoding);
        if let Some(known) = self.cache.get(&key) {
            return Ok(known);
        }
        if OVERHEAD > self.weight_max {
            return Ok(None);
        }
        let begin = Instant::now();
        let at_once = match self.has_room(plain) {
            true => AT_ONCE,
            false if begin < *self.rest_until() => return Ok(None),
            false => 1,
        };
        let Some(running) = Running::one_more(&self.running, at_once) else {
            return Ok(None);
        };
        // Read only now: many threads with a whole file each would need much memory.
        let bytes = read()?;
        let compressed = encode(&bytes, encoding)?;
        *self.rest_until() = Instant::now() + begin.elapsed() * REST;
        drop(running);
        let is_shorter = compressed.len() < bytes.len();
        let is_kept = is_shorter && OVERHEAD + compressed.len() as u64 <= self.weight_max;
        let version = is_kept.then(|| Arc::new(plain.compressed(compressed, encoding)));
        self.cache.insert(key, version.clone());
        Ok(version)
    }

    /// Whether the cache can keep what comes of a file without losing another one.
    fn has_room(&self, plain: &Version) -> bool {
        let weight = OVERHEAD + plain.identity.length();
        self.cache.weight() + weight <= self.cache.capacity()
    }

    fn rest_until(&self) -> MutexGuard<'_, Instant> {
        let rest_until = self.rest_until.lock();
        rest_until.unwrap_or_else(PoisonError::into_inner)
    }

    /// A page that the server has made for this request. It is compressed each time, as it is made
    /// each time.
    pub(super) fn page(
        &self,
        page: Bytes,
        asked: &HeaderMap,
    ) -> io::Result<(Bytes, Option<Encoding>)> {
        if page.len() as u64 >= LENGTH_MIN
            && let Some(encoding) = Encoding::accepted(asked).next()
            && let Some(_running) = Running::one_more(&self.running, AT_ONCE)
        {
            return Ok((encode(&page, encoding)?.into(), Some(encoding)));
        }
        Ok((page, None))
    }
}

/// Whether a file may be compressed for this request. A part of it may not: its positions are those
/// of the plain file.
pub(super) fn may_be_compressed(plain: &Version, headers: &HeaderMap) -> bool {
    (LENGTH_MIN..=LENGTH_MAX).contains(&plain.identity.length())
        && plain.is_settled
        && is_text(&plain.content_type)
        && !headers.contains_key(RANGE)
}

/// Whether files of the type are text, or as easy to compress as text.
fn is_text(content_type: &HeaderValue) -> bool {
    let name = content_type.to_str().unwrap_or_default();
    let name = name.split(';').next().unwrap_or_default();
    name.starts_with("text/")
        || name.ends_with("+json")
        || name.ends_with("+xml")
        || matches!(
            name,
            "application/json"
                | "application/javascript"
                | "application/xml"
                | "application/wasm"
                | "application/vnd.ms-fontobject"
                | "application/font-sfnt"
                | "font/ttf"
                | "image/bmp"
        )
}

fn encode(bytes: &[u8], encoding: Encoding) -> io::Result<Vec<u8>> {
    let mut compressed = Vec::with_capacity(bytes.len() / 2);
    match encoding {
        Encoding::Zstd => return zstd::bulk::compress(bytes, ZSTD_LEVEL),
        Encoding::Brotli => {
            let mut encoder =
                brotli::CompressorReader::new(bytes, 4096, BROTLI_QUALITY, BROTLI_WINDOW);
            io::copy(&mut encoder, &mut compressed)?;
        }
        Encoding::Gzip => {
            let level = flate2::Compression::new(GZIP_LEVEL);
            io::copy(
                &mut flate2::read::GzEncoder::new(bytes, level),
                &mut compressed,
            )?;
        }
    }
    Ok(compressed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::files::beneath::Reach;
    use crate::files::rules::Rules;

    /// A version of an empty file.
    fn plain() -> Version {
        plain_of(0)
    }

    fn plain_of(length: u64) -> Version {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(length).expect("it is open");
        let metadata = file.metadata().expect("it is open");
        let (path, rules) = (Path::new("a.txt"), Rules::default());
        Version::of(&file, &metadata, path, &rules, Reach::Disk).expect("a file")
    }

    #[test]
    fn a_file_is_read_when_it_is_its_turn_and_not_before() {
        let plain = plain();
        let compressed = Compressed::new(1 << 20);
        for busy in [0, AT_ONCE] {
            compressed.running.store(busy, Relaxed);
            let mut is_read = false;
            let found = compressed.of(&plain, Encoding::Gzip, || {
                is_read = true;
                Err(io::ErrorKind::WouldBlock.into())
            });
            assert_eq!((is_read, found.is_err()), (busy == 0, busy == 0), "{busy}");
            assert_eq!(compressed.running.load(Relaxed), busy);
        }
    }

    /// `noise` becomes no shorter, so the cache keeps only that.
    #[test]
    fn a_file_is_compressed_once_however_long_it_becomes() {
        let mut chance = fastrand::Rng::with_seed(7);
        let noise: Bytes = std::iter::repeat_with(|| chance.u8(..))
            .take(60_000)
            .collect();
        let text = Bytes::from([&noise[..], &[0; 10_000]].concat());
        for (cache, bytes, times, is_sent) in [
            (1 << 20, &text, 1, true),
            (1 << 20, &noise, 1, false),
            (100_000, &text, 1, false),
            (OVERHEAD as usize, &text, 0, false),
            (0, &text, 0, false),
        ] {
            let (compressed, plain) = (Compressed::new(cache), plain());
            let mut read = 0;
            for _ in 0..3 {
                let found = compressed.of(&plain, Encoding::Gzip, || {
                    read += 1;
                    Ok(bytes.clone())
                });
                assert_eq!(found.expect("it was read").is_some(), is_sent, "{cache}");
            }
            assert_eq!(read, times, "{cache}");
        }
    }

    #[test]
    fn the_server_rests_after_each_file_if_the_cache_is_full() {
        let (compressed, plain) = (Compressed::new(60_000), plain_of(100_000));
        let is_read = |encoding| {
            let mut is_read = false;
            let found = compressed.of(&plain, encoding, || {
                is_read = true;
                Ok(Bytes::from_static(&[0; 100_000]))
            });
            (is_read, found.expect("it was read").is_some())
        };
        let begin = Instant::now();
        assert_eq!(is_read(Encoding::Gzip), (true, true));
        assert!(*compressed.rest_until() > begin);
        *compressed.rest_until() += Duration::from_secs(3600);
        assert_eq!(is_read(Encoding::Gzip), (false, true), "it is kept");
        assert_eq!(is_read(Encoding::Brotli), (false, false));
        *compressed.rest_until() = begin;
        compressed.running.store(1, Relaxed);
        assert_eq!(is_read(Encoding::Brotli), (false, false));
        compressed.running.store(0, Relaxed);
        assert_eq!(is_read(Encoding::Brotli), (true, true));
    }

    #[test]
    fn a_panic_leaves_no_file_behind_that_seems_to_be_compressed() {
        let (compressed, plain) = (Compressed::new(1 << 20), plain());
        let found = std::panic::catch_unwind(|| {
            compressed.of(&plain, Encoding::Gzip, || panic!("as an encoder might"))
        });
        assert!(found.is_err());
        assert_eq!(compressed.running.load(Relaxed), 0);
    }
}
