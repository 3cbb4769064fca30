//! Reports of requests that the server itself refuses.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, StatusCode};

use crate::http::info::ConnectionInfo;

/// A request that the server refused, so that no handler has seen it: it broke a limit or a timeout
/// of [`Http`](crate::Http), or a rule of HTTP, or it came without TLS to an address of
/// [`Prefork::redirect_to_https`](crate::Prefork::redirect_to_https).
///
/// The function given to [`Http::on_refused`](crate::Http::on_refused) gets it.
///
/// ```
/// use std::io::{Write, read_to_string};
/// use std::sync::mpsc::channel;
///
/// use prefork_server::{Http, Response, TestServer, handler};
///
/// let (log, lines) = channel();
/// let http = Http::new().max_target_size(8).on_refused(move |refused| {
///     let target = refused.head.map(|head| head.uri.to_string());
///     let _ = log.send((refused.status.as_u16(), target));
/// });
/// let app = async |_worker| Ok(handler(async |_request| Ok(Response::default())));
/// let server = TestServer::start_with(move |server| server.http(http).serve(app))?;
/// let mut client = std::net::TcpStream::connect(server.address())?;
/// client.write_all(b"GET /long-target HTTP/1.0\r\n\r\n")?;
/// read_to_string(client)?;
/// assert_eq!(lines.recv()?.0, 414);
/// # Ok::<(), prefork_server::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refused<'a> {
    /// The status of the response: 308, 400, 408, 413, 414, 417, 431 or 501.
    pub status: StatusCode,
    /// The connection of the request.
    pub connection: &'a ConnectionInfo,
    /// The request's head. `None` if the head was incomplete or invalid.
    pub head: Option<&'a Parts>,
    /// The id of the request, if requests [have ids](crate::Http::request_ids). A request without a
    /// head has a new one.
    pub request_id: Option<&'a HeaderValue>,
}

type Log = dyn Fn(&Refused<'_>) + Send + Sync;

/// The function that is called for each of them, if any.
#[derive(Clone, Default)]
pub(crate) struct OnRefused(Option<Arc<Log>>);

impl OnRefused {
    pub(crate) fn new(log: impl Fn(&Refused<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(log)))
    }

    pub(crate) fn report(
        &self,
        status: StatusCode,
        connection: &ConnectionInfo,
        head: Option<&Parts>,
        request_id: Option<&HeaderValue>,
    ) {
        if let Some(log) = &self.0 {
            log(&Refused {
                status,
                connection,
                head,
                request_id,
            });
        }
    }
}

impl fmt::Debug for OnRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "OnRefused(..)",
            None => "OnRefused(nothing)",
        })
    }
}
