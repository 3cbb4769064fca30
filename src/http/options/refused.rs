//! Requests that the server itself answers, told to the program's log.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use crate::http::info::ConnectionInfo;

/// A request that the server refused, so that no handler has seen it: it broke a limit or a timeout
/// of [`Http`](crate::Http), or a rule of HTTP.
///
/// See [`Http::on_refused`](crate::Http::on_refused).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refused<'a> {
    /// What the client is told: 400, 408, 413, 414, 417, 431 or 501.
    pub status: StatusCode,
    /// The connection that the request came on.
    pub connection: &'a ConnectionInfo,
    /// The request's head. `None` if it did not come to its end, or is none.
    pub head: Option<&'a Parts>,
}

type Log = dyn Fn(&Refused<'_>) + Send + Sync;

/// What is told of them.
#[derive(Clone, Default)]
pub(crate) struct OnRefused(Option<Arc<Log>>);

impl OnRefused {
    pub(crate) fn new(log: impl Fn(&Refused<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(log)))
    }

    pub(crate) fn tell(
        &self,
        status: StatusCode,
        connection: &ConnectionInfo,
        head: Option<&Parts>,
    ) {
        if let Some(log) = &self.0 {
            log(&Refused {
                status,
                connection,
                head,
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
