//! The service that a program gives to `serve`.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Response, StatusCode};
use hyper::service::Service;
use tokio::task::{JoinHandle, spawn_blocking};

use super::beneath::Reach;
use super::body::FileBody;
use super::budget::Budget;
use super::lookup::Lookup;
use super::options::Files;
use super::respond;
use crate::http::Request;
use crate::id::ConnectionId;

/// The service of [`Files::open`]: a `hyper::service::Service` for
/// [`serve`](crate::Prefork::serve). A clone shares the cache.
///
/// It responds to GET and HEAD with a file, to OPTIONS with the methods, and to other methods with
/// 405. It never fails: errors are responses with their status, and the log has those that are the
/// server's.
#[derive(Clone, Debug)]
pub struct FileService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lookup: Lookup,
    budget: Budget,
}

impl FileService {
    pub(super) fn new(options: Files) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            lookup: Lookup::new(options)?,
            budget: Budget::default(),
        })))
    }

    #[cfg(test)]
    pub(super) fn cached_bytes(&self) -> u64 {
        self.0.lookup.cached_bytes()
    }

    /// As if all that is known were known for a second.
    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.0.lookup.expire();
    }

    #[cfg(test)]
    pub(super) fn has_permit(&self, connection: ConnectionId) -> bool {
        self.0.budget.try_permit(Some(connection)).is_some()
    }

    /// The response to a request. What may wait for a disk is done on a thread of the blocking
    /// pool.
    pub(super) fn respond(&self, mut head: Parts, connection: Option<ConnectionId>) -> FilesFuture {
        let Inner { lookup, budget } = &*self.0;
        let mut permit = || {
            let permit = budget.try_permit(connection);
            permit.ok_or_else(|| io::ErrorKind::WouldBlock.into())
        };
        match lookup.respond(&mut head, Reach::Memory, &mut permit) {
            Ok(response) => FilesFuture(State::Ready(Some(response))),
            Err(_) => {
                let response = Arc::clone(&self.0).respond_later(Box::new(head), connection);
                FilesFuture(State::Waiting(Box::pin(response)))
            }
        }
    }
}

impl Inner {
    async fn respond_later(
        self: Arc<Self>,
        mut head: Box<Parts>,
        connection: Option<ConnectionId>,
    ) -> Response<FileBody> {
        let permit = self.budget.permit(connection).await;
        let method = head.method.clone();
        let found = on_a_thread(move || {
            let mut permit = || Ok(permit.clone());
            self.lookup.respond(&mut head, Reach::Disk, &mut permit)
        });
        let found = match found {
            Ok(found) => found.await.map_err(io::Error::from),
            Err(error) => {
                tracing::error!(%error, "cannot read a file");
                return respond::unavailable(&method);
            }
        };
        found.and_then(|found| found).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read a file");
            let mut response = Response::new(FileBody::default());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        })
    }
}

/// Fails if there is no thread for the work and the system allows no new one: tokio panics then.
pub(super) fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    catch_unwind(AssertUnwindSafe(|| spawn_blocking(work))).map_err(|_| {
        io::Error::other("a limit on threads is reached (ulimit -u, LimitNPROC=, TasksMax=)")
    })
}

/// The response of a [`FileService`], which is ready at once if nothing has to be read from a disk.
pub struct FilesFuture(State);

enum State {
    Ready(Option<Response<FileBody>>),
    Waiting(Pin<Box<dyn Future<Output = Response<FileBody>> + Send>>),
}

impl FilesFuture {
    /// The response, if it is ready at once.
    pub fn now(&mut self) -> Option<Response<FileBody>> {
        match &mut self.0 {
            State::Ready(response) => response.take(),
            State::Waiting(_) => None,
        }
    }
}

impl Future for FilesFuture {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            State::Ready(response) => {
                let response = response.take();
                Poll::Ready(Ok(response.expect("a future is not polled after its end")))
            }
            State::Waiting(response) => response.as_mut().poll(cx).map(Ok),
        }
    }
}

impl fmt::Debug for FilesFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesFuture").finish_non_exhaustive()
    }
}

impl Service<Request> for FileService {
    type Response = Response<FileBody>;
    type Error = Infallible;
    type Future = FilesFuture;

    fn call(&self, request: Request) -> FilesFuture {
        let (head, body) = request.into_parts();
        self.respond(head, Some(body.connection_id()))
    }
}
