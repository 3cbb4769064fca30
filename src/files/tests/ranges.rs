//! Parts of a file (RFC 9110 14).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use super::*;

#[tokio::test]
async fn ranges_are_cut_as_asked() {
    let world = World::new(&[("a", b"0123456789")]);
    for (range, status, content_range, body) in [
        ("bytes=2-4", 206, "bytes 2-4/10", "234"),
        ("bytes=7-", 206, "bytes 7-9/10", "789"),
        ("bytes=-2", 206, "bytes 8-9/10", "89"),
        ("bytes=5-99", 206, "bytes 5-9/10", "56789"),
        ("bytes=10-", 416, "bytes */10", ""),
        ("bytes=-99", 206, "bytes 0-9/10", "0123456789"),
        (
            "bytes=-23456789012345678901234",
            206,
            "bytes 0-9/10",
            "0123456789",
        ),
        ("Bytes=2-4", 206, "bytes 2-4/10", "234"),
        ("bytes=02-0004", 206, "bytes 2-4/10", "234"),
        ("bytes=,2-4", 206, "bytes 2-4/10", "234"),
        ("bytes= 2-4 , ,", 206, "bytes 2-4/10", "234"),
        (
            "bytes=5-23456789012345678901234",
            206,
            "bytes 5-9/10",
            "56789",
        ),
        ("bytes=23456789012345678901234-", 416, "bytes */10", ""),
        ("bytes=-0", 416, "bytes */10", ""),
        ("bytes=4-2", 200, "", "0123456789"),
        ("bytes=2-4x", 200, "", "0123456789"),
        ("bytes=-", 200, "", "0123456789"),
        ("bytes=", 200, "", "0123456789"),
        ("bytes", 200, "", "0123456789"),
        ("bytes =2-4", 200, "", "0123456789"),
        ("bytes=+2-4", 200, "", "0123456789"),
        ("bytes=0-1,4-5", 206, "bytes 0-1/10", "01"),
        ("bytes=99-,4-5,0-1", 206, "bytes 4-5/10", "45"),
        ("bytes=99-,-0", 416, "bytes */10", ""),
        ("bytes=0-1,x", 200, "", "0123456789"),
        ("bytes=0-1,4-2", 200, "", "0123456789"),
        ("lines=1-2", 200, "", "0123456789"),
    ] {
        let response = world.send(Request::get("/a").header(RANGE, range)).await;
        assert_eq!(response.status(), status, "{range}");
        assert_eq!(header(&response, CONTENT_RANGE), content_range, "{range}");
        assert_eq!(response.body(), body, "{range}");
    }
}

/// The file is one hole, which uses no disk, but for its end.
#[tokio::test]
async fn a_part_may_begin_where_32_bits_end() {
    const LENGTH: u64 = 5 << 30;
    let world = World::new(&[]);
    let file = fs::File::create(world.path("a")).unwrap();
    file.write_all_at(b"end", LENGTH - 3).unwrap();
    let last = LENGTH - 1;
    for (range, first, body) in [
        ("bytes=-4", LENGTH - 4, &b"\0end"[..]),
        ("bytes=5368709117-", LENGTH - 3, b"end"),
        ("bytes=5368609120-", LENGTH - 100_000, &[0; 99_997]),
    ] {
        let response = world.send(Request::get("/a").header(RANGE, range)).await;
        let content_range = format!("bytes {first}-{last}/{LENGTH}");
        assert_eq!(header(&response, CONTENT_RANGE), content_range);
        assert!(response.body().starts_with(body), "{range}");
        assert!(response.body().ends_with(b"end"), "{range}");
    }
    let part = Request::get("/a").header(RANGE, "bytes=2147483646-2147483650");
    assert_eq!(world.send(part).await.body(), &b"\0"[..].repeat(5));
    assert_eq!(
        header(
            &begin(&world.site, Request::get("/a")).await,
            CONTENT_LENGTH
        ),
        LENGTH.to_string()
    );
}

#[tokio::test]
async fn two_range_fields_are_ignored() {
    let world = World::new(&[("a", b"0123456789")]);
    let request = Request::get("/a").header(RANGE, "bytes=0-1");
    let response = world.send(request.header(RANGE, "bytes=2-3")).await;
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_resumed_download_gets_the_rest_of_the_same_file_only() {
    let world = World::new(&[("a", b"0123456789")]);
    let first = world.settled("/a").await;
    let resume = |validator: &str| {
        Request::get("/a")
            .header(RANGE, "bytes=8-")
            .header(IF_RANGE, validator.to_owned())
    };
    let response = world.send(resume(header(&first, ETAG))).await;
    assert_eq!(
        (response.status().as_u16(), &response.body()[..]),
        (206, &b"89"[..])
    );
    for validator in [
        "\"another\"",
        &format!("W/{}", header(&first, ETAG)),
        "Thu, 01 Jan 1970 00:00:00 GMT",
    ] {
        let response = world.send(resume(validator)).await;
        assert_eq!(
            (response.status().as_u16(), response.body().len()),
            (200, 10)
        );
    }
    let shrunk = Request::get("/a")
        .header(RANGE, "bytes=50-")
        .header(IF_RANGE, "\"longer\"");
    assert_eq!(world.send(shrunk).await.status(), 200);
}

/// As apt does it, which has nothing else.
#[tokio::test]
async fn a_download_is_resumed_by_the_date_that_was_sent() {
    let world = World::new(&[("a", b"0123456789")]);
    let file = File::options().write(true).open(world.path("a")).unwrap();
    let hour = Duration::from_secs(60 * 60);
    file.set_modified(SystemTime::now() - hour).unwrap();
    let first = world.settled("/a").await;
    let date = header(&first, LAST_MODIFIED);
    let later = httpdate::fmt_http_date(SystemTime::now());
    for (date, accepted, status) in [
        (date, "identity", 206),
        // The part that the client has may be one of a compressed file.
        (date, "gzip", 200),
        (&later, "identity", 200),
        (&format!("{date} "), "identity", 200),
    ] {
        let resume = Request::get("/a").header(RANGE, "bytes=8-");
        let resume = resume.header(ACCEPT_ENCODING, accepted);
        let response = world.send(resume.header(IF_RANGE, date)).await;
        assert_eq!(response.status(), status, "{date} {accepted}");
    }
}
