//! From the options to the service of a worker.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::future::Future;
use std::os::unix::process::parent_id;
use std::rc::Rc;

use http::{HeaderName, HeaderValue, Response};
use hyper::service::Service;
use prefork_server::{Body, BoxError, Peer, Request, Worker, service_fn};

use crate::access_log::{AccessLog, Recorded};
use crate::cli::{LogFormat, LogTarget, Options, Serve, Serving};
use crate::site::{Answer, Content, Files, Identity, Site, Welcome};

const WORKER_HEADER: HeaderName = HeaderName::from_static("x-prefork-worker");

/// The access log of this process: none in the master, opened when a worker starts.
pub(crate) type SharedLog = Rc<OnceCell<AccessLog>>;

/// What is to be answered, before it is known in which process.
#[derive(Debug)]
pub(crate) struct Answering {
    serving: Serving,
    target: Option<LogTarget>,
    format: LogFormat,
    log: SharedLog,
}

/// What a worker needs for each answer.
struct Desk {
    site: Site,
    worker_header: Option<HeaderValue>,
    log: SharedLog,
}

impl Answering {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            serving: options.serving.clone(),
            target: options.logs.access_log.clone(),
            format: options.logs.log_format,
            log: SharedLog::default(),
        }
    }

    pub(crate) fn log(&self) -> SharedLog {
        Rc::clone(&self.log)
    }

    /// Whether what is to be served is there.
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        if let Serve::Files(directory) = self.serving.serve() {
            Files::open(&directory)?;
        }
        Ok(())
    }

    /// The service of this worker.
    pub(crate) fn service(
        self,
        worker: &Worker,
    ) -> Result<
        impl Service<
            Request,
            Response = Response<Recorded<Answer<Body>>>,
            Error = Infallible,
            Future: Future,
        > + Clone
        + use<>,
        BoxError,
    > {
        if let Some(target) = self.target {
            let log = AccessLog::open(target, self.format)?;
            self.log.set(log).expect("a worker is started once");
        }
        let info = worker.info();
        let content = match self.serving.serve() {
            Serve::Welcome => Content::Welcome(Welcome::new(Identity {
                slot: info.slot,
                generation: info.generation,
                pid: info.pid,
                master: parent_id(),
            })),
            Serve::Respond(text) => Content::Respond(text),
            Serve::Echo => Content::Echo,
            Serve::Files(directory) => Content::Files(Files::open(&directory)?),
        };
        let worker_header = self.serving.worker_header.then(|| {
            let (slot, generation, pid) = (info.slot, info.generation, info.pid);
            HeaderValue::try_from(format!("slot={slot} generation={generation} pid={pid}"))
                .expect("letters and digits make a header value")
        });
        let site = Site::new(content).delayed_by(self.serving.delay);
        let desk = Rc::new(Desk {
            site,
            worker_header,
            log: self.log,
        });
        Ok(service_fn(move |request| {
            let desk = Rc::clone(&desk);
            async move { Ok(desk.answer(request).await) }
        }))
    }
}

impl Desk {
    async fn answer(&self, request: Request) -> Response<Recorded<Answer<Body>>> {
        let record = self.log.get().map(|log| {
            let peer = match request.body().connection().peer {
                Peer::Tcp(address) => Some(address.ip()),
                _ => None,
            };
            log.begin(peer, &request)
        });
        let mut response = self.site.answer(request).await;
        if let Some(value) = &self.worker_header {
            response.headers_mut().insert(WORKER_HEADER, value.clone());
        }
        Recorded::wrap(response, record)
    }
}
