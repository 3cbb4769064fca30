//! The app: it responds with what it was asked, and says which generation served.

use axum::Router;
use axum::body::to_bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Html;
use axum::routing::get;
use http::HeaderName;
use http::header::CONTENT_TYPE;
use hyper::body::{Body, Bytes};
use prefork_server::{BoxError, ConnectionInfo, Error, Worker};
use serde_json::json;
use std::pin::pin;

use crate::apps;

const SCRIPT: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "text/javascript")];

/// With TLS if the environment names the folder of its files.
pub(crate) fn app() -> Result<(), Error> {
    let mut server = apps::server();
    if std::env::var_os(apps::FILES).is_some() {
        server = server.tls(apps::tls());
    }
    server.serve(async |worker: Worker| {
        let routes = Router::new()
            .route("/page", get(Html(include_str!("page.html"))))
            .route("/case.mjs", get((SCRIPT, include_str!("case.mjs"))))
            .route("/websocket", get(upgrade))
            .fallback(echo);
        Ok(routes.with_state(worker))
    })
}

/// One line about the request, and then its body: `POST /post/7 length=1048576 HTTP/1.1 3
/// 127.0.0.1:50000`. The last two are the generation and the client's end of the connection.
async fn echo(
    State(worker): State<Worker>,
    ConnectInfo(connection): ConnectInfo<ConnectionInfo>,
    request: Request,
) -> Vec<u8> {
    let length = request.headers().get(http::header::CONTENT_LENGTH);
    let framing = match length {
        Some(length) => format!("length={}", length.to_str().unwrap_or("?")),
        None if request.body().is_end_stream() => "empty".into(),
        None => "stream".into(),
    };
    let line = format!(
        "{} {} {framing} {:?} {} {}\n",
        request.method(),
        request.uri().path(),
        request.version(),
        worker.generation(),
        connection.peer,
    );
    let body = to_bytes(request.into_body(), usize::MAX).await;
    // A body that broke off is not what the client sent, so the client reports it.
    let body = body.unwrap_or_else(|error| Bytes::from(format!("no body: {error}")));
    served(&worker);
    [line.as_bytes(), &body].concat()
}

/// Paces the reloads.
fn served(worker: &Worker) {
    println!(
        "{}",
        json!({ "notice": "served", "generation": worker.generation().0 })
    );
}

async fn upgrade(
    State(worker): State<Worker>,
    upgrade: WebSocketUpgrade,
) -> axum::response::Response {
    upgrade.on_upgrade(async move |socket| {
        // The client is gone; it reports what it missed.
        let _ = echo_messages(socket, worker).await;
    })
}

/// Sends the generation, and then each message back, until the drain.
async fn echo_messages(mut socket: WebSocket, worker: Worker) -> Result<(), BoxError> {
    let mut drain = pin!(worker.drain());
    let generation = worker.generation().to_string();
    socket.send(Message::Text(generation.into())).await?;
    loop {
        let message = tokio::select! {
            () = &mut drain => break,
            message = socket.recv() => message,
        };
        match message {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                socket.send(message).await?;
                served(&worker);
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Ok(()),
        }
    }
    let close = CloseFrame {
        code: close_code::AWAY,
        reason: "".into(),
    };
    socket.send(Message::Close(Some(close))).await?;
    while let Some(Ok(_)) = socket.recv().await {}
    Ok(())
}
