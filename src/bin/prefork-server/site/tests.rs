use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use prefork_server::{BoxError, Generation, Slot, WorkerInfo};

use super::*;
use crate::cli::Admin;
use crate::cli::admin::browsable;

/// One request to a site, and what came back as a whole.
async fn ask(site: &Immediate, method: Method, path: &str) -> Response<Bytes> {
    send(site, Request::builder().method(method).uri(path)).await
}

async fn send(site: &Immediate, request: http::request::Builder) -> Response<Bytes> {
    collect(site.respond(request.body(Full::default()).unwrap())).await
}

async fn collect(response: Response<ResponseBody<Full<Bytes>>>) -> Response<Bytes> {
    let (head, body) = response.into_parts();
    let content = body.collect().await.unwrap();
    Response::from_parts(head, content.to_bytes())
}

fn header<T>(response: &Response<T>, name: impl http::header::AsHeaderName) -> &str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

fn welcome() -> Immediate {
    let worker = WorkerInfo::new(Slot(3), Generation(7), 4242);
    Immediate::Welcome(Welcome::new(&worker, 4001, None))
}

fn hello() -> Immediate {
    Immediate::Respond(Bytes::from_static(b"hello"))
}

#[tokio::test]
async fn the_welcome_page_says_who_answered() {
    let response = ask(&welcome(), Method::GET, "/").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, CONTENT_TYPE), "text/html; charset=utf-8");
    assert_eq!(header(&response, CACHE_CONTROL), "no-store");
    assert!(header(&response, CONTENT_SECURITY_POLICY).contains("default-src 'none'"));
    let page = std::str::from_utf8(response.body()).unwrap();
    for told in [
        "<dt>slot</dt><dd>3</dd>",
        "<dt>generation</dt><dd>7</dd>",
        "<dt>worker pid</dt><dd>4242</dd>",
        "<dt>master pid</dt><dd>4001</dd>",
        "kill -HUP 4001",
        "--admin 127.0.0.1:9090",
    ] {
        assert!(page.contains(told), "{told}");
    }
    for placeholder in ["{slot}", "{generation}", "{pid}", "{master}", "{live}"] {
        assert!(!page.contains(placeholder), "{placeholder}");
    }
}

#[tokio::test]
async fn the_welcome_page_links_to_an_admin_address_that_a_browser_can_open() {
    let worker = WorkerInfo::new(Slot(3), Generation(7), 4242);
    for (admin, link) in [
        (
            "127.0.0.1:9180",
            Some("<a href=\"http://127.0.0.1:9180/\">"),
        ),
        ("[::1]:9180", Some("<a href=\"http://[::1]:9180/\">")),
        ("127.0.0.1:0", None),
        ("0.0.0.0:9180", None),
        ("unix:/run/admin", None),
    ] {
        let admin = browsable(&[Admin::Auto, Admin::At(admin.parse().unwrap())]);
        let site = Immediate::Welcome(Welcome::new(&worker, 4001, admin));
        let response = ask(&site, Method::GET, "/").await;
        let page = std::str::from_utf8(response.body()).unwrap();
        let found = page.find("<a href=").map(|at| &page[at..]);
        match link {
            Some(link) => assert!(found.unwrap().starts_with(link), "{page}"),
            None => assert_eq!(found, None, "{admin:?}"),
        }
    }
}

#[tokio::test]
async fn the_welcome_page_is_only_read_and_only_at_the_root() {
    assert_eq!(
        ask(&welcome(), Method::GET, "/a").await.status(),
        StatusCode::NOT_FOUND
    );
    let response = ask(&welcome(), Method::POST, "/").await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(header(&response, ALLOW), "GET, HEAD");
}

#[tokio::test]
async fn head_is_told_the_length_and_sent_no_body() {
    for site in [welcome(), hello()] {
        let whole = ask(&site, Method::GET, "/").await;
        let head = ask(&site, Method::HEAD, "/").await;
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(
            header(&head, CONTENT_LENGTH),
            whole.body().len().to_string()
        );
        assert_eq!(header(&head, CONTENT_TYPE), header(&whole, CONTENT_TYPE));
        assert!(head.body().is_empty());
    }
}

#[tokio::test]
async fn every_request_gets_the_text() {
    for (method, path) in [
        (Method::GET, "/"),
        (Method::DELETE, "/any/../where"),
        (Method::PUT, "*"),
    ] {
        let response = ask(&hello(), method, path).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header(&response, CONTENT_TYPE), "text/plain; charset=utf-8");
        assert_eq!(response.body(), "hello");
    }
}

#[tokio::test]
async fn no_site_is_a_tunnel() {
    for site in [welcome(), hello(), Immediate::Echo] {
        let response = ask(&site, Method::CONNECT, "host.example:443").await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert!(header(&response, ALLOW).starts_with("GET, HEAD"));
        assert_eq!(response.body(), "Method Not Allowed");
    }
}

#[tokio::test]
async fn the_text_s_headers_are_not_the_request_s() {
    let request = Request::builder()
        .header("cookie", "secret")
        .header(CONTENT_TYPE, "a/b");
    let response = send(&hello(), request).await;
    assert_eq!(response.headers().len(), 1);
    assert_eq!(header(&response, CONTENT_TYPE), "text/plain; charset=utf-8");
}

fn post(body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::post("/")
        .header(CONTENT_TYPE, "image/x-own")
        .header("cookie", "c");
    request.body(Full::from(body)).unwrap()
}

#[tokio::test]
async fn an_echo_returns_the_body_and_its_type_and_nothing_else() {
    let site = Immediate::Echo;
    let response = collect(site.respond(post("to and fro"))).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, CONTENT_TYPE), "image/x-own");
    assert_eq!(header(&response, X_CONTENT_TYPE_OPTIONS), "nosniff");
    assert_eq!(response.headers().len(), 2);
    assert_eq!(response.body(), "to and fro");
}

#[tokio::test]
async fn an_echo_tells_the_length_it_was_told() {
    let response: Response<ResponseBody<Full<Bytes>>> = Immediate::Echo.respond(post("12345"));
    assert_eq!(response.body().size_hint().exact(), Some(5));
}

/// Its body stays open: an echo that waited for its end would never respond.
#[tokio::test]
async fn an_echo_does_not_wait_for_the_end() {
    let piece = || Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"more")));
    let endless = StreamBody::new(stream::repeat_with(piece));
    let request = Request::post("/").body(endless).unwrap();
    let response: Response<ResponseBody<StreamBody<_>>> = Immediate::Echo.respond(request);
    let mut body = response.into_body();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(Bytes::from(frame.into_data().unwrap()), "more");
}

#[tokio::test]
async fn an_echo_to_head_is_empty() {
    let mut request = post("to and fro");
    *request.method_mut() = Method::HEAD;
    let response = collect(Immediate::Echo.respond(request)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.body().is_empty());
}
