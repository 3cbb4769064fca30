//! The page for browsers on the admin address, and the stream that it shows.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use serde_json::{Map, Value};

use crate::admin::{Watched, admin_port, ask};
use crate::client::{Client, get};
use crate::support::{BINARY, CEILING, Server, descendants, pid_of, until};
use crate::upgrade::Installed;

tests! {
    the_page_has_a_strict_policy,
    a_stream_begins_with_the_state_and_tells_what_changes,
    a_crash_and_the_next_worker_are_told,
    the_timeline_goes_on_in_the_next_admin_process_without_doubles,
    the_timeline_goes_on_after_an_upgrade,
    the_number_of_streams_is_limited,
    a_web_page_gives_no_commands,
    a_web_page_whose_name_leads_to_this_machine_reads_no_more_than_metrics,
}

/// An event of a stream.
enum Event {
    /// A merge patch to the state.
    Live(Map<String, Value>),
    Notice {
        id: u64,
        notice: Value,
    },
}

struct Stream {
    lines: Lines<BufReader<UnixStream>>,
    state: Value,
}

impl Stream {
    /// With the notices after the one with this id.
    fn open(socket: &Path, path: &str, after: u64) -> Self {
        let mut stream = UnixStream::connect(socket).expect("it listens");
        stream
            .set_read_timeout(Some(CEILING))
            .expect("a sane timeout");
        // In HTTP/1.0 a stream has no chunks.
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nlast-event-id: {after}\r\n\r\n"
        )
        .expect("it reads");
        Self {
            lines: BufReader::new(stream).lines(),
            state: Value::Null,
        }
    }

    fn live(watched: &Watched) -> Self {
        Self::open(&watched.socket, "/live", 0)
    }

    /// The next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<Event> {
        let mut id = None;
        loop {
            let line = self.lines.next()?.expect("the server sends");
            if let Some(number) = line.strip_prefix("id: ") {
                id = number.parse().ok();
            }
            let Some(data) = line.strip_prefix("data: ") else {
                continue;
            };
            let data: Value = serde_json::from_str(data).expect("JSON");
            return Some(match (id, data) {
                (Some(id), notice) => Event::Notice { id, notice },
                (None, Value::Object(patch)) => Event::Live(patch),
                (None, other) => panic!("{other}"),
            });
        }
    }

    /// Follows the stream until the state is as wanted. Returns the notices until then.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut notices = Vec::new();
        while !wanted(&self.state) {
            match self.next().expect("it goes on") {
                Event::Live(patch) => merge(&mut self.state, Value::Object(patch)),
                Event::Notice { notice, .. } => notices.push(notice),
            }
        }
        notices
    }

    /// The notices up to the first of this name.
    fn notices_to(&mut self, name: &str) -> Vec<(u64, Value)> {
        let mut notices = Vec::new();
        loop {
            if let Event::Notice { id, notice } = self.next().expect("it goes on") {
                let is_last = notice["notice"] == name;
                notices.push((id, notice));
                if is_last {
                    return notices;
                }
            }
        }
    }
}

/// Applies a JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().expect("it is one now");
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(&key)),
            value => merge(target.entry(key).or_insert(Value::Null), value),
        }
    }
}

fn pids(state: &Value, slot: &str) -> Vec<String> {
    let workers = state["slots"][slot]["workers"].as_object();
    workers.map_or(Vec::new(), |workers| workers.keys().cloned().collect())
}

fn the_page_has_a_strict_policy() {
    let mut watched = Watched::start(&[]);
    watched.server.address();
    let page = watched.get("/");
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let policy = page.header("content-security-policy").expect("a policy");
    for directive in [
        "default-src 'none'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(directive), "{policy}");
    }
    assert!(page.body.starts_with("<!doctype html>") && page.body.len() < 30 << 10);
}

fn a_stream_begins_with_the_state_and_tells_what_changes() {
    let mut watched = Watched::start(&["--respond", "hi"]);
    let address = watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    let mut stream = Stream::live(&watched);
    let Some(Event::Live(first)) = stream.next() else {
        panic!("the state comes first");
    };
    assert_eq!(first["server"]["pid"], watched.server.pid.as_raw());
    assert_eq!(first["state"], "serving");
    assert_eq!(first["requests_per_second"], Value::Null, "not known yet");
    merge(&mut stream.state, Value::Object(first));
    let notices = stream.notices_to("serving");
    assert_eq!(notices[0].1["notice"], "worker_spawned", "{notices:?}");
    for _ in 0..5 {
        assert_eq!(get(address, "/").body, "hi");
    }
    stream.until(|state| state["requests"] == 5);
    let worker = &stream.state["slots"]["0"]["workers"][&pids(&stream.state, "0")[0]];
    assert!(
        worker["memory_mib"].as_f64().is_some_and(|mib| mib > 0.0),
        "{worker}"
    );
    let started = worker["started"].as_f64().expect("a time");
    assert!(
        started <= stream.state["at"].as_f64().expect("a time"),
        "{worker}"
    );
    assert!(stream.state["slots"]["0"]["queue"].is_u64() || stream.state["queue"].is_u64());
    stream.until(|state| state["requests_per_second"] == 0.0);
    // Nothing changes any more but the time.
    while let Some(event) = stream.next() {
        if let Event::Live(patch) = event
            && patch.keys().eq(["at"])
        {
            return;
        }
    }
    panic!("the stream has ended");
}

fn a_crash_and_the_next_worker_are_told() {
    let mut watched = Watched::start(&["--workers", "1"]);
    watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    let mut stream = Stream::live(&watched);
    stream.until(|state| !pids(state, "0").is_empty());
    let before = pids(&stream.state, "0");
    let pid = pid_of(&watched.status()["slots"][0]["workers"][0]);
    assert_eq!(before, [pid.to_string()]);
    kill(pid, Signal::SIGKILL).expect("it lives");
    let notices = stream.until(|state| {
        let now = pids(state, "0");
        now.len() == 1 && now != before
    });
    let crash = notices
        .iter()
        .find(|notice| notice["notice"] == "worker_exited");
    let crash = crash.expect("it is told before the state");
    assert_eq!(
        (&crash["status"], pid_of(crash)),
        (&Value::from("signal 9"), pid)
    );
}

/// Ids that a client would show twice, or that are out of order.
fn assert_in_order(notices: &[(u64, Value)]) {
    let ids: Vec<u64> = notices.iter().map(|(id, _)| *id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{notices:?}");
}

/// Follows a stream as a browser does, in which it begins again after the last notice that it has,
/// until the next notice of this name. A process that leaves still begins a stream, and ends it.
fn follow(socket: &Path, path: &str, notices: &mut Vec<(u64, Value)>, name: &str) {
    loop {
        let last = notices.last().map_or(0, |(id, _)| *id);
        let mut stream = Stream::open(socket, path, last);
        while let Some(event) = stream.next() {
            if let Event::Notice { id, notice } = event {
                let is_it = notice["notice"] == name;
                notices.push((id, notice));
                if is_it {
                    return;
                }
            }
        }
    }
}

fn the_timeline_goes_on_in_the_next_admin_process_without_doubles() {
    for path in ["/live", "/events"] {
        let mut watched = Watched::start(&[]);
        watched.server.address();
        until(|| watched.get("/readyz").body == "ready\n");
        let mut notices = Vec::new();
        follow(&watched.socket, path, &mut notices, "serving");
        for _ in 0..2 {
            let before = watched.admin();
            watched.server.signal(Signal::SIGHUP);
            follow(&watched.socket, path, &mut notices, "reload_finished");
            until(|| !descendants(watched.server.pid).contains(&before));
        }
        watched.server.signal(Signal::SIGTTOU);
        follow(&watched.socket, path, &mut notices, "resized");
        assert_in_order(&notices);
        let count = |name: &str| {
            let named = notices
                .iter()
                .filter(|(_, notice)| notice["notice"] == name);
            named.count()
        };
        assert_eq!(
            (count("serving"), count("reload_finished")),
            (1, 2),
            "{notices:?}"
        );
        // A new client gets the same.
        let mut all = Vec::new();
        follow(&watched.socket, path, &mut all, "resized");
        assert_eq!(all, notices);
    }
}

fn the_timeline_goes_on_after_an_upgrade() {
    let installed = Installed::new(BINARY);
    let mut watched =
        Watched::start_with(|socket| installed.start(&["--workers", "1", "--admin", socket]));
    watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    let mut notices = Vec::new();
    follow(&watched.socket, "/live", &mut notices, "serving");
    watched.server.signal(Signal::SIGUSR2);
    follow(&watched.socket, "/live", &mut notices, "upgrade_finished");
    follow(&watched.socket, "/live", &mut notices, "reload_finished");
    assert_in_order(&notices);
    // The master of before has told its last ones, and the next one tells its own.
    let has = |name: &str| notices.iter().any(|(_, notice)| notice["notice"] == name);
    assert!(
        has("upgrade_started") && has("reload_started"),
        "{notices:?}"
    );
    // A new client gets the same.
    let mut all = Vec::new();
    follow(&watched.socket, "/live", &mut all, "reload_finished");
    assert_eq!(all, notices);
}

fn the_number_of_streams_is_limited() {
    let mut watched = Watched::start(&[]);
    watched.server.address();
    let mut streams = Vec::new();
    let refused = loop {
        let mut stream = Stream::live(&watched);
        let status = stream.lines.next().expect("a head").expect("it is sent");
        if !status.contains(" 200 ") {
            break status;
        }
        streams.push(stream);
        assert!(streams.len() < 60, "there is no limit");
    };
    assert!(refused.contains(" 503 "), "{refused}");
    // Other requests are responded to.
    assert_eq!(watched.get("/livez").body, "live\n");
    drop(streams);
    until(|| {
        let mut stream = Stream::live(&watched);
        stream
            .lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| line.contains(" 200 ")))
    });
}

fn a_web_page_gives_no_commands() {
    let mut watched = Watched::start(&[]);
    watched.server.address();
    let head = "/v1/stop HTTP/1.1\r\norigin: http://example.org\r\nx-rest:";
    let response = ask(&watched.socket, "POST", head);
    assert_eq!(response.status(), 403, "{response:?}");
    assert_eq!(watched.get("/livez").body, "live\n");
}

fn a_web_page_whose_name_leads_to_this_machine_reads_no_more_than_metrics() {
    let mut server = Server::start(&["--respond", "hi", "--admin", "127.0.0.1:0"]);
    server.address();
    let port = admin_port(&server);
    let status = |host: &str, path| {
        let mut client = Client::connect(port);
        client.send(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        client.response().status()
    };
    for path in ["/", "/status", "/events", "/live", "/v1/operations/1"] {
        assert_eq!(status("example.org", path), 403, "{path}");
    }
    for (host, path) in [
        ("example.org", "/metrics"),
        ("example.org", "/readyz"),
        ("localhost", "/status"),
        (&port.to_string(), "/"),
    ] {
        assert_eq!(status(host, path), 200, "{host}{path}");
    }
}
