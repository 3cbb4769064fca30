//! What is served, and what is not.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED,
    LOCATION, RANGE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Builder;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use nix::errno::Errno;
use tempfile::TempDir;

use super::body::FileBody;
use super::budget;
use super::options::Files;
use super::service::FileService;
use crate::error::chain;

mod changes;
#[cfg(feature = "compression")]
mod compress;
mod fields;
mod fuzz;
mod pages;
mod play;
mod ranges;
mod types;
mod versions;

/// One request, and its response before its body. The server writes the length of a body.
async fn begin(site: &FileService, request: Builder) -> Response<FileBody> {
    let (head, ()) = request.body(()).expect("a request").into_parts();
    let is_get = head.method == http::Method::GET;
    let Ok(mut response) = site.respond(head, None).await;
    let length = response.body().size_hint().exact().expect("it is known");
    if is_get && response.status() != 304 {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response
}

/// One request to a site, and what came back as a whole.
async fn send(site: &FileService, request: Builder) -> Response<Bytes> {
    let response = begin(site, request).await;
    try_collect(response).await.expect("a whole body")
}

/// The pieces are copied: a file is read on when the piece before is dropped.
async fn try_collect(response: Response<FileBody>) -> std::io::Result<Response<Bytes>> {
    let (head, mut body) = response.into_parts();
    let mut content = Vec::new();
    while let Some(frame) = body.frame().await {
        content.extend_from_slice(&Bytes::from(frame?.into_data().expect("no trailers")));
    }
    Ok(Response::from_parts(head, content.into()))
}

fn header<T>(response: &Response<T>, name: impl http::header::AsHeaderName) -> &str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().expect("ASCII"))
}

const SECRET: &str = "outside the directory";

/// A directory `site` beside a file that must never be seen.
struct World {
    site: FileService,
    root: TempDir,
}

impl World {
    fn new(files: &[(&str, &[u8])]) -> Self {
        Self::with(files, |files| files)
    }

    fn with(files: &[(&str, &[u8])], options: impl FnOnce(Files) -> Files) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("site");
        fs::create_dir(&dir).unwrap();
        fs::write(root.path().join("secret.txt"), SECRET).unwrap();
        for (name, content) in files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let site = options(Files::new(dir)).open().unwrap();
        Self { site, root }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join("site").join(name)
    }

    fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.path(name)).unwrap();
    }

    async fn get(&self, path: &str) -> Response<Bytes> {
        self.send(Request::get(path)).await
    }

    /// The response when the last change is so long ago that the tag is a strong one.
    async fn settled(&self, path: &str) -> Response<Bytes> {
        loop {
            let response = self.get(path).await;
            if header(&response, ETAG).starts_with('"') {
                return response;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn status(&self, path: &str) -> u16 {
        self.get(path).await.status().as_u16()
    }

    async fn send(&self, request: Builder) -> Response<Bytes> {
        send(&self.site, request).await
    }
}

/// A response to GET is one of these contents, or a part of one, or says that there is none.
fn assert_response<'a>(
    response: &Response<Bytes>,
    contents: impl Iterator<Item = &'a [u8]> + Clone,
) {
    let body = &response.body()[..];
    assert!(
        !body
            .windows(SECRET.len())
            .any(|part| part == SECRET.as_bytes())
    );
    match response.status().as_u16() {
        200 => {
            assert!(contents.clone().any(|content| content == body));
            assert_eq!(header(response, CONTENT_LENGTH), body.len().to_string());
        }
        206 => {
            let range = header(response, CONTENT_RANGE);
            let part = part(range).expect("the part is named");
            let is_part = |content: &[u8]| {
                content.len() == part.2 && content.get(part.0..=part.1) == Some(body)
            };
            assert!(contents.clone().any(is_part), "{range}");
            assert_eq!(header(response, CONTENT_LENGTH), body.len().to_string());
        }
        304 | 412 => assert!(body.is_empty()),
        // The query stays as the client sent it, even if it is not ASCII. Two slashes would begin
        // the name of another host.
        308 => {
            let location = response.headers()[LOCATION].as_bytes();
            let name = location.strip_prefix(b".").expect("relative");
            let name = name.strip_prefix(b".").unwrap_or(name);
            assert!(name.starts_with(b"/") && !name.starts_with(b"//"));
        }
        404 => assert_eq!(body, b"Not Found"),
        416 => assert!(header(response, CONTENT_RANGE).starts_with("bytes */")),
        other => panic!("{other} is no status of a response to GET"),
    }
}

/// First, last and length of `bytes first-last/length`.
fn part(range: &str) -> Option<(usize, usize, usize)> {
    let (ends, length) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = ends.split_once('-')?;
    Some((
        first.parse().ok()?,
        last.parse().ok()?,
        length.parse().ok()?,
    ))
}

#[tokio::test]
async fn a_file_is_served_with_type_and_validators() {
    let world = World::new(&[
        ("a.html", b"<p>hi"),
        ("a.bin", b"\0"),
        ("notes.csv", b"1,2"),
    ]);
    let response = world.settled("/a.html?v=1").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.body(), "<p>hi");
    assert_eq!(header(&response, CONTENT_TYPE), "text/html; charset=utf-8");
    assert_eq!(header(&response, CONTENT_LENGTH), "5");
    assert_eq!(header(&response, ACCEPT_RANGES), "bytes");
    assert_eq!(header(&response, X_CONTENT_TYPE_OPTIONS), "nosniff");
    assert!(header(&response, LAST_MODIFIED).ends_with(" GMT"));
    assert!(header(&response, ETAG).starts_with('"'));
    let binary = world.get("/a.bin").await;
    assert_eq!(header(&binary, CONTENT_TYPE), "application/octet-stream");
    let csv = world.get("/notes.csv").await;
    assert_eq!(header(&csv, CONTENT_TYPE), "text/csv; charset=utf-8");
}

#[tokio::test]
async fn a_file_longer_than_a_chunk_is_served_whole_and_in_part() {
    let content: Vec<u8> = (0..budget::PIECE_MAX * 3 + 17)
        .map(|i| (i % 251) as u8)
        .collect();
    let world = World::new(&[("big", &content)]);
    assert_eq!(world.get("/big").await.body(), &content);
    let request = Request::get("/big").header(RANGE, "bytes=65530-131080");
    assert_eq!(world.send(request).await.body(), &content[65530..=131_080]);
}

#[tokio::test]
async fn an_empty_file_is_a_file() {
    let world = World::new(&[("empty.txt", b"")]);
    let response = world.get("/empty.txt").await;
    assert_eq!(response.status(), 200);
    assert_eq!(*response.body(), "");
    let part = Request::get("/empty.txt").header(RANGE, "bytes=0-");
    let response = world.send(part).await;
    assert_eq!(response.status(), 200, "there is no part of nothing");
    let head = world.send(Request::head("/empty.txt")).await;
    assert_eq!(header(&head, CONTENT_LENGTH), "0");
}

#[tokio::test]
async fn a_directory_is_served_by_its_index_and_never_a_listing() {
    let world = World::new(&[
        ("index.html", b"top"),
        ("docs/index.html", b"docs"),
        ("css/a", b""),
    ]);
    assert_eq!(world.get("/").await.body(), "top");
    assert_eq!(world.get("/docs/").await.body(), "docs");
    assert_eq!(world.status("/css/").await, 404);
    assert_eq!(world.status("/index.html/").await, 404);
    assert_eq!(world.status("/index.html/x").await, 404);
}

#[tokio::test]
async fn a_directory_without_its_slash_is_redirected_within_this_host() {
    let world = World::new(&[
        ("docs/index.html", b"docs"),
        ("evil.example/a/index.html", b""),
    ]);
    for (asked, location) in [
        ("/docs", "./docs/"),
        ("/docs?a=b", "./docs/?a=b"),
        ("//evil.example", "./evil.example/"),
        ("//evil.example/a", "./a/"),
        ("http://evil.example/docs", "./docs/"),
    ] {
        let response = world.get(asked).await;
        assert_eq!(response.status(), 308, "{asked}");
        assert_eq!(header(&response, LOCATION), location);
    }
    for hostile in [
        "//evil.example/..",
        "//evil.example/%2e%2e",
        "/%5cevil.example",
        "/%2fdocs",
    ] {
        let response = world.get(hostile).await;
        assert_eq!(response.status(), 404, "{hostile}");
        assert_eq!(header(&response, LOCATION), "");
    }
}

#[tokio::test]
async fn nothing_outside_the_directory_is_served() {
    let world = World::new(&[("docs/a", b"")]);
    let secret = world.root.path().join("secret.txt");
    let secret = secret.to_str().unwrap();
    for path in [
        "/../secret.txt",
        "/docs/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%2fsecret.txt",
        "/docs/..%2f..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\u{5c}secret.txt",
        "/%252e%252e/secret.txt",
        "/secret.txt%00",
        &format!("/{secret}"),
        &format!("/%2f{secret}"),
        &format!("/%2f{}", secret.trim_start_matches('/')),
    ] {
        let response = world.get(path).await;
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(response.body(), "Not Found");
    }
}

#[tokio::test]
async fn links_are_followed_inside_and_not_outside() {
    let world = World::new(&[("docs/a.txt", b"inside"), ("deep/er/x", b"")]);
    world.link("here.txt", "docs/a.txt");
    world.link("deep/er/back.txt", "../../docs/a.txt");
    world.link("papers", "docs");
    assert_eq!(world.get("/here.txt").await.body(), "inside");
    assert_eq!(world.get("/deep/er/back.txt").await.body(), "inside");
    assert_eq!(world.get("/papers/a.txt").await.body(), "inside");

    world.link("out.txt", "../secret.txt");
    world.link("absolute.txt", world.root.path().join("secret.txt"));
    world.link("up", "..");
    world.link("slash", "/");
    world.link("magic", "/proc/self/root");
    world.link("loop", "loop");
    world.link("dangling", "nowhere");
    for path in [
        "/out.txt",
        "/absolute.txt",
        "/up/secret.txt",
        "/up",
        "/up/",
        "/slash/etc/passwd",
        "/magic/etc/passwd",
        "/loop",
        "/dangling",
    ] {
        assert_eq!(world.status(path).await, 404, "{path}");
    }
}

#[tokio::test]
async fn hidden_files_do_not_exist_but_the_well_known_do() {
    let files: &[(&str, &[u8])] = &[
        (".env", b"KEY"),
        (".git/config", b"KEY"),
        ("a/.htpasswd", b"KEY"),
        (".well-known/security.txt", b"mail us"),
        (".well-known/.hidden", b"KEY"),
    ];
    let world = World::new(files);
    for path in [
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/.git/",
        "/.git",
        "/a/.htpasswd",
    ] {
        assert_eq!(world.status(path).await, 404, "{path}");
    }
    assert_eq!(world.status("/.well-known/.hidden").await, 404);
    assert_eq!(
        world.get("/.well-known/security.txt").await.body(),
        "mail us"
    );
}

#[tokio::test]
async fn a_fifo_or_a_socket_is_neither_served_nor_waited_for() {
    let world = World::new(&[("page.html", b"page")]);
    let dir = world.root.path().join("site");
    let mode = nix::sys::stat::Mode::S_IRUSR;
    for name in ["fifo", "page.html.gz", "index.html"] {
        nix::unistd::mkfifo(&dir.join(name), mode).unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    for path in ["/fifo", "/socket", "/", "/fifo/"] {
        assert_eq!(world.status(path).await, 404, "{path}");
    }
    let request = Request::get("/page.html").header(ACCEPT_ENCODING, "gzip");
    assert_eq!(world.send(request).await.body(), "page");
}

#[tokio::test]
async fn a_directory_is_not_taken_for_the_file_it_is_named_like() {
    let world = World::new(&[
        ("page.html", b"page"),
        ("page.html.gz/a", b""),
        ("index.html/a", b""),
    ]);
    for method in [Method::GET, Method::HEAD] {
        let builder = || Request::builder().method(&method);
        let page = builder().uri("/page.html").header(ACCEPT_ENCODING, "gzip");
        let page = world.send(page).await;
        assert_eq!(header(&page, CONTENT_LENGTH), "4");
        assert_eq!(header(&page, CONTENT_ENCODING), "");
        assert_eq!(world.send(builder().uri("/")).await.status(), 404);
    }
}

#[tokio::test]
async fn only_reading_is_allowed() {
    let world = World::new(&[("a", b"a")]);
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::CONNECT] {
        let response = world
            .send(Request::builder().method(method).uri("/a"))
            .await;
        assert_eq!(response.status(), 405);
        assert_eq!(header(&response, ALLOW), "GET, HEAD, OPTIONS");
    }
    let request = Request::builder().method(Method::OPTIONS).uri("/a");
    let response = world.send(request).await;
    assert_eq!(response.status(), 204);
    assert_eq!(header(&response, ALLOW), "GET, HEAD, OPTIONS");
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let world = World::new(&[("a.txt", b"0123456789")]);
    let get = world.settled("/a.txt").await;
    let head = world
        .send(Request::head("/a.txt").header(RANGE, "bytes=0-1"))
        .await;
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers(), get.headers());
    assert!(head.body().is_empty());
    let absent = world.send(Request::head("/b.txt")).await;
    assert_eq!(absent.status(), 404);
    assert!(absent.body().is_empty());
}

#[tokio::test]
async fn what_the_client_has_is_not_sent_again() {
    let world = World::new(&[("a", b"0123456789")]);
    let first = world.settled("/a").await;
    let (etag, modified) = (header(&first, ETAG), header(&first, LAST_MODIFIED));
    for (name, value) in [(IF_MODIFIED_SINCE, modified), (IF_NONE_MATCH, etag)] {
        let response = world.send(Request::get("/a").header(name, value)).await;
        assert_eq!(response.status(), 304);
        assert_eq!(header(&response, ETAG), etag);
        assert_eq!(header(&response, VARY), header(&first, VARY));
        assert!(response.body().is_empty());
    }
    let stale = [
        (IF_MODIFIED_SINCE, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (IF_NONE_MATCH, "\"another\""),
    ];
    for (name, value) in stale {
        assert_eq!(
            world
                .send(Request::get("/a").header(name, value))
                .await
                .status(),
            200
        );
    }
    let other = Request::get("/a").header(IF_MATCH, "\"another\"");
    assert_eq!(world.send(other).await.status(), 412);
}

#[tokio::test]
async fn a_precompressed_sibling_is_sent_to_who_reads_it() {
    let world = World::new(&[
        ("a.css", b"plain"),
        ("a.css.gz", b"zipped"),
        ("a.css.br", b"brotli"),
        ("b.css", b"plain"),
    ]);
    world.link("b.css.gz", "../secret.txt");
    for (path, accepted, encoding, body) in [
        ("/a.css", "gzip", "gzip", "zipped"),
        ("/a.css", "gzip, br", "br", "brotli"),
        ("/a.css", "zstd", "", "plain"),
        ("/a.css", "gzip;q=0", "", "plain"),
        ("/b.css", "gzip", "", "plain"),
    ] {
        let response = world
            .send(Request::get(path).header(ACCEPT_ENCODING, accepted))
            .await;
        assert_eq!(
            header(&response, CONTENT_ENCODING),
            encoding,
            "{path} {accepted}"
        );
        assert_eq!(header(&response, CONTENT_TYPE), "text/css; charset=utf-8");
        assert_eq!(header(&response, VARY), "accept-encoding");
        assert_eq!(response.body(), body);
    }
}

#[test]
fn a_directory_that_can_not_be_served_is_told_at_once() {
    let root = tempfile::tempdir().unwrap();
    let (absent, file, turn) = (
        root.path().join("absent"),
        root.path().join("file"),
        root.path().join("turn"),
    );
    fs::write(&file, "").unwrap();
    symlink(&turn, &turn).unwrap();
    for (path, reason) in [
        (absent, Errno::ENOENT),
        (file, Errno::ENOTDIR),
        (turn, Errno::ELOOP),
    ] {
        let error = chain(&Files::new(&path).open().unwrap_err());
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        let reason = io::Error::from(reason).to_string();
        assert_eq!(error.matches(&reason).count(), 1, "{error}");
    }
}
