//! Makes the service of a worker from the options.

use std::convert::Infallible;
use std::future::Future;
use std::os::unix::process::parent_id;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::service::Service;
use prefork_server::files::FileService;
use prefork_server::{Address, Body, BodyError, BoxError, Request, Worker};

use crate::access_log::{AccessLog, LoggedBody, Record};
use crate::cli::admin::browsable;
use crate::cli::{Admin, FileOptions, LogFormat, LogTarget, Options, Serve, Serving, is_option};
use crate::site::{Immediate, ResponseBody, Welcome, plain, unreadable};
use crate::verbs::{is_verb, similar_verb};

const WORKER_HEADER: HeaderName = HeaderName::from_static("x-prefork-worker");

/// The access log of this process. The master has none; a worker opens it when it starts.
pub(crate) type SharedLog = Arc<OnceLock<Arc<AccessLog>>>;

/// What every process knows before it is a master or a worker.
#[derive(Debug)]
pub(crate) struct Setup {
    serving: Serving,
    files: FileOptions,
    admin: Vec<Admin>,
    target: Option<LogTarget>,
    format: LogFormat,
    log: SharedLog,
}

/// The service of a worker.
#[derive(Clone)]
pub(crate) struct App(Rc<Shared>);

/// What all requests of a worker use.
struct Shared {
    content: Content,
    /// How long to wait before each response.
    delay: Duration,
    worker_header: Option<HeaderValue>,
    /// The path of `--health-path`.
    health: Option<(String, Worker)>,
    log: SharedLog,
}

/// What is served.
enum Content {
    Immediate(Immediate),
    /// The files of a directory.
    Files(FileService),
}

/// What is probably meant by a `DIR` that does not exist. `None` if nothing else is known.
fn meant_by(name: &str) -> Option<String> {
    if is_option(name) {
        return Some(format!("did you mean --{name}?"));
    }
    if is_verb(name) {
        return Some(format!("the verb {name} must come before all options"));
    }
    if let Some(verb) = similar_verb(name) {
        return Some(format!("did you mean the verb {verb}?"));
    }
    let is_address = name.parse::<Address>().is_ok();
    is_address.then(|| format!("did you mean --listen {name}?"))
}

impl Setup {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            serving: options.serving.clone(),
            files: options.files.clone(),
            admin: options.processes.admin.clone(),
            target: options.logs.access_log.clone(),
            format: options.logs.log_format,
            log: SharedLog::default(),
        }
    }

    pub(crate) fn log(&self) -> SharedLog {
        Arc::clone(&self.log)
    }

    /// Checks that the content can be served.
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        let Serve::Files(directory) = self.serving.serve() else {
            return Ok(());
        };
        let missing = directory.to_str().filter(|_| !directory.exists());
        if let Some((name, meant)) = missing.and_then(|name| Some((name, meant_by(name)?))) {
            return Err(format!("no directory {name}: {meant}").into());
        }
        self.files.of(directory).open()?;
        Ok(())
    }

    /// The service of this worker.
    pub(crate) fn app(self, worker: &Worker) -> Result<App, BoxError> {
        let info = worker.info();
        if let Some(target) = self.target {
            let log = AccessLog::open(target, self.format, info)?;
            self.log.set(log).expect("a worker is started once");
        }
        let content = match self.serving.serve() {
            Serve::Welcome => Content::Immediate(Immediate::Welcome(Welcome::new(
                &info,
                parent_id(),
                browsable(&self.admin),
            ))),
            // Never freed, so that no response counts references to it.
            Serve::Respond(text) => Content::Immediate(Immediate::Respond(Bytes::from_static(
                Vec::leak(text.into()),
            ))),
            Serve::Echo => Content::Immediate(Immediate::Echo),
            Serve::Files(directory) => Content::Files(self.files.of(directory).open()?),
        };
        let worker_header = self.serving.worker_header.then(|| {
            let (slot, generation, pid) = (info.slot, info.generation, info.pid);
            HeaderValue::try_from(format!("slot={slot} generation={generation} pid={pid}"))
                .expect("letters and digits make a header value")
        });
        Ok(App(Rc::new(Shared {
            content,
            delay: self.serving.delay,
            worker_header,
            health: self.serving.health_path.map(|path| (path, worker.clone())),
            log: self.log,
        })))
    }
}

/// A response that may be ready at once. It is moved several times before it is polled, so it is
/// small, and only a response that has to wait allocates.
pub(crate) enum MaybeReady<R> {
    Now(Option<R>),
    Later(Pin<Box<dyn Future<Output = R>>>),
}

impl<R: Unpin> Future for MaybeReady<R> {
    type Output = Result<R, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(response) => {
                let response = response.take();
                Poll::Ready(Ok(response.expect("a future is not polled after its end")))
            }
            Self::Later(response) => response.as_mut().poll(cx).map(Ok),
        }
    }
}

type AppResponse = Response<LoggedBody<ResponseBody<PeekedBody>>>;

/// The body of a request, whose first frame may already be read.
pub(crate) struct PeekedBody {
    // Boxed: a response is moved several times, and few have a body of this kind.
    first: Option<Box<Frame<Bytes>>>,
    rest: Body,
}

/// A body of which nothing is read.
impl From<Body> for PeekedBody {
    fn from(rest: Body) -> Self {
        Self { first: None, rest }
    }
}

impl PeekedBody {
    /// Waits for the first frame. If the body is too large, the response can still have a status of
    /// its own.
    async fn read(mut rest: Body) -> Result<Self, BodyError> {
        let first = rest.frame().await.transpose()?.map(Box::new);
        Ok(Self { first, rest })
    }
}

impl http_body::Body for PeekedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(*first))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_deref().and_then(Frame::data_ref);
        let first = first.map_or(0, Bytes::len) as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(first + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(first + upper);
        }
        hint
    }
}

impl Service<Request> for App {
    type Response = AppResponse;
    type Error = Infallible;
    type Future = MaybeReady<AppResponse>;

    fn call(&self, request: Request) -> MaybeReady<AppResponse> {
        let Self(shared) = self;
        if let Some((path, worker)) = &shared.health
            && request.uri().path() == path
        {
            let status = match worker.is_stopping() {
                true => StatusCode::SERVICE_UNAVAILABLE,
                false => StatusCode::OK,
            };
            let response = plain(status, request.method());
            return MaybeReady::Now(Some(shared.finish(response, None)));
        }
        let log = shared.log.get();
        let record = log.map(|log| log.begin(request.body().connection(), &request));
        if !shared.delay.is_zero() {
            return MaybeReady::Later(Rc::clone(shared).respond_after_delay(request, record));
        }
        // Not by `respond`, which would move the response once more.
        if let Content::Immediate(content) = &shared.content
            && !shared.reads(&request)
        {
            let response = content.respond(request);
            return MaybeReady::Now(Some(shared.finish(response, record)));
        }
        match shared.respond(request) {
            MaybeReady::Now(response) => {
                let response = response.expect("it is new");
                MaybeReady::Now(Some(shared.finish(response, record)))
            }
            MaybeReady::Later(response) => {
                let shared = Rc::clone(shared);
                let finished = async move { shared.finish(response.await, record) };
                MaybeReady::Later(Box::pin(finished))
            }
        }
    }
}

impl Shared {
    /// Whether the response begins with the body of the request.
    fn reads(&self, request: &Request) -> bool {
        matches!(self.content, Content::Immediate(Immediate::Echo))
            && !request.body().is_end_stream()
    }

    fn respond(&self, request: Request) -> MaybeReady<Response<ResponseBody<PeekedBody>>> {
        match &self.content {
            Content::Files(files) => {
                let mut response = files.call(request);
                match response.now() {
                    Some(response) => MaybeReady::Now(Some(response.map(ResponseBody::File))),
                    None => MaybeReady::Later(Box::pin(async move {
                        let Ok(response) = response.await;
                        response.map(ResponseBody::File)
                    })),
                }
            }
            Content::Immediate(_) if self.reads(&request) => {
                MaybeReady::Later(Box::pin(echo(request)))
            }
            Content::Immediate(content) => MaybeReady::Now(Some(content.respond(request))),
        }
    }

    /// The event loop serves other requests meanwhile, as if there were a backend.
    fn respond_after_delay(
        self: Rc<Self>,
        request: Request,
        record: Option<Box<Record>>,
    ) -> Pin<Box<dyn Future<Output = AppResponse>>> {
        // The future has one copy of the request, which is large.
        let request = Box::new(request);
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            let response = match self.respond(*request) {
                MaybeReady::Now(response) => response.expect("it is new"),
                MaybeReady::Later(response) => response.await,
            };
            self.finish(response, record)
        })
    }

    /// Adds what every response has: the header that names the worker, and its line in the log.
    fn finish(
        &self,
        mut response: Response<ResponseBody<PeekedBody>>,
        record: Option<Box<Record>>,
    ) -> AppResponse {
        if let Some(value) = &self.worker_header {
            response.headers_mut().insert(WORKER_HEADER, value.clone());
        }
        LoggedBody::wrap(response, record)
    }
}

/// Waits for the first frame of the body, so that a body that is too large still gets a status.
async fn echo(request: Request) -> Response<ResponseBody<PeekedBody>> {
    let (head, body) = request.into_parts();
    match PeekedBody::read(body).await {
        Ok(body) => Immediate::Echo.respond(http::Request::from_parts(head, body)),
        Err(error) => unreadable(&error),
    }
}
