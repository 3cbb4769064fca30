//! Conditions on the version of a file, and files that change while they are sent.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime};

use http::header::IF_UNMODIFIED_SINCE;

use super::*;

#[tokio::test]
async fn several_lines_of_tags_are_one_list() {
    let world = World::new(&[("a", b"0123456789")]);
    let first = world.settled("/a").await;
    let etag = header(&first, ETAG);
    for (name, lines, status) in [
        (IF_NONE_MATCH, ["\"x\", \"y\"", etag], 304),
        (IF_NONE_MATCH, [etag, "\"x\""], 304),
        (IF_NONE_MATCH, ["\"a,b\"", &format!("W/{etag}")], 304),
        (IF_NONE_MATCH, ["\"x\"", ""], 200),
        (IF_MATCH, ["\"x\"", etag], 200),
        (IF_MATCH, ["\"x\",", "*"], 200),
        (IF_MATCH, ["\"x\"", "\"y\""], 412),
        (IF_MATCH, ["\"x\"", &format!("W/{etag}")], 412),
    ] {
        let mut request = Request::get("/a");
        for line in lines {
            request = request.header(&name, line);
        }
        let response = world.send(request).await;
        assert_eq!(response.status(), status, "{name}: {lines:?}");
    }
}

/// 304 is for who asks whether there is something newer, 412 for who asks for the old version.
#[tokio::test]
async fn a_date_is_no_condition_beside_a_list_of_tags() {
    let world = World::new(&[("a", b"0123456789")]);
    let first = world.settled("/a").await;
    let (etag, modified) = (header(&first, ETAG), header(&first, LAST_MODIFIED));
    let old = "Thu, 01 Jan 1970 00:00:00 GMT";
    for (fields, status) in [
        (
            [(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, modified)],
            200,
        ),
        ([(IF_MATCH, etag), (IF_UNMODIFIED_SINCE, old)], 200),
        ([(IF_MATCH, etag), (IF_NONE_MATCH, etag)], 304),
        ([(IF_UNMODIFIED_SINCE, old), (IF_NONE_MATCH, etag)], 412),
        (
            [(IF_MODIFIED_SINCE, modified), (IF_MODIFIED_SINCE, modified)],
            200,
        ),
    ] {
        let mut request = Request::get("/a");
        for (name, value) in &fields {
            request = request.header(name, *value);
        }
        assert_eq!(world.send(request).await.status(), status, "{fields:?}");
    }
}

/// Builds leave the first and the second second of 1970 as the time of each file.
#[tokio::test]
async fn a_file_from_before_1970_or_its_begin_is_served_without_a_date() {
    let world = World::new(&[("a", b"0123456789")]);
    let file = File::options().write(true).open(world.path("a")).unwrap();
    for time in [
        SystemTime::UNIX_EPOCH - Duration::from_millis(1),
        SystemTime::UNIX_EPOCH - Duration::from_secs(24 * 60 * 60),
        SystemTime::UNIX_EPOCH,
        SystemTime::UNIX_EPOCH + Duration::from_secs(1),
    ] {
        file.set_modified(time).unwrap();
        let response = world.get("/a").await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, LAST_MODIFIED), "");
        let same = Request::get("/a").header(IF_NONE_MATCH, header(&response, ETAG));
        assert_eq!(world.send(same).await.status(), 304);
        let dated = Request::get("/a").header(IF_MODIFIED_SINCE, "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(world.send(dated).await.status(), 200);
    }
}

/// As an archive of a machine with a wrong clock may leave it. The client has another version, of a
/// later time still.
#[tokio::test]
async fn a_file_from_the_future_is_served_without_a_date() {
    let world = World::new(&[("a", b"0123456789")]);
    let file = File::options().write(true).open(world.path("a")).unwrap();
    let hour = Duration::from_secs(60 * 60);
    file.set_modified(SystemTime::now() + hour).unwrap();
    let response = world.get("/a").await;
    assert_eq!(response.status(), 200);
    assert_eq!(header(&response, LAST_MODIFIED), "");
    let same = Request::get("/a").header(IF_NONE_MATCH, header(&response, ETAG));
    assert_eq!(world.send(same).await.status(), 304);
    let later = httpdate::fmt_http_date(SystemTime::now() + 2 * hour);
    let dated = Request::get("/a").header(IF_MODIFIED_SINCE, later);
    assert_eq!(world.send(dated).await.status(), 200);
}

/// The cache keeps the version. Fails after a time that no test needs.
#[tokio::test]
async fn a_file_has_its_date_when_the_future_has_come() {
    let world = World::new(&[("a", b"0123456789")]);
    let file = File::options().write(true).open(world.path("a")).unwrap();
    let soon = SystemTime::now() + Duration::from_secs(2);
    file.set_modified(soon).unwrap();
    world.settled("/a").await;
    let date = httpdate::fmt_http_date(soon);
    while header(&world.get("/a").await, LAST_MODIFIED) != date {
        assert!(soon.elapsed().unwrap_or_default() < Duration::from_secs(20));
        tokio::task::yield_now().await;
    }
}

/// The dates that clients send are theirs to choose.
#[tokio::test]
async fn a_date_that_is_none_is_ignored() {
    let world = World::new(&[("a", b"0123456789")]);
    for date in [
        "Wed, 31 Dec 1969 23:59:59 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Thu, 31 Feb 1970 00:00:00 GMT",
        "yesterday",
        "",
    ] {
        for (name, status) in [
            (IF_UNMODIFIED_SINCE, 200),
            (IF_RANGE, 200),
            (
                IF_MODIFIED_SINCE,
                if date.contains("9999") { 304 } else { 200 },
            ),
        ] {
            let request = Request::get("/a").header(&name, date);
            let response = world.send(request.header(RANGE, "bytes=50-")).await;
            let is_beyond = response.status() == 416 && name != IF_RANGE;
            assert!(response.status() == status || is_beyond, "{name}: {date}");
        }
    }
}

/// Of one length and time, as `gzip --keep` may leave them: a cache must not take one for the
/// other.
#[tokio::test]
async fn a_file_and_its_compressed_sibling_are_two_versions() {
    let world = World::new(&[("a", b"0123456789"), ("a.gz", b"9876543210")]);
    for name in ["a", "a.gz"] {
        let file = File::options().write(true).open(world.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let plain = world.settled("/a").await;
    let zipped = |request: Builder| world.send(request.header(ACCEPT_ENCODING, "gzip"));
    let stale = Request::get("/a").header(IF_NONE_MATCH, header(&plain, ETAG));
    let response = zipped(stale).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.body(), "9876543210");
    let rest = Request::get("/a").header(RANGE, "bytes=5-");
    let response = zipped(rest.header(IF_RANGE, header(&plain, ETAG))).await;
    assert_eq!(response.status(), 200);
}

/// As builds leave it that give each file the same time.
#[tokio::test]
async fn two_small_files_of_one_length_and_time_have_two_tags() {
    let world = World::new(&[("a", b"one"), ("next", b"two")]);
    for name in ["a", "next"] {
        let file = File::options().write(true).open(world.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let first = world.settled("/a").await;
    fs::rename(world.path("next"), world.path("a")).unwrap();
    world.site.expire();
    let known = Request::get("/a").header(IF_NONE_MATCH, header(&first, ETAG));
    let second = world.send(known).await;
    assert_eq!(second.status(), 200);
    assert_eq!(second.body(), "two");
}

/// A file of three pieces, whose tag is a strong one.
async fn long(byte: u8) -> (World, Vec<u8>) {
    let content = vec![byte; budget::PIECE_MAX * 2 + 17];
    let world = World::new(&[("long", &content)]);
    world.settled("/long").await;
    (world, content)
}

/// Of a response to a request for the file: `first` pieces come before the change.
async fn changed_while_it_is_sent(
    world: &World,
    first: usize,
    change: impl FnOnce(&mut File),
) -> std::io::Result<Bytes> {
    let mut response = begin(&world.site, Request::get("/long")).await;
    let mut content = Vec::new();
    for _ in 0..first {
        let frame = response.body_mut().frame().await.expect("a piece")?;
        content.extend(Bytes::from(frame.into_data().expect("no trailers")));
    }
    let mut options = File::options();
    change(&mut options.write(true).open(world.path("long")).unwrap());
    content.extend_from_slice(try_collect(response).await?.body());
    Ok(content.into())
}

#[tokio::test]
async fn a_file_that_grows_while_it_is_sent_is_sent_as_it_was_announced() {
    for first in [0, 1] {
        let (world, content) = long(b'a').await;
        let grow = |file: &mut File| {
            file.seek(SeekFrom::End(0)).unwrap();
            file.write_all(b"more").unwrap();
        };
        let sent = changed_while_it_is_sent(&world, first, grow).await;
        assert!(sent.unwrap() == content, "after {first} pieces");
    }
}

/// write(2) sets the time before the length, so that both may be seen between them.
#[tokio::test]
async fn a_file_with_a_new_time_and_the_same_bytes_is_the_same() {
    for first in [0, 1] {
        let (world, content) = long(b'a').await;
        let touch = |file: &mut File| file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let sent = changed_while_it_is_sent(&world, first, touch).await;
        assert!(sent.unwrap() == content, "after {first} pieces");
    }
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_sent_breaks_the_response_off() {
    for first in [0, 1] {
        let (world, _) = long(b'a').await;
        let shrink = |file: &mut File| file.set_len(budget::PIECE_MAX as u64 + 1).unwrap();
        let sent = changed_while_it_is_sent(&world, first, shrink).await;
        assert!(sent.is_err(), "after {first} pieces");
    }
}

#[tokio::test]
async fn a_file_that_is_overwritten_while_it_is_sent_breaks_the_response_off() {
    for first in [0, 1] {
        for more in [0, 100_000] {
            let (world, content) = long(b'a').await;
            let overwrite = |file: &mut File| {
                let other = vec![b'b'; content.len() + more];
                file.write_all(&other).unwrap();
            };
            let sent = changed_while_it_is_sent(&world, first, overwrite).await;
            assert!(sent.is_err(), "{more} bytes more, after {first} pieces");
        }
    }
}

/// Their first bytes are the same.
#[tokio::test]
async fn a_file_is_compared_with_what_was_sent_last() {
    let (world, content) = long(b'a').await;
    let overwrite = |file: &mut File| {
        file.seek(SeekFrom::Start(50_000)).unwrap();
        file.write_all(&vec![b'b'; content.len()]).unwrap();
    };
    assert!(
        changed_while_it_is_sent(&world, 1, overwrite)
            .await
            .is_err()
    );
}
