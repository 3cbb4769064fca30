//! An app with its tests. `cargo run --example testing`, `cargo test --example testing`

use prefork_server::{Error, Exit, Http, Prefork, Response, handler};

/// What `main` and the tests have in common: the settings and the app.
fn serve(server: Prefork) -> Result<(), Error> {
    let http = Http::new().max_body_size(1024);
    server.http(http).serve(async |_worker| {
        Ok(handler(async |request| {
            let text = format!("You asked for {}\n", request.uri().path());
            Ok(Response::new(text.into()))
        }))
    })
}

fn main() -> Exit {
    serve(Prefork::bind("127.0.0.1:8080")).into()
}

#[cfg(test)]
mod tests {
    use std::io::{Write, read_to_string};

    use prefork_server::{BoxError, TestServer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::serve;

    const REQUEST: &str = "GET /tea HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";

    #[test]
    fn it_says_what_was_asked_for() -> Result<(), BoxError> {
        let server = TestServer::start_with(serve)?;
        let mut client = std::net::TcpStream::connect(server.address())?;
        client.write_all(REQUEST.as_bytes())?;
        let response = read_to_string(client)?;
        assert!(response.ends_with("\r\n\r\nYou asked for /tea\n"));
        Ok(())
    }

    #[tokio::test]
    async fn it_refuses_a_large_body() -> Result<(), BoxError> {
        let server = TestServer::start_with(serve)?;
        let mut client = TcpStream::connect(server.address()).await?;
        let head = REQUEST.replace("GET", "PUT").replace("\r\n\r\n", "");
        let head = head + "\r\ncontent-length: 1025\r\n\r\n";
        client.write_all(head.as_bytes()).await?;
        let mut response = String::new();
        client.read_to_string(&mut response).await?;
        assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
        Ok(())
    }
}
