//! Content types, where clients need another one than mime_guess has.

use super::*;

#[tokio::test]
async fn a_type_is_one_that_clients_know() {
    let types = [
        ("a.umd.cjs", "text/javascript; charset=utf-8"),
        ("a.mjs", "application/javascript"),
        ("a.M4A", "audio/mp4"),
        ("a.rpm", "application/x-rpm"),
        ("a.ts", "video/mp2t"),
        ("a.wasm", "application/wasm"),
        ("a.webmanifest", "application/manifest+json"),
        ("cjs", "application/octet-stream"),
        ("a.zst", "application/octet-stream"),
    ];
    let world = World::new(&types.map(|(name, _)| (name, &b"a"[..])));
    for (name, expected) in types {
        let response = world.get(&format!("/{name}")).await;
        assert_eq!(header(&response, CONTENT_TYPE), expected, "{name}");
    }
}

/// Each client decodes it, and a compressed sibling would be compressed twice.
#[tokio::test]
async fn a_compressed_picture_says_that_it_is_compressed() {
    let world = World::new(&[("a.svgz", b"zipped"), ("a.svgz.br", b"twice")]);
    for accepted in ["", "gzip, br"] {
        let request = Request::get("/a.svgz").header(ACCEPT_ENCODING, accepted);
        let response = world.send(request).await;
        assert_eq!(header(&response, CONTENT_TYPE), "image/svg+xml");
        assert_eq!(header(&response, CONTENT_ENCODING), "gzip");
        assert_eq!(header(&response, ACCEPT_RANGES), "bytes");
        assert_eq!(response.body(), "zipped");
    }
    let archive = World::new(&[("a.tar.gz", b"zipped")]);
    let response = archive.get("/a.tar.gz").await;
    assert_eq!(header(&response, CONTENT_ENCODING), "");
}
