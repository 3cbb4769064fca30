//! Fields that the user adds, and requests of other sites.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, CACHE_CONTROL, ORIGIN, VARY,
};

use super::*;

const IMMUTABLE: &str = "public, max-age=31536000, immutable";

#[tokio::test]
async fn browsers_keep_files_with_a_hash_and_ask_for_others() {
    let files: &[(&str, &[u8])] = &[
        ("index.html", b"page"),
        ("404.html", b"none"),
        ("assets/app-BdH3kZ9x.js", b"code"),
        ("assets/app-BdH3kZ9x.js.gz", b"compressed"),
        ("assets/own-3f2a9c1b.js", b"code"),
    ];
    let own = "assets/own-*: Cache-Control: max-age=60".parse();
    let own = own.expect("a rule");
    let world = World::with(files, |files| {
        let files = files.fallback("index.html").not_found_page("404.html");
        files.safe_caching(true).header(own)
    });
    let browser = |path: &str| Request::get(path).header(ACCEPT, "text/html");
    for (request, status, cache) in [
        (browser("/"), 200, "no-cache"),
        (browser("/users/7"), 200, "no-cache"),
        (Request::get("/assets/app-BdH3kZ9x.js"), 200, IMMUTABLE),
        (Request::get("/assets/app-BdH3kZ9y.js"), 404, "no-cache"),
        (Request::get("/assets/own-3f2a9c1b.js"), 200, "max-age=60"),
        (Request::get("/assets"), 308, "no-cache"),
    ] {
        let response = world.send(request).await;
        assert_eq!(response.status(), status);
        assert_eq!(header(&response, CACHE_CONTROL), cache, "{response:?}");
    }
    let zipped = Request::get("/assets/app-BdH3kZ9x.js").header(ACCEPT_ENCODING, "gzip");
    let zipped = world.send(zipped).await;
    assert_eq!(zipped.body(), "compressed");
    assert_eq!(header(&zipped, CACHE_CONTROL), IMMUTABLE);
    let tag = header(&world.settled("/").await, ETAG).to_owned();
    let known = world.send(Request::get("/").header("if-none-match", tag));
    let known = known.await;
    assert_eq!(known.status(), 304);
    assert_eq!(header(&known, CACHE_CONTROL), "no-cache");
}

#[tokio::test]
async fn two_slashes_do_not_lead_past_a_pattern() {
    let rule = "/admin/*.html: X-Frame-Options: DENY".parse();
    let rule = rule.expect("a rule");
    let files: &[(&str, &[u8])] = &[("admin/a.html", b"a")];
    let world = World::with(files, |files| files.header(rule));
    for (path, status) in [
        ("/admin/a.html", 200),
        ("/admin//a.html", 200),
        ("//admin%2f%2f/a.html", 200),
        ("/admin/./a.html", 200),
        ("/admin//b.html", 404),
    ] {
        let response = world.get(path).await;
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(header(&response, "x-frame-options"), "DENY", "{path}");
    }
}

#[tokio::test]
async fn a_field_is_added_where_its_pattern_matches() {
    let rules = [
        "**: X-Frame-Options: DENY",
        "*.bin: Content-Type: text/x-own",
        "d/**: X-Frame-Options: SAMEORIGIN",
    ];
    let files: &[(&str, &[u8])] = &[("a.bin", b"a"), ("d/b.txt", b"b")];
    let world = World::with(files, |files| {
        let rules = rules.map(|rule| rule.parse().expect("a rule"));
        rules.into_iter().fold(files, Files::header)
    });
    let field = |response: &Response<Bytes>| header(response, "x-frame-options").to_owned();
    let first = world.get("/a.bin").await;
    assert_eq!(field(&first), "DENY");
    assert_eq!(header(&first, CONTENT_TYPE), "text/x-own");
    assert_eq!(field(&world.get("/d/b.txt").await), "SAMEORIGIN");
    assert_eq!(field(&world.get("/none").await), "DENY");
    assert_eq!(field(&world.get("/d/none").await), "SAMEORIGIN");
    assert_eq!(field(&world.send(Request::post("/a.bin")).await), "DENY");
}

/// A script that is asked for before it is there would be missing for a year.
#[tokio::test]
async fn no_cache_is_told_to_keep_an_error() {
    let long = "Cache-Control: max-age=31536000, immutable";
    let rules = [
        format!("**: {long}"),
        "private/**: Cache-Control: No-Store".to_owned(),
    ];
    for not_found in [false, true] {
        let files: &[(&str, &[u8])] = &[("a.js", b"code"), ("404.html", b"none")];
        let world = World::with(files, |files| {
            let rules = rules.iter().map(|rule| rule.parse().expect("a rule"));
            let files = rules.fold(files, Files::header);
            match not_found {
                true => files.not_found_page("404.html"),
                false => files,
            }
        });
        let cache = |response: &Response<Bytes>| header(response, CACHE_CONTROL).to_owned();
        let script = world.get("/a.js").await;
        assert_eq!(cache(&script), "max-age=31536000, immutable");
        let missing = world.get("/b.js").await;
        assert_eq!((missing.status().as_u16(), &*cache(&missing)), (404, ""));
        let refused = world.send(Request::post("/a.js")).await;
        assert_eq!((refused.status().as_u16(), &*cache(&refused)), (405, ""));
        if !not_found {
            assert_eq!(cache(&world.get("/private/b").await), "No-Store");
        }
    }
}

/// A question of a browser before a request of a script.
fn question(origin: &str) -> Builder {
    let question = Request::options("/a").header(ORIGIN, origin);
    let question = question.header(ACCESS_CONTROL_REQUEST_METHOD, "GET");
    question.header(ACCESS_CONTROL_REQUEST_HEADERS, "range,x-own")
}

#[tokio::test]
async fn a_script_of_an_allowed_origin_reads_the_files() {
    let allowed = "https://app.example";
    let world = World::with(&[("a", b"content")], |files| {
        files.allow_origin(allowed.parse().expect("an origin"))
    });
    let get = |origin: &str| Request::get("/a").header(ORIGIN, origin);
    let response = world.send(get(allowed)).await;
    assert_eq!(header(&response, ACCESS_CONTROL_ALLOW_ORIGIN), allowed);
    assert!(header(&response, ACCESS_CONTROL_EXPOSE_HEADERS).contains("content-range"));
    for request in [
        get(allowed),
        get("https://evil.example"),
        Request::get("/a"),
    ] {
        let response = world.send(request).await;
        let vary = response.headers().get_all(VARY).iter();
        assert!(vary.into_iter().any(|field| field == "origin"));
    }
    for origin in ["https://evil.example", "null", "https://app.example.evil"] {
        let refused = world.send(get(origin)).await;
        assert_eq!(header(&refused, ACCESS_CONTROL_ALLOW_ORIGIN), "");
        let refused = world.send(question(origin)).await;
        assert_eq!(header(&refused, ACCESS_CONTROL_ALLOW_METHODS), "");
    }
    let granted = world.send(question(allowed)).await;
    assert_eq!(granted.status(), 204);
    assert_eq!(header(&granted, ACCESS_CONTROL_ALLOW_ORIGIN), allowed);
    assert_eq!(header(&granted, ACCESS_CONTROL_ALLOW_METHODS), "GET, HEAD");
    assert_eq!(
        header(&granted, ACCESS_CONTROL_ALLOW_HEADERS),
        "range,x-own"
    );
    assert_eq!(header(&granted, ACCESS_CONTROL_MAX_AGE), "7200");
}

#[tokio::test]
async fn every_origin_may_be_allowed() {
    let world = World::with(&[("a", b"content")], |files| {
        files.allow_origin("*".parse().expect("an origin"))
    });
    let response = world.get("/a").await;
    assert_eq!(header(&response, ACCESS_CONTROL_ALLOW_ORIGIN), "*");
    assert_eq!(header(&response, VARY), "accept-encoding");
    let granted = world.send(question("null")).await;
    assert_eq!(header(&granted, ACCESS_CONTROL_ALLOW_ORIGIN), "*");
    let closed = World::new(&[("a", b"content")]);
    let response = closed.send(question("https://app.example")).await;
    assert_eq!(header(&response, ACCESS_CONTROL_ALLOW_ORIGIN), "");
}
