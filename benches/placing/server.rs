//! The servers: ours, and the multi-threaded runtime.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::exit;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prefork_server::{BoxError, Prefork, Tls};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio_rustls::TlsAcceptor;

use crate::handlers::{Place, Speed, respond};
use crate::support::listener::listen;
use crate::support::notices::{self, Notices};
use crate::support::process::{CEILING, Processes, Trouble, this_as};
use crate::support::{cpus, named};

/// Workers, or threads of the opponent.
const WORKERS: usize = 2;

/// How long the handler computes.
const MICROS: u32 = 500;

named! {
    /// What connections speak.
    #[derive(Deserialize, Serialize)]
    enum Kind {
        Tls = "TLS",
        Http2 = "HTTP/2",
        Run = "run",
    }
}

#[derive(Clone, Copy, Deserialize, Serialize)]
pub(crate) enum Model {
    Prefork,
    MultiThread,
}

/// What this executable is when it is started once more.
#[derive(Deserialize, Serialize)]
pub(crate) struct Role {
    kind: Kind,
    model: Model,
    speed: Speed,
    pem: [String; 2],
}

/// A running server. Dropped, it is killed and reaped.
pub(crate) struct Server {
    _processes: Processes,
    _notices: Notices,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(
        kind: Kind,
        model: Model,
        speed: Speed,
        pem: &[String; 2],
    ) -> Result<Self, Trouble> {
        let pem = pem.clone();
        let command = this_as(&Role {
            kind,
            model,
            speed,
            pem,
        })?;
        let cpus = cpus::usable();
        let dir = tempfile::tempdir()?;
        let start = || Processes::start(dir, &command);
        let (processes, said) = cpus::on(&cpus[..WORKERS.min(cpus.len())], start)?;
        let notices = Notices::of(said);
        let serving = notices.named("serving", Instant::now() + CEILING);
        let serving =
            serving.map_err(|trouble| Trouble::Stuck(format!("{trouble}\n{}", processes.log())))?;
        Ok(Self {
            _processes: processes,
            _notices: notices,
            address: notices::address(&serving)?,
        })
    }
}

impl Role {
    /// Does not return.
    pub(crate) fn play(self) -> ! {
        match self.model {
            Model::Prefork => self.prefork(),
            Model::MultiThread => self.multi_thread(),
        }
    }

    fn prefork(self) -> ! {
        let Self {
            kind, speed, pem, ..
        } = self;
        let server = Prefork::bind("127.0.0.1:0").workers(WORKERS).announce_fd(1);
        let [certificate, key] = pem;
        let server = match kind {
            Kind::Tls => server.tls(Tls::new().certificate_pem(certificate).key_pem(key)),
            Kind::Http2 | Kind::Run => server,
        };
        let ended = match kind {
            Kind::Run => server.run(async move |worker, mut incoming| {
                let number = worker.slot().0.into();
                while let Some(connection) = incoming.accept().await {
                    tokio::spawn(echo(connection, Place { number, speed }));
                }
                Ok(())
            }),
            Kind::Tls | Kind::Http2 => server.serve(async move |worker| {
                let number = worker.slot().0.into();
                let place = Place { number, speed };
                Ok(service_fn(move |request| compute(request, place)))
            }),
        };
        exit(ended.map_or_else(|error| error.exit_code().into(), |()| 0));
    }

    fn multi_thread(self) -> ! {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into());
        let address = listener.local_addr().expect("getsockname(2)");
        let address = address.as_socket().expect("an IPv4 listener");
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(WORKERS).enable_all().build();
        let serving = runtime.expect("a runtime can be built");
        let accepting = serving.spawn(self.accept(listener.into()));
        let notice = serde_json::json!({ "notice": "serving", "addresses": [address] });
        println!("{notice}");
        let ended = serving.block_on(accepting);
        panic!("{ended:?}");
    }

    async fn accept(self, listener: std::net::TcpListener) -> std::io::Result<Infallible> {
        let listener = TcpListener::from_std(listener)?;
        let acceptor = acceptor(&self.pem).expect("a certificate");
        let place = Place {
            number: 0,
            speed: self.speed,
        };
        loop {
            let (stream, _) = listener.accept().await?;
            match self.kind {
                Kind::Run => drop(tokio::spawn(echo(stream, place))),
                Kind::Http2 => drop(tokio::spawn(serve(stream, place))),
                Kind::Tls => {
                    let handshake = acceptor.accept(stream);
                    tokio::spawn(async move { serve(handshake.await?, place).await });
                }
            }
        }
    }
}

fn acceptor([certificate, key]: &[String; 2]) -> Result<TlsAcceptor, BoxError> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(Arc::new(config).into())
}

async fn serve<S>(stream: S, place: Place) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| compute(request, place));
    let server = auto::Builder::new(TokioExecutor::new());
    server.serve_connection(TokioIo::new(stream), service).await
}

/// Computes, and responds with the number of the worker.
async fn compute<B>(
    request: Request<B>,
    place: Place,
) -> Result<Response<Full<Bytes>>, Infallible> {
    place.speed.compute(MICROS);
    respond(request, place).await
}

/// For each byte, computes and sends the number of the worker.
async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, place: Place) {
    let number = u8::try_from(place.number).expect("there are two");
    // An error is the end of the client.
    while stream.read_u8().await.is_ok() {
        place.speed.compute(MICROS);
        if stream.write_u8(number).await.is_err() {
            return;
        }
    }
}
