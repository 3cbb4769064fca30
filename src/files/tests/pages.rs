//! Clean addresses, the one page of an app, and the page of a 404.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::header::RETRY_AFTER;

use super::super::beneath::Symlinks;
use super::*;
use crate::id::ConnectionId;

const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";

#[tokio::test]
async fn a_page_has_one_address() {
    let files: &[(&str, &[u8])] = &[
        ("index.html", b"top"),
        ("about.html", b"about"),
        ("both.html", b"page"),
        ("both/index.html", b"directory"),
        ("only/a", b""),
        ("only.html", b"only"),
    ];
    let world = World::with(files, |files| files.clean_urls(true));
    for (path, body) in [
        ("/", "top"),
        ("/about", "about"),
        ("/both/", "directory"),
        ("/only", "only"),
    ] {
        let response = world.get(path).await;
        assert_eq!(response.body(), body, "{path}");
        assert_eq!(header(&response, CONTENT_TYPE), "text/html; charset=utf-8");
    }
    for (path, place) in [
        ("/about.html?a=b", "./about?a=b"),
        ("/about/", "../about"),
        ("/index.html", "./"),
        ("/both/index.html", "./"),
        ("/both", "./both/"),
        ("/only/", "../only"),
    ] {
        let response = world.get(path).await;
        assert_eq!(response.status(), 308, "{path}");
        assert_eq!(header(&response, LOCATION), place, "{path}");
    }
    assert_eq!(world.status("/none").await, 404);
    assert_eq!(world.status("/none/").await, 404);
}

#[tokio::test]
async fn an_address_is_not_made_shorter_if_another_file_has_the_short_one() {
    let files: &[(&str, &[u8])] = &[
        ("about.html", b"about"),
        ("both.html", b"page"),
        ("both/index.html", b"directory"),
        ("file.html", b"page"),
        ("file", b"file"),
    ];
    let world = World::with(files, |files| files.clean_urls(true));
    for (path, body) in [
        ("/both.html", "page"),
        ("/both%2ehtml", "page"),
        ("/both/index%2ehtml", "directory"),
        ("/file.html", "page"),
        ("/file", "file"),
    ] {
        assert_eq!(world.get(path).await.body(), body, "{path}");
    }
    // A redirect would cut a byte of `%2f`.
    for path in ["/file/", "/about%2f", "/about%2F"] {
        assert_eq!(world.status(path).await, 404, "{path}");
    }
}

#[tokio::test]
async fn a_browser_gets_the_page_of_an_app_and_a_script_gets_404() {
    let files: &[(&str, &[u8])] = &[("app.html", b"the app"), ("a.js", b"code")];
    let world = World::with(files, |files| files.fallback("app.html"));
    let ask = |path: &str, accept: &'static str| {
        let request = Request::get(path).header(ACCEPT, accept);
        async { world.send(request).await }
    };
    let page = ask("/users/7?tab=1", BROWSER).await;
    assert_eq!(page.status(), 200);
    assert_eq!(page.body(), "the app");
    assert_eq!(header(&page, CONTENT_TYPE), "text/html; charset=utf-8");
    assert_eq!(ask("/a.js", "*/*").await.body(), "code");
    let script = ask("/b.js", BROWSER).await;
    assert_eq!(script.status(), 404);
    assert_eq!(header(&script, VARY), "");
    assert_eq!(ask("/users/7", "application/json").await.status(), 404);
    for hidden in ["/.env", "/%2eenv", "/a/..", "/b.js%00"] {
        assert_eq!(ask(hidden, BROWSER).await.status(), 404, "{hidden}");
    }
}

/// A shared cache must not give one to who asks for the other.
#[tokio::test]
async fn the_page_of_an_app_and_the_404_of_the_same_address_say_on_what_they_depend() {
    let files: &[(&str, &[u8])] = &[("app.html", b"the app"), ("404.html", b"none")];
    for not_found in [false, true] {
        let world = World::with(files, |files| match not_found {
            true => files.fallback("app.html").not_found_page("404.html"),
            false => files.fallback("app.html"),
        });
        for (accept, status) in [(BROWSER, 200), ("application/json", 404)] {
            let request = Request::get("/users/7").header(ACCEPT, accept);
            let response = world.send(request).await;
            assert_eq!(response.status(), status);
            assert_eq!(header(&response, VARY), "accept-encoding, accept");
        }
    }
}

#[tokio::test]
async fn a_404_has_its_page_whole_and_without_validators() {
    let files: &[(&str, &[u8])] = &[("404.html", b"no such page")];
    let world = World::with(files, |files| files.not_found_page("404.html"));
    let request = Request::get("/none").header(RANGE, "bytes=0-1");
    let response = world.send(request.header(IF_MATCH, "\"x\"")).await;
    assert_eq!(response.status(), 404);
    assert_eq!(response.body(), "no such page");
    assert_eq!(header(&response, CONTENT_LENGTH), "12");
    assert_eq!(header(&response, ETAG), "");
    assert_eq!(header(&response, ACCEPT_RANGES), "");
    let head = world.send(Request::head("/none")).await;
    assert_eq!(header(&head, CONTENT_LENGTH), "12");
    assert!(head.body().is_empty());
}

#[tokio::test]
async fn links_are_followed_as_the_policy_says() {
    for (symlinks, inside, outside) in [
        (Symlinks::Inside, 200, 404),
        (Symlinks::Never, 404, 404),
        (Symlinks::Anywhere, 200, 200),
    ] {
        let world = World::with(&[("a", b"a")], |files| files.symlinks(symlinks));
        world.link("inside", "a");
        world.link("outside", "../secret.txt");
        world.link("magic", "/proc/self/root");
        assert_eq!(world.status("/inside").await, inside, "{symlinks:?}");
        assert_eq!(world.status("/outside").await, outside, "{symlinks:?}");
        assert_eq!(world.status("/../secret.txt").await, 404, "{symlinks:?}");
    }
}

#[tokio::test]
async fn a_name_may_be_any_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let world = World::new(&[]);
    for (name, path) in [
        (&b"\xff\xfe"[..], "/%ff%fe"),
        (b"a\\b", "/a%5cb"),
        (b"new\nline", "/new%0aline"),
        (b"%41", "/%2541"),
    ] {
        let place = world.root.path().join("site").join(OsStr::from_bytes(name));
        fs::write(place, name).unwrap();
        assert_eq!(world.get(path).await.body(), name, "{path}");
    }
}

#[tokio::test]
async fn a_listing_shows_what_would_be_served() {
    let files: &[(&str, &[u8])] = &[
        ("with/index.html", b"page"),
        ("without/a b.txt", b"12345"),
        ("without/.hidden", b""),
        ("without/deeper/x", b""),
        ("empty/x/y", b""),
    ];
    let world = World::with(files, |files| files.listing(true));
    world.link("without/inside", "deeper/x");
    world.link("without/outside", "../../secret.txt");
    world.link("without/nowhere", "none");
    assert_eq!(world.get("/with/").await.body(), "page");
    let json = |path: &str| Request::get(path).header(ACCEPT, "application/json");
    let names = async |path: &str| {
        let page = world.send(json(path)).await;
        assert_eq!(header(&page, CONTENT_TYPE), "application/json");
        let page: serde_json::Value = serde_json::from_slice(page.body()).expect("JSON");
        let entries = page["entries"].as_array().expect("a list").iter();
        let name = |entry: &serde_json::Value| entry["href"].as_str().map(str::to_owned);
        entries
            .map(|entry| name(entry).expect("a name"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names("/without/").await,
        ["./deeper/", "./a%20b.txt", "./inside"]
    );
    assert_eq!(names("/").await, ["./empty/", "./with/", "./without/"]);
    let page = world.get("/without/?sort=size").await;
    assert_eq!(page.status(), 200);
    assert_eq!(header(&page, CONTENT_TYPE), "text/html; charset=utf-8");
    assert_eq!(header(&page, "vary"), "accept");
    let head = world.send(Request::head("/without/?sort=size")).await;
    assert_eq!(header(&head, CONTENT_LENGTH), page.body().len().to_string());
    assert_eq!(world.get("/without").await.status(), 308);
    assert_eq!(world.status("/none/").await, 404);
    let closed = World::new(files);
    assert_eq!(closed.status("/without/").await, 404);
}

/// A client of HTTP/2 may ask for many at once, and grant no window.
#[tokio::test]
async fn a_connection_has_few_pages_of_directories_at_a_time() {
    let world = World::with(&[("a", b"")], |files| files.listing(true));
    let client = ConnectionId(1);
    let mut pages = Vec::new();
    for _ in 0..budget::RESPONSES_MAX {
        assert!(world.site.has_permit(client));
        let (head, ()) = Request::get("/").body(()).expect("a request").into_parts();
        let Ok(response) = world.site.respond(head, Some(client)).await;
        let frame = response.into_body().frame().await.expect("a page");
        pages.push(frame.expect("it is in memory"));
    }
    assert!(!world.site.has_permit(client));
    pages.pop();
    assert!(world.site.has_permit(client));
}

/// apt asks so for a repository without a `dists` directory.
#[tokio::test]
async fn a_dot_in_the_path_is_the_directory_itself() {
    let world = World::new(&[("apt/Packages", b"list"), ("apt/index.html", b"apt")]);
    assert_eq!(world.get("/apt/./Packages").await.body(), "list");
    assert_eq!(world.get("/apt/.").await.body(), "apt");
    let moved = world.get("/./apt").await;
    assert_eq!(header(&moved, LOCATION), "./apt/");
}

/// tokio panics without a runtime as it does if it has no thread and the system allows none.
#[test]
fn a_request_for_which_no_thread_can_be_made_is_to_come_again() {
    let world = World::with(&[("a", b"")], |files| files.listing(true));
    let mut response = pin!(world.get("/"));
    let polled = response
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(response) = polled else {
        panic!("it waits for nothing");
    };
    assert_eq!(response.status(), 503);
    assert_eq!(header(&response, RETRY_AFTER), "1");
}
