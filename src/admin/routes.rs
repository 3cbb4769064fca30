//! Responds to the requests for each path.

use std::cell::RefCell;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::admin::events::Page;
use crate::admin::host::may_be_rebound;
use crate::admin::metrics::{self, Format};
use crate::admin::view::{Readiness, View};
use crate::admin::{live, page};
use crate::error::BoxError;
use crate::handle::Command;
use crate::http::Response;
use crate::id::{MAX_WORKERS, Slot};
use crate::policy::Stop;
use crate::status::Operation;

/// The version of the JSON of `/status`. A new field does not change it.
const STATUS_VERSION: u32 = 1;

/// What comes before the number of an operation.
const OPERATIONS: &str = "/v1/operations/";

/// The longest wait for an operation.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the master may take until it begins an operation.
const BEGIN_MAX: Duration = Duration::from_secs(1);

/// How long the master may take to send a view.
const LOOK_MAX: Duration = Duration::from_millis(50);

const PATHS: &str = "\
/
/livez
/readyz
/status
/metrics
/events
/live
/v1/operations/ID?wait=SECONDS

by POST, on a Unix address:
/v1/reload
/v1/upgrade
/v1/upgrade?dry-run
/v1/stop
/v1/stop?now
/v1/workers/N
/v1/slots/N/recycle
/v1/logs/reopen
";

const OTHER_HOST: &str = "\
the request names another host, so a web page of that host may have sent it:
ask for an IP address or localhost
";

type Reply = Response<Page>;

/// The response to a request with this head.
pub(super) async fn respond(view: Rc<RefCell<View>>, head: Parts) -> Result<Reply, BoxError> {
    let (path, is_read) = (head.uri.path(), is_read(head.uri.path()));
    // Another process may have told the client what this one has not heard yet.
    view.borrow_mut().hear();
    let takes_commands = view.borrow().takes_commands();
    Ok(match (&head.method, command(&head.uri)) {
        // A browser sends it. So no page of another site gives commands through a forwarded port.
        (&Method::POST, _) if head.headers.contains_key(ORIGIN) => {
            text(StatusCode::FORBIDDEN, "a web page may give no commands\n")
        }
        (&(Method::GET | Method::HEAD), _) if is_read && is_misled(&view.borrow(), &head) => {
            text(StatusCode::FORBIDDEN, OTHER_HOST)
        }
        (&(Method::GET | Method::HEAD), _) if is_read => {
            match path.strip_prefix(OPERATIONS).map(str::parse) {
                Some(Ok(number)) => look_up(&view, number, &head.uri).await,
                Some(Err(_)) => no_such_path(),
                None => {
                    if path == "/metrics" {
                        look(&view).await;
                    }
                    read(&view, &head)
                }
            }
        }
        (&Method::POST, Some(Ok(command))) if takes_commands => {
            give(&view, command, wait(&head.uri)).await
        }
        (&Method::POST, Some(Err(why))) if takes_commands => bad_request(why),
        _ if is_read => not_allowed("GET, HEAD", "GET and HEAD are allowed\n"),
        (_, Some(_)) if takes_commands => not_allowed("POST", "POST is allowed\n"),
        (_, Some(_)) => not_allowed("", "commands are given by POST on a Unix address\n"),
        (_, None) => no_such_path(),
    })
}

/// Whether a browser may have been misled to this address by a web page. Probes and Prometheus may
/// name the machine as they like: the page would learn little from what they read.
fn is_misled(view: &View, head: &Parts) -> bool {
    let is_for_programs = matches!(head.uri.path(), "/livez" | "/readyz" | "/metrics");
    view.is_loopback() && !is_for_programs && may_be_rebound(head)
}

/// Whether a GET reads something at this path.
fn is_read(path: &str) -> bool {
    let mut read = PATHS.lines().take_while(|line| !line.is_empty());
    path.starts_with(OPERATIONS) || read.any(|line| line == path)
}

fn bad_request(why: String) -> Reply {
    text(StatusCode::BAD_REQUEST, why + "\n")
}

fn not_allowed(allow: &'static str, why: &'static str) -> Reply {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, why);
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// Waits for a view of this moment. A master that is busy is not waited for, and its last view has
/// to do.
async fn look(view: &RefCell<View>) {
    let deadline = Instant::now() + LOOK_MAX;
    let Ok(before) = view.borrow().look() else {
        return;
    };
    loop {
        let changed = view.borrow().changed();
        if view.borrow().views != before || timeout_at(deadline, changed).await.is_err() {
            return;
        }
    }
}

fn read(view: &Rc<RefCell<View>>, head: &Parts) -> Reply {
    match head.uri.path() {
        "/live" => stream(live::join(view, last_notice(head))),
        "/" => page(),
        path => read_once(&mut view.borrow_mut(), path, head),
    }
}

fn read_once(view: &mut View, path: &str, head: &Parts) -> Reply {
    match path {
        "/livez" => text(StatusCode::OK, "live\n"),
        "/readyz" => ready(view.readiness()),
        "/status" => status(view),
        "/metrics" => {
            let format = Format::accepted(head.headers.get(ACCEPT));
            typed(
                StatusCode::OK,
                format.media_type(),
                metrics::page(view, format),
            )
        }
        "/events" => stream(view.listen(last_notice(head))),
        _ => no_such_path(),
    }
}

fn no_such_path() -> Reply {
    text(
        StatusCode::NOT_FOUND,
        "no such path; there are\n\n".to_owned() + PATHS,
    )
}

fn ready(readiness: Readiness) -> Reply {
    let status = match readiness {
        Readiness::Ready => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, readiness.why().to_owned() + "\n")
}

fn status(view: &View) -> Reply {
    match state(view) {
        Some(state) => typed(StatusCode::OK, JSON, state.to_string() + "\n"),
        None => told_nothing(),
    }
}

/// The state of the server; `None` until the master has told it.
fn state(view: &View) -> Option<Value> {
    let mut object = view.status()?.to_json();
    object["version"] = STATUS_VERSION.into();
    object["pid"] = view.master.as_raw().into();
    object["ready"] = json!(view.readiness() == Readiness::Ready);
    object["why"] = view.readiness().why().into();
    let admin = view.admin()?.iter().map(Address::to_string);
    object["admin"] = admin.collect::<Vec<_>>().into();
    object["history"] = view.history()?.to_json();
    for worker in workers(&mut object) {
        let pid = worker["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        let page = pid.and_then(|pid| view.page(pid));
        worker["requests_so_far"] = page.map(|page| page.counts.requests_so_far()).into();
    }
    Some(object)
}

/// The workers of all slots.
fn workers(status: &mut Value) -> impl Iterator<Item = &mut Value> {
    let slots = status["slots"].as_array_mut().into_iter().flatten();
    slots.flat_map(|slot| slot["workers"].as_array_mut().into_iter().flatten())
}

fn told_nothing() -> Reply {
    text(
        StatusCode::SERVICE_UNAVAILABLE,
        "the master has told nothing yet\n",
    )
}

/// The page for browsers. The policy allows it its own style and script, and requests to this
/// address.
fn page() -> Reply {
    let mut response = typed(StatusCode::OK, "text/html; charset=utf-8", page::PAGE);
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, page::POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The number of the last notice that the client has: the header is that of a browser, which cannot
/// send it with the first request of a stream, so the page has a parameter.
fn last_notice(head: &Parts) -> u64 {
    let header = head.headers.get("last-event-id");
    let header = header.and_then(|id| id.to_str().ok());
    let mut parameters = parameters(&head.uri).filter_map(|it| it.strip_prefix("after="));
    let last = header.or_else(|| parameters.next());
    last.and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn stream(page: Option<Page>) -> Reply {
    let Some(page) = page else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "too many clients listen\n");
    };
    let mut response = Response::new(page);
    head(&mut response, "text/event-stream");
    response
}

/// The command that a POST to this path gives, or what is wrong with its arguments. `None` if no
/// command has this path.
fn command(uri: &Uri) -> Option<Result<Command, String>> {
    let parts: Vec<&str> = uri.path().strip_prefix("/v1/")?.split('/').collect();
    let has = |name| parameters(uri).any(|it| it == name);
    let (command, option) = match parts[..] {
        ["reload"] => (Ok(Command::Reload), ""),
        ["upgrade"] if has("dry-run") => (Ok(Command::TryUpgrade), "dry-run"),
        ["upgrade"] => (Ok(Command::Upgrade), "dry-run"),
        ["stop"] if has("now") => (Ok(Command::Stop(Stop::Now)), "now"),
        ["stop"] => (Ok(Command::Stop(Stop::Drain)), "now"),
        ["logs", "reopen"] => (Ok(Command::ReopenLogs), ""),
        ["workers", count] => (resize(count), ""),
        ["slots", slot, "recycle"] => (recycle(slot), ""),
        _ => return None,
    };
    Some(match wrong_parameter(uri, option) {
        Some(wrong) => Err(format!(
            "wrong parameter {wrong}: there are wait=SECONDS, dry-run of upgrade, and now of stop"
        )),
        None => command,
    })
}

fn resize(count: &str) -> Result<Command, String> {
    // `+1` would be one slot, and not one slot more.
    let count = count.parse().ok().filter(|_| !count.starts_with('+'));
    let count = count.filter(|it: &NonZeroU16| usize::from(it.get()) <= MAX_WORKERS);
    let why = || format!("a server has 1 to {MAX_WORKERS} slots");
    count.map(Command::Resize).ok_or_else(why)
}

fn recycle(slot: &str) -> Result<Command, String> {
    let why = |_| format!("{slot} is not the number of a slot");
    slot.parse().map(Slot).map(Command::Recycle).map_err(why)
}

/// How long the request wants to wait for the operation, by its parameter `wait`.
fn wait(uri: &Uri) -> Duration {
    let seconds = parameters(uri).find_map(seconds).unwrap_or(0);
    Duration::from_secs(seconds).min(WAIT_MAX)
}

fn seconds(parameter: &str) -> Option<u64> {
    parameter.strip_prefix("wait=")?.parse().ok()
}

/// The first parameter that is neither a wait nor this option.
fn wrong_parameter<'a>(uri: &'a Uri, option: &str) -> Option<&'a str> {
    parameters(uri).find(|&it| it != option && seconds(it).is_none())
}

fn parameters(uri: &Uri) -> impl Iterator<Item = &str> {
    let all = uri.query().unwrap_or_default().split('&');
    all.filter(|it| !it.is_empty())
}

async fn give(view: &RefCell<View>, command: Command, wait: Duration) -> Reply {
    let note = view.borrow().note_on(command);
    let begun = view.borrow_mut().give(command);
    match begun {
        Ok(number) => operation(view, number, wait, note).await,
        Err(why) => text(StatusCode::CONFLICT, why + "\n"),
    }
}

async fn look_up(view: &RefCell<View>, number: u64, uri: &Uri) -> Reply {
    match wrong_parameter(uri, "") {
        Some(wrong) => bad_request(format!("wrong parameter {wrong}: there is wait=SECONDS")),
        None => operation(view, number, wait(uri), None).await,
    }
}

/// The state of an operation, when it has ended or the wait is over. The master may take a moment
/// until it begins one.
async fn operation(view: &RefCell<View>, number: u64, wait: Duration, note: Option<&str>) -> Reply {
    let begin = Instant::now() + BEGIN_MAX;
    let deadline = Instant::now() + wait;
    loop {
        let (changed, until) = {
            let view = view.borrow();
            let (begun, given) = (view.operation(number), view.given(number));
            let until = match (begun, given) {
                (Some(_), _) => deadline,
                (None, Some(_)) => begin.max(deadline),
                (None, None) => begin,
            };
            let now = Instant::now();
            match begun.or(given) {
                Some(operation) if operation.has_ended() => {
                    return described(StatusCode::OK, number, operation, note);
                }
                Some(operation) if now >= until => {
                    return described(StatusCode::ACCEPTED, number, operation, note);
                }
                // The operations are not known, so this one may run.
                None if now >= until && view.status().is_none() => return told_nothing(),
                None if now >= until => {
                    return text(StatusCode::NOT_FOUND, "no such operation is known\n");
                }
                _ => {}
            }
            (view.changed(), until)
        };
        let _ = timeout_at(until, changed).await;
    }
}

fn described(status: StatusCode, number: u64, operation: &Operation, note: Option<&str>) -> Reply {
    let mut object = operation.to_json();
    object["note"] = note.into();
    let mut response = typed(status, JSON, object.to_string() + "\n");
    let location = format!("/v1/operations/{number}").try_into();
    let location = location.expect("letters and digits");
    response.headers_mut().insert(LOCATION, location);
    response
}

const JSON: &str = "application/json";

fn text(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    typed(status, "text/plain; charset=utf-8", body)
}

fn typed(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut response = Response::new(Page::Whole(body.into().into()));
    *response.status_mut() = status;
    head(&mut response, media_type);
    response
}

fn head(response: &mut Reply, media_type: &'static str) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::fd::AsFd;

    use http_body_util::BodyExt;

    use super::*;
    use crate::admin::metrics::tests::{told, view, view_by};
    use crate::policy::ServerState;
    use crate::protocol::admin::{AdminChannel, Fact};

    /// Another admin process of the server has told its client of it already.
    #[tokio::test]
    async fn a_response_has_all_that_the_master_has_told() {
        let (master, channel) = AdminChannel::pair().expect("a pair");
        let (view, _stats) = view_by(channel, ServerState::Reloading);
        let serving = told(ServerState::Serving);
        let sent = master.tell(&Fact::View, Some(serving.as_fd()));
        sent.expect("room");
        let request = http::Request::get("/status").body(());
        let (head, ()) = request.expect("a request").into_parts();
        let response = respond(Rc::new(RefCell::new(view)), head).await;
        let body = response.expect("a response").into_body().collect().await;
        let body = body.expect("it is whole").to_bytes();
        let status: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(status["state"], "serving");
    }

    #[test]
    fn the_guide_names_each_field_of_the_status() {
        let (view, _stats) = view();
        let mut found = BTreeSet::new();
        names(&state(&view).expect("it is told"), &mut found);
        let guide = include_str!("../guide/metrics.md");
        let section = guide.split("\n# ").find(|it| it.starts_with("Status\n"));
        let section = section.expect("there is one");
        let is_missing = |name: &&String| !section.contains(&format!("`{name}`"));
        let missing: Vec<_> = found.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// The names of all fields.
    fn names(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    found.insert(name.clone());
                    names(value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            _ => {}
        }
    }
}
