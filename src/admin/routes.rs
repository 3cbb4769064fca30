//! Responds to the requests for each path.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::Full;
use serde_json::json;

use crate::admin::metrics::{self, Format};
use crate::admin::view::{Readiness, View};
use crate::error::BoxError;
use crate::http::{Request, Response};

/// The version of the JSON of `/status`. A new field does not change it.
const STATUS_VERSION: u32 = 1;

const PATHS: &str = "/livez\n/readyz\n/status\n/metrics\n";

pub(super) async fn respond(
    view: Rc<RefCell<View>>,
    request: Request,
) -> Result<Response, BoxError> {
    let view = view.borrow();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(
            StatusCode::METHOD_NOT_ALLOWED,
            "this address is read-only\n",
        );
        let allow = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allow);
        return Ok(response);
    }
    Ok(match request.uri().path() {
        "/livez" => text(StatusCode::OK, "live\n"),
        "/readyz" => ready(view.readiness()),
        "/status" => status(&view),
        "/metrics" => {
            let format = Format::accepted(request.headers().get(ACCEPT));
            typed(
                StatusCode::OK,
                format.media_type(),
                metrics::page(&view, format),
            )
        }
        "/" => text(StatusCode::OK, PATHS),
        _ => text(
            StatusCode::NOT_FOUND,
            "no such path; there are\n".to_owned() + PATHS,
        ),
    })
}

fn ready(readiness: Readiness) -> Response {
    let status = match readiness {
        Readiness::Ready => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, readiness.why().to_owned() + "\n")
}

fn status(view: &View) -> Response {
    let (Some(status), Some(history)) = (view.status(), view.history()) else {
        return text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the master has told nothing yet\n",
        );
    };
    let mut object = status.to_json();
    object["version"] = STATUS_VERSION.into();
    object["pid"] = view.master.as_raw().into();
    object["ready"] = json!(view.readiness() == Readiness::Ready);
    object["why"] = view.readiness().why().into();
    object["history"] = history.to_json();
    typed(
        StatusCode::OK,
        "application/json",
        object.to_string() + "\n",
    )
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    typed(status, "text/plain; charset=utf-8", body)
}

fn typed(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
