//! What every model responds with, by path:
//!
//! | path | body | costs |
//! |---|---|---|
//! | `/` | 13 bytes | nothing |
//! | `/sleep` | 13 bytes | 100 ms without the CPU |
//! | `/cpu/N` | 13 bytes | about N us of CPU time, the same work in every model |
//! | `/who` | the number of the worker, two digits | nothing |

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use serde::{Deserialize, Serialize};

/// The body of nearly all responses.
pub(crate) const BODY: &str = "Hello, World!";

/// The body after having computed.
pub(crate) const COMPUTED: &str = "Computed that";

const PAUSE: Duration = Duration::from_millis(100);

/// One of a server's workers.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) speed: Speed,
}

pub(crate) async fn respond<B>(
    request: Request<B>,
    place: Place,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = match request.uri().path() {
        "/" => Bytes::from_static(BODY.as_bytes()),
        page if page.starts_with("/articles/") => Bytes::from_static(BODY.as_bytes()),
        "/sleep" => {
            tokio::time::sleep(PAUSE).await;
            Bytes::from_static(BODY.as_bytes())
        }
        "/who" => format!("{:02}", place.number).into(),
        path => {
            let micros = path.strip_prefix("/cpu/").and_then(|it| it.parse().ok());
            place.speed.compute(micros.expect("no bench asks for it"));
            Bytes::from_static(COMPUTED.as_bytes())
        }
    };
    let mut response = Response::new(Full::new(body));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
}

/// How much one microsecond of CPU time does. Measured once for all servers: a handler that looked
/// at the clock would do less work the more often it is interrupted.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Speed {
    steps_per_millisecond: u32,
}

impl Speed {
    /// The best of some tries: whatever else the machine does can only make it slower.
    pub(crate) fn measure() -> Self {
        const STEPS: u32 = 1_000_000;
        let tries = (0..20).map(|_| {
            let start = Instant::now();
            compute(STEPS);
            start.elapsed()
        });
        let best = tries.min().expect("there are some");
        let steps = f64::from(STEPS) / (best.as_secs_f64() * 1e3);
        Self {
            steps_per_millisecond: steps as u32,
        }
    }

    pub(crate) fn compute(self, micros: u32) {
        compute(self.steps_per_millisecond / 10 * micros / 100);
    }
}

/// Steps that need each other's results, so that no CPU does two at once.
fn compute(steps: u32) {
    let mut state = black_box(1_u64);
    for _ in 0..steps {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(state);
}
