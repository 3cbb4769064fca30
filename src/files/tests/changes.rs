//! Files that change while the cache knows them.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;

/// Long enough that a change is seen, and that a file has settled before.
const SEEN_AFTER: Duration = Duration::from_secs(1);

impl World {
    /// Asks until the response is this one. Fails after a time that no test needs.
    async fn until(&self, path: &str, status: u16, body: &str) {
        let begun = Instant::now();
        loop {
            let response = self.get(path).await;
            let is_body = body.is_empty() || response.body() == body;
            if response.status() == status && is_body {
                return;
            }
            let waited = begun.elapsed();
            assert!(waited < 20 * SEEN_AFTER, "{path}: {response:?}");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_change_is_seen() {
    let world = World::new(&[("a", b"one"), ("b", b"gone")]);
    assert_eq!(world.get("/a").await.body(), "one");
    assert_eq!(world.status("/new").await, 404);
    assert_eq!(world.get("/b").await.body(), "gone");
    // A new file of the same length in the place of the old one, as a deployment does it.
    fs::write(world.path("a.next"), "two").unwrap();
    fs::rename(world.path("a.next"), world.path("a")).unwrap();
    fs::write(world.path("new"), "here").unwrap();
    fs::remove_file(world.path("b")).unwrap();
    world.until("/a", 200, "two").await;
    world.until("/new", 200, "here").await;
    world.until("/b", 404, "").await;
    // In its place.
    fs::write(world.path("a"), "six").unwrap();
    world.until("/a", 200, "six").await;
}

/// Two versions of one length. Each has a body of one byte value, and a tag of its own. Before each
/// request another version is asked for, so a slow disk does not get more than it can write.
#[test]
fn a_body_is_never_of_two_versions() {
    const LENGTHS: [usize; 2] = [40_000, 400_000];
    let world = World::new(&[]);
    let (another, wanted) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        let world = &world;
        scope.spawn(move || {
            for (length, turn) in wanted.into_iter().zip((b'a'..=b'z').cycle()) {
                let next = world.path("next");
                fs::write(&next, vec![turn; length]).unwrap();
                fs::rename(next, world.path(&length.to_string())).unwrap();
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().expect("a runtime");
        runtime.block_on(async move {
            for length in LENGTHS {
                another.send(length).expect("the writer runs");
                let path = format!("/{length}");
                world.until(&path, 200, "").await;
                for _ in 0..300 {
                    // If the writer is busy, it writes one meanwhile.
                    let _ = another.try_send(length);
                    let response = world.get(&path).await;
                    assert_eq!(response.status(), 200);
                    let body = response.body();
                    assert_eq!(body.len(), length);
                    assert!(body.iter().all(|byte| *byte == body[0]), "{length}");
                }
            }
        });
    });
}

/// Within the second in which the name is not looked up again.
#[tokio::test]
async fn a_large_file_that_was_overwritten_in_its_place_is_another_version() {
    let world = World::new(&[("large", &[b'a'; 200_000])]);
    let first = world.settled("/large").await;
    for (byte, length) in [(b'b', 300_000), (b'c', 300_000)] {
        // As `cp` does it.
        fs::write(world.path("large"), vec![byte; length]).unwrap();
        let second = world.get("/large").await;
        assert_ne!(header(&first, ETAG), header(&second, ETAG));
        assert_eq!(second.body().len(), length);
        assert!(second.body().iter().all(|it| *it == byte));
        world.settled("/large").await;
    }
}

impl World {
    /// Whether this process has a file open that was deleted here.
    fn has_deleted_file(&self) -> bool {
        let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut files = files.filter_map(|fd| fs::read_link(fd.path()).ok());
        files.any(|file| {
            let is_deleted = file.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
            is_deleted && file.starts_with(self.root.path())
        })
    }
}

#[tokio::test]
async fn a_large_file_without_a_name_does_not_stay_open() {
    let world = World::new(&[
        ("deleted", &[b'a'; 200_000]),
        ("replaced", &[b'b'; 200_000]),
    ]);
    for path in ["/deleted", "/replaced"] {
        world.settled(path).await;
    }
    fs::remove_file(world.path("deleted")).unwrap();
    fs::write(world.path("next"), [b'c'; 200_000]).unwrap();
    fs::rename(world.path("next"), world.path("replaced")).unwrap();
    assert!(world.has_deleted_file());
    world.until("/deleted", 404, "").await;
    world.until("/replaced", 200, &"c".repeat(200_000)).await;
    assert!(!world.has_deleted_file());
}

#[tokio::test]
async fn a_large_file_that_nobody_asks_for_does_not_stay_open() {
    let world = World::new(&[("deleted", &[b'a'; 200_000]), ("other", b"")]);
    world.settled("/deleted").await;
    fs::remove_file(world.path("deleted")).unwrap();
    assert!(world.has_deleted_file());
    world.site.expire();
    assert_eq!(world.status("/other").await, 200);
    assert!(!world.has_deleted_file());
}

/// At each look it has another identity.
#[test]
fn a_log_that_is_written_all_the_time_is_served() {
    const LENGTHS: [usize; 2] = [10, 200_000];
    let world = World::new(&[]);
    for length in LENGTHS {
        fs::write(world.path(&length.to_string()), vec![b'l'; length]).unwrap();
    }
    std::thread::scope(|scope| {
        let (world, asking) = (&world, Arc::new(()));
        let is_asking = Arc::downgrade(&asking);
        scope.spawn(move || {
            let open = |length: usize| {
                fs::File::options()
                    .append(true)
                    .open(world.path(&length.to_string()))
            };
            let mut logs = LENGTHS.map(|length| open(length).unwrap());
            while is_asking.strong_count() > 0 {
                for log in &mut logs {
                    log.write_all(b"l").unwrap();
                }
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..300 {
                for length in LENGTHS {
                    let response = world.get(&format!("/{length}")).await;
                    assert_eq!(response.status(), 200);
                    assert!(response.body().len() >= length);
                }
            }
        });
        drop(asking);
    });
}

/// A client could have it kept many times, and hold each copy by a response that it does not read.
#[tokio::test]
async fn a_file_is_kept_once_however_many_slashes_lead_to_it() {
    let world = World::new(&[("d/a", &[b'a'; 60_000])]);
    world.settled("/d/a").await;
    let kept = world.site.cached_bytes();
    for path in ["/d//a", "/d///a", "/d//./a"] {
        assert_eq!(world.get(path).await.body().len(), 60_000, "{path}");
        assert_eq!(world.site.cached_bytes(), kept, "{path}");
    }
}

#[tokio::test]
async fn a_scan_of_many_names_stays_within_the_memory() {
    let kept = vec![b'k'; 60_000];
    let world = World::with(&[("kept", &kept)], |files| files.cache_bytes(1 << 20));
    for at in 0..20_000 {
        assert_eq!(world.status(&format!("/none-{at}")).await, 404);
    }
    assert!(world.get("/kept").await.body() == &kept);
    assert!(world.site.cached_bytes() <= 1 << 20);
}
