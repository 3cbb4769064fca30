//! Ids of requests: each response has one, and the report of a refused request has the same.

use std::sync::Mutex;

use super::*;

/// Responds with the id that the handler sees.
async fn id(request: Request) -> HandlerResult {
    let id = request.headers().get("x-request-id").expect("an id");
    Ok(text(id.to_str().expect("text").to_owned()))
}

/// The value of the field with the id, and of what follows the head.
fn parts(response: &str) -> (String, String) {
    let (head, body) = response.split_once("\r\n\r\n").expect("a whole head");
    let ids: Vec<_> = head
        .lines()
        .filter_map(|line| line.strip_prefix("x-request-id: "))
        .collect();
    let [id] = ids[..] else {
        panic!("not one id: {response}")
    };
    (id.to_owned(), body.to_owned())
}

#[test]
fn the_handler_and_the_client_see_the_same_id() {
    run_each_kind(async || {
        let host = Host::start(options().request_ids(true), id).await;
        // The first of each pair is plain. hyper serves the other one.
        for method in ["GET", "DELETE"] {
            for (field, sent) in [("x-request-id: tea-1\r\n", Some("tea-1")), ("", None)] {
                let mut client = host.connect().await;
                client
                    .send(format!(
                        "{method} / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{field}\r\n"
                    ))
                    .await;
                let (told, seen) = parts(&client.rest().await);
                assert_eq!(told, seen, "{method}");
                assert!(sent.is_none_or(|sent| sent == told), "{method}: {told}");
            }
        }
    });
}

#[test]
fn each_request_of_a_connection_has_an_id_of_its_own() {
    run_each_kind(async || {
        let host = Host::start(options().request_ids(true), id).await;
        let mut client = host.connect().await;
        client.send(HELLO.repeat(3)).await;
        client
            .send("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
            .await;
        let all = client.rest().await;
        let ids: std::collections::BTreeSet<_> = all
            .lines()
            .filter(|line| line.starts_with("x-request-id"))
            .collect();
        assert_eq!(ids.len(), 4, "{all}");
    });
}

/// A request that hyper serves.
const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";

#[test]
fn the_report_of_a_refused_request_has_the_id_that_the_client_was_sent() {
    run_each_kind(async || {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&reports);
        let http = options()
            .request_ids(true)
            .header_timeout(SHORT)
            .idle_timeout(SHORT)
            .max_target_size(100)
            .max_header_size(1024)
            .max_body_size(10)
            .on_refused(move |refused| {
                let id = refused.request_id.expect("an id").to_str().expect("text");
                told.lock().expect("no panic").push(id.to_owned());
            });
        let host = Host::start(http, id).await;
        let (long, longer) = ("t".repeat(200), "f".repeat(20_000));
        for (request, status) in [
            ("no head\r\n\r\n".to_owned(), "400"),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
            ("GET / HTTP/1.1\r\nho".to_owned(), "408"),
            (
                "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\n".to_owned(),
                "413",
            ),
            (format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n"), "414"),
            (format!("GET /{longer} HTTP/1.1\r\nhost: a\r\n\r\n"), "414"),
            (
                format!("GET / HTTP/1.1\r\nhost: a\r\nf: {longer}\r\n\r\n"),
                "431",
            ),
        ] {
            // A response before it is held back with it, and keeps its own id.
            for before in [&b""[..], HELLO, CHUNKED] {
                let mut client = host.connect().await;
                client.send([before, request.as_bytes()].concat()).await;
                let responses = client.rest().await;
                let last = responses.rfind("HTTP/1.1 ").expect("a response");
                assert_eq!(responses[last..][9..12], *status, "{responses}");
                let (id, body) = parts(&responses[last..]);
                assert_eq!(body, "");
                let report = reports.lock().expect("no panic").pop();
                assert_eq!(report, Some(id), "{responses}");
                if !before.is_empty() {
                    let (id, body) = parts(&responses[..last]);
                    assert_eq!(id, body);
                }
            }
        }
        assert_eq!(reports.lock().expect("no panic").len(), 0);
    });
}

#[test]
fn without_the_option_there_is_no_id() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.hello().await;
    });
}
