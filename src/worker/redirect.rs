//! Redirects requests without TLS to https.

use std::convert::Infallible;
use std::future::ready;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::service::service_fn;

use crate::address::Address;
use crate::config::ListenerUse;
use crate::http::{Body, Handler, Server, named_host};
use crate::sys::listener;

const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// The addresses whose requests are redirected, and where to. The master says which listeners of a
/// worker redirect. The others of a server have the same addresses: those of slots that the worker
/// adopts, and those that have accepted the connections in its inbox.
#[derive(Debug)]
pub(crate) struct Redirect {
    addresses: Vec<Address>,
    /// The port of the first TCP listener with TLS; 443 if no listener has one.
    port: u16,
}

impl Redirect {
    /// From the listeners of a worker. The queue of the worker fails if one has no address.
    pub(super) fn new(listeners: &[(OwnedFd, ListenerUse)]) -> Arc<Self> {
        let (mut addresses, mut port) = (Vec::new(), None);
        for (listener, used_for) in listeners {
            match (used_for, listener::address(listener)) {
                (ListenerUse::Redirect, Ok(address)) => addresses.push(address),
                (ListenerUse::App, Ok(Address::Tcp(tcp))) => port = port.or(Some(tcp.port())),
                _ => {}
            }
        }
        let port = port.unwrap_or(HTTPS);
        Arc::new(Self { addresses, port })
    }

    /// Whether connections to a listener of this address are redirected.
    pub(super) fn covers(&self, listener: &Address) -> bool {
        self.addresses.contains(listener)
    }

    /// The service of these listeners. The server reports its requests as refused.
    pub(super) fn service(self: Arc<Self>, server: Server) -> impl Handler {
        service_fn(move |request: Request<Body>| {
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = match self.place(&request) {
                Some(place) => {
                    response.headers_mut().insert(LOCATION, place);
                    StatusCode::PERMANENT_REDIRECT
                }
                None => StatusCode::BAD_REQUEST,
            };
            server.report_refused(response.status(), request);
            ready(Ok::<_, Infallible>(response))
        })
    }

    /// `None` if the request names no host.
    fn place<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        let named = named_host(request.headers(), request.uri())?;
        let host = named.host();
        if host.is_empty() {
            return None;
        }
        let target = request.uri().path_and_query();
        let target = target.map_or("/", |target| target.as_str());
        let target = match target.starts_with('/') {
            true => target,
            false => "/",
        };
        // Without a port the client has used port 80. If this server listens on another one, then
        // something before it maps the ports, most likely from the usual ones.
        let is_mapped = named.port_u16().is_none() && !self.listens_on(HTTP);
        let place = match self.port == HTTPS || is_mapped {
            true => format!("https://{host}{target}"),
            false => format!("https://{host}:{}{target}", self.port),
        };
        HeaderValue::try_from(place).ok()
    }

    fn listens_on(&self, port: u16) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|address| matches!(address, Address::Tcp(tcp) if tcp.port() == port))
    }
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;

    fn redirect(from: &str, port: u16) -> Redirect {
        Redirect {
            addresses: vec![from.parse().expect("an address")],
            port,
        }
    }

    #[test]
    fn a_request_leads_to_its_own_host_and_path() {
        for (from, port, host, target, place) in [
            ("[::]:80", 443, "a.example", "/b?c", "https://a.example/b?c"),
            ("[::]:80", 443, "a.example:80", "/", "https://a.example/"),
            ("[::]:80", 8443, "a.example", "/", "https://a.example:8443/"),
            ("[::]:8080", 8443, "a.example", "/", "https://a.example/"),
            (
                "[::]:8080",
                8443,
                "a.example:8080",
                "/",
                "https://a.example:8443/",
            ),
            ("[::]:80", 443, "[::1]:80", "/", "https://[::1]/"),
            ("[::]:80", 443, "a.example", "*", "https://a.example/"),
            (
                "[::]:80",
                443,
                "a.example",
                "//evil.example",
                "https://a.example//evil.example",
            ),
        ] {
            let request = Request::get(target).header(HOST, host).body(());
            let request = request.expect("a request");
            let found = redirect(from, port).place(&request);
            assert_eq!(found.expect("a host"), place);
        }
        let nameless = Request::get("/").body(()).expect("a request");
        assert!(redirect("[::]:80", 443).place(&nameless).is_none());
    }
}
