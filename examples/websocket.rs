//! WebSockets that close when their worker drains. `cargo run --example websocket`
//!
//! Open <http://127.0.0.1:8080/> and send a line: the server echoes it. Then `kill -HUP` the
//! master: the server closes the socket (close code 1001), and the page connects to a new worker.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Html;
use axum::routing::get;
use prefork_server::{Exit, Http, Prefork, Worker};

const PAGE: &str = r#"<!doctype html>
<title>Echo</title>
<form><input autofocus> <button>Say</button></form>
<pre></pre>
<script>
  const [form, log] = [document.forms[0], document.querySelector("pre")];
  const tell = (line) => log.append(line + "\n");
  let socket;
  const connect = () => {
    socket = new WebSocket("ws://" + location.host + "/ws");
    socket.onopen = () => tell("connected");
    socket.onmessage = (message) => tell("> " + message.data);
    socket.onclose = (end) => { tell("closed: " + end.code); setTimeout(connect, 1000); };
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    socket.send(form[0].value);
    form.reset();
  };
  connect();
</script>
"#;

/// Echoes every message until the client closes the connection or the worker drains.
async fn echo(mut socket: WebSocket, drain: impl Future<Output = ()>) {
    let mut drain = pin!(drain);
    loop {
        let message = tokio::select! {
            () = &mut drain => break,
            message = socket.recv() => message,
        };
        match message {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
            // axum has answered pings and close frames already.
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
    let close = CloseFrame {
        code: close_code::AWAY,
        reason: "this worker leaves".into(),
    };
    if socket.send(Message::Close(Some(close))).await.is_ok() {
        // Waits for the client's close frame, until the upgrade grace ends.
        while let Some(Ok(_)) = socket.recv().await {}
    }
}

fn main() -> Exit {
    Prefork::bind("127.0.0.1:8080")
        .http(Http::new().upgrade_grace(Duration::from_secs(5)))
        .serve(async |worker: Worker| {
            let echo = async move |upgrade: WebSocketUpgrade| {
                let drain = worker.drain();
                upgrade.on_upgrade(move |socket| echo(socket, drain))
            };
            Ok(Router::new()
                .route("/", get(async || Html(PAGE)))
                .route("/ws", get(echo)))
        })
        .into()
}
