//! The files as a tower service.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};

use super::body::FileBody;
use super::service::{FileService, FilesFuture};
use crate::http::Piece;

/// A [`FileService`] for a router of axum, and for everything else that takes tower services. The
/// cache is that of the `FileService`. Files are read, and do not leave by sendfile(2): routers
/// take bytes only.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use prefork_server::files::Files;
/// use prefork_server::{Exit, Prefork};
///
/// fn main() -> Exit {
///     Prefork::bind("127.0.0.1:8080")
///         .serve(async |_worker| {
///             let files = Files::new("./public").open()?;
///             let router = Router::new().route("/api", get(async || "hello"));
///             Ok(router.fallback_service(files.into_tower()))
///         })
///         .into()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct TowerFiles(FileService);

impl FileService {
    /// The same service for routers.
    #[must_use]
    pub fn into_tower(self) -> TowerFiles {
        TowerFiles(self)
    }
}

impl<B> tower_service::Service<Request<B>> for TowerFiles {
    type Response = Response<FileBytes>;
    type Error = Infallible;
    type Future = TowerFilesFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> TowerFilesFuture {
        let (head, _body) = request.into_parts();
        TowerFilesFuture(self.0.respond(head, None))
    }
}

/// The response of a [`TowerFiles`].
#[derive(Debug)]
pub struct TowerFilesFuture(FilesFuture);

impl Future for TowerFilesFuture {
    type Output = Result<Response<FileBytes>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.0).poll(cx);
        polled.map_ok(|response| response.map(FileBytes))
    }
}

/// A [`FileBody`] as bytes, which layers may keep. Those of a file of more than 64 KiB are copied.
#[derive(Debug, Default)]
pub struct FileBytes(FileBody);

impl Body for FileBytes {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        // A file is read on when the piece before is dropped. A layer that compresses drops it when
        // it has the next one, and one that collects the body never.
        let is_lent = self.0.is_lent();
        let polled = Pin::new(&mut self.0).poll_frame(cx);
        let bytes = |piece: Piece| match Bytes::from(piece) {
            piece if is_lent => Bytes::copy_from_slice(&piece),
            piece => piece,
        };
        polled.map_ok(|frame| frame.map_data(bytes))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;
    use tokio::time::timeout;
    use tower_service::Service;

    use super::*;
    use crate::files::Files;

    #[tokio::test]
    async fn a_layer_may_keep_all_pieces() {
        let root = tempfile::tempdir().expect("a directory");
        let content = vec![b'a'; 200_000];
        std::fs::write(root.path().join("long"), &content).expect("space");
        let files = Files::new(root.path()).open().expect("a directory");
        let request = Request::get("/long").body(()).expect("a request");
        let Ok(response) = files.into_tower().call(request).await;
        let collected = timeout(Duration::from_secs(20), response.into_body().collect());
        let collected = collected.await.expect("each piece comes");
        assert!(collected.expect("a whole body").to_bytes() == content);
    }
}
