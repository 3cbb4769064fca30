//! Requests that the server itself answers, told to the program's log.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use super::activity::Activity;
use super::info::ConnectionInfo;

/// A request that no handler has seen: the server refused it, by [`Http`](super::Http)'s limits and
/// timeouts or by the rules of HTTP. See [`Http::on_refused`](super::Http::on_refused).
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
pub(super) struct OnRefused(Option<Arc<Log>>);

impl OnRefused {
    pub(super) fn new(log: impl Fn(&Refused<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(log)))
    }

    pub(super) fn tell(&self, status: StatusCode, activity: &Activity, head: Option<&Parts>) {
        if let Some(log) = &self.0 {
            log(&Refused {
                status,
                connection: activity.info(),
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
