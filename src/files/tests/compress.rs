//! Files that are compressed when they are asked for.

use std::io::Read;

use http::header::{CONTENT_ENCODING, IF_NONE_MATCH, RANGE, VARY};

use super::*;

/// A text of this length that compresses well.
fn text(length: usize) -> Vec<u8> {
    let words = b"the same words again and again, with a number: ";
    let words = words.iter().copied().cycle();
    words
        .enumerate()
        .map(|(at, byte)| byte ^ u8::from(at % 997 == 0))
        .take(length)
        .collect()
}

/// Bytes that no coding makes shorter.
fn noise(length: usize) -> Vec<u8> {
    let mut chance = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| chance.u8(..))
        .take(length)
        .collect()
}

fn decoded(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let read = match coding {
        "zstd" => return zstd::decode_all(body).expect("zstd"),
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut plain),
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut plain),
        other => panic!("{other} was not asked for"),
    };
    read.expect(coding);
    plain
}

fn compressing(files: &[(&str, &[u8])]) -> World {
    World::with(files, |files| files.compress(true))
}

fn ask(path: &str, codings: &'static str) -> Builder {
    Request::get(path).header(ACCEPT_ENCODING, codings)
}

#[tokio::test]
async fn a_text_is_compressed_as_the_client_likes_it() {
    let (short, long) = (text(5000), text(300_000));
    let world = compressing(&[("a.css", &short), ("b.json", &long), ("c.otf", &short)]);
    for (path, content) in [("/a.css", &short), ("/b.json", &long), ("/c.otf", &short)] {
        let plain = world.settled(path).await;
        assert_eq!(header(&plain, VARY), "accept-encoding");
        let mut tags = vec![header(&plain, ETAG).to_owned()];
        for coding in ["zstd", "br", "gzip"] {
            let response = world.send(ask(path, coding)).await;
            assert_eq!(header(&response, CONTENT_ENCODING), coding);
            assert_eq!(
                header(&response, CONTENT_TYPE),
                header(&plain, CONTENT_TYPE)
            );
            assert_eq!(
                header(&response, ACCEPT_RANGES),
                "",
                "it would be of the plain file"
            );
            assert!(response.body().len() < content.len() / 4);
            assert!(decoded(coding, response.body()) == *content);
            let tag = header(&response, ETAG).to_owned();
            let again = ask(path, coding).header(IF_NONE_MATCH, &tag);
            assert_eq!(world.send(again).await.status(), 304);
            tags.push(tag);
            let head = Request::head(path).header(ACCEPT_ENCODING, coding);
            let head = world.send(head).await;
            assert_eq!(
                header(&head, CONTENT_LENGTH),
                response.body().len().to_string()
            );
        }
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), 4, "{tags:?}");
    }
}

#[tokio::test]
async fn what_gains_nothing_or_is_a_part_stays_as_it_is() {
    let (short, noise, picture) = (text(1000), noise(5000), text(5000));
    let world = compressing(&[("a.txt", &short), ("b.txt", &noise), ("c.png", &picture)]);
    for path in ["/a.txt", "/b.txt", "/c.png"] {
        let length = world.settled(path).await.body().len();
        let response = world.send(ask(path, "gzip")).await;
        assert_eq!(header(&response, CONTENT_ENCODING), "", "{path}");
        assert_eq!(response.body().len(), length, "{path}");
    }
    let world = compressing(&[
        ("a.txt", &picture),
        ("b.txt", &picture),
        ("b.txt.gz", b"own"),
    ]);
    world.settled("/a.txt").await;
    let part = ask("/a.txt", "gzip").header(RANGE, "bytes=1-3");
    let part = world.send(part).await;
    assert_eq!(part.status(), 206);
    assert_eq!(part.body(), &picture[1..4]);
    assert_eq!(header(&part, CONTENT_ENCODING), "");
    let own = world.send(ask("/b.txt", "gzip")).await;
    assert_eq!(own.body(), "own");
    assert_eq!(header(&own, ACCEPT_RANGES), "bytes");
}

#[tokio::test]
async fn a_changed_file_is_compressed_again() {
    let world = compressing(&[("a.txt", &text(5000))]);
    world.settled("/a.txt").await;
    let before = world.send(ask("/a.txt", "br")).await;
    assert_eq!(decoded("br", before.body()).len(), 5000);
    fs::write(world.path("a.txt"), text(9000)).expect("space");
    loop {
        let after = world.send(ask("/a.txt", "br")).await;
        if header(&after, CONTENT_ENCODING) == "br" && after.body() != before.body() {
            assert_eq!(decoded("br", after.body()).len(), 9000);
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_page_of_a_directory_is_compressed() {
    let world = World::with(&[("a", b"a")], |files| files.compress(true).listing(true));
    let plain = world.get("/").await;
    assert_eq!(header(&plain, CONTENT_ENCODING), "");
    for (coding, is_coded) in [
        ("zstd", true),
        ("br", true),
        ("gzip", true),
        ("other", false),
    ] {
        let page = world.send(ask("/", coding)).await;
        assert_eq!(header(&page, CONTENT_ENCODING) == coding, is_coded);
        assert_eq!(header(&page, VARY), "accept-encoding, accept");
        assert_eq!(header(&page, CONTENT_TYPE), header(&plain, CONTENT_TYPE));
        if is_coded {
            assert!(decoded(coding, page.body()) == *plain.body());
        }
        let head = Request::head("/").header(ACCEPT_ENCODING, coding);
        let length = page.body().len().to_string();
        assert_eq!(header(&world.send(head).await, CONTENT_LENGTH), length);
    }
    let short = ask("/", "gzip").header(ACCEPT, "application/json");
    assert_eq!(header(&world.send(short).await, CONTENT_ENCODING), "");
}
