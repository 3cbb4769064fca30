//! A server for the tests of an app.

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};

use tracing::dispatcher;

use super::Prefork;
use crate::address::Address;
use crate::error::{BoxError, Error};
use crate::handle::Handle;
use crate::http::IntoService;
use crate::policy::Stop;
use crate::worker::Worker;

/// A server for a test of an app: in this process, on a thread of its own, on a free port of
/// 127.0.0.1. It ends when it is dropped.
///
/// Any number of them can run at once. A test needs no runtime, and may have one:
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
///
/// use prefork_server::{BoxError, Request, Response, TestServer, Worker, handler};
/// use hyper::service::Service;
///
/// // The app, as `main` gives it to `serve`.
/// async fn app(
///     worker: Worker,
/// ) -> Result<impl Service<Request, Response = Response, Error = BoxError>, BoxError> {
///     let slot = worker.slot();
///     Ok(handler(move |_request| async move {
///         Ok(Response::new(format!("slot {slot}").into()))
///     }))
/// }
///
/// # fn main() -> Result<(), BoxError> {
/// let server = TestServer::start(app)?;
/// // With an HTTP client: `client.get(server.url()).send()`.
/// let mut client = TcpStream::connect(server.address())?;
/// client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
/// let mut response = String::new();
/// client.read_to_string(&mut response)?;
/// assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("slot 0"));
/// # Ok(())
/// # }
/// ```
///
/// It is one worker without a master, as with [`in_process`](Prefork::in_process). Use `in_process`
/// where the program itself is to serve without workers, in a debugger for example: it blocks the
/// thread that calls `serve`, and something else has to stop it. The guide says how to [test with
/// real workers](crate::guide::testing).
///
/// Events of the server go to the `tracing` subscriber of the thread that starts it.
#[derive(Debug)]
#[must_use = "the server ends when it is dropped"]
pub struct TestServer {
    handle: Handle,
    address: SocketAddr,
    url: String,
    /// `None` once it was joined.
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl TestServer {
    /// Starts a server with this app and the default settings. It accepts connections when this
    /// returns.
    ///
    /// The thread of the test waits until the app has returned its service. If the app waits for
    /// something that runs on the same thread, such as a mock on the runtime of `#[tokio::test]`,
    /// start it by `tokio::task::spawn_blocking`.
    ///
    /// # Errors
    /// As [`Prefork::serve`] in process: the app has returned an error, or no port is free.
    ///
    /// # Panics
    /// The app has panicked.
    pub fn start<A, S, Kind>(app: A) -> Result<Self, Error>
    where
        A: AsyncFnOnce(Worker) -> Result<S, BoxError> + Send + 'static,
        S: IntoService<Kind>,
    {
        Self::start_with(|server| server.serve(app))
    }

    /// As [`start`](Self::start), with settings and with [`serve`](Prefork::serve) or
    /// [`run`](Prefork::run). `serve` gets a server that is bound to a free port and runs in
    /// process. So a program whose settings are in a function tests them too:
    ///
    /// ```no_run
    /// use prefork_server::{Error, Exit, Http, Prefork, Response, TestServer, handler};
    ///
    /// fn serve(server: Prefork) -> Result<(), Error> {
    ///     let http = Http::new().max_body_size(1024);
    ///     let app = async |_worker| Ok(handler(async |_request| Ok(Response::default())));
    ///     server.http(http).serve(app)
    /// }
    ///
    /// fn main() -> Exit {
    ///     serve(Prefork::bind("0.0.0.0:8080")).into()
    /// }
    ///
    /// // In a test:
    /// # fn test() -> Result<(), Error> {
    /// let server = TestServer::start_with(serve)?;
    /// # Ok(()) }
    /// ```
    ///
    /// If the function returns another error:
    /// `TestServer::start_with(|server| serve(server).map_err(Error::App))`.
    ///
    /// # Errors
    /// What `serve` has returned, or [`Error::Config`] if it has ended before it accepted
    /// connections.
    ///
    /// # Panics
    /// `serve` has panicked.
    pub fn start_with<F>(serve: F) -> Result<Self, Error>
    where
        F: FnOnce(Prefork) -> Result<(), Error> + Send + 'static,
    {
        let pair = Handle::pair().map_err(|error| Error::system("socketpair(2)", error))?;
        let handle = pair.0.clone();
        let subscriber = dispatcher::get_default(Clone::clone);
        let run = move || {
            let _ended = pair.0.end_guard();
            let mut server = Prefork::bind("127.0.0.1:0").in_process();
            server.handle = Some(pair);
            dispatcher::with_default(&subscriber, || serve(server))
        };
        let thread = thread::Builder::new().name("test server".into()).spawn(run);
        let thread = thread.map_err(|error| Error::system("clone(2)", error))?;
        let addresses = handle.wait_serving();
        let Some([Address::Tcp(address), ..]) = addresses.as_deref() else {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            return Err(Error::Config("the server ended before it served".into()));
        };
        Ok(Self {
            handle,
            address: *address,
            url: format!("http://{address}"),
            thread: Some(thread),
        })
    }

    /// The address of the server: 127.0.0.1 and the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the server without a path: `http://127.0.0.1:PORT`. With TLS it is
    /// `https://localhost:PORT` instead, or another name of the certificate.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A handle on the server, for [`Handle::stop`] for example.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Drains the server: open requests are finished, and [`Worker::drain`] resolves. Blocks until
    /// it has ended, at most for [`Prefork::drain_timeout`].
    ///
    /// # Errors
    /// What `serve` has returned.
    ///
    /// # Panics
    /// The thread of the server has panicked.
    pub fn stop(mut self) -> Result<(), Error> {
        let ended = self.end(Stop::Drain);
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn end(&mut self, stop: Stop) -> thread::Result<Result<(), Error>> {
        let Some(thread) = self.thread.take() else {
            return Ok(Ok(()));
        };
        // It fails if the server has ended by itself.
        let _ = self.handle.stop(stop);
        thread.join()
    }
}

/// Cuts what is open, and waits until the server has ended. Panics if the server has panicked or
/// failed, unless the test panics already.
impl Drop for TestServer {
    fn drop(&mut self) {
        match self.end(Stop::Now) {
            Ok(Ok(())) => {}
            _ if thread::panicking() => {}
            Ok(Err(error)) => panic!("the server failed: {error:?}"),
            Err(panic) => resume_unwind(panic),
        }
    }
}
