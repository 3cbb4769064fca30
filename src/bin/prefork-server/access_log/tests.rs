use std::{
    fs,
    io::{Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
    time::SystemTime,
};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::{sys::stat::Mode, unistd::mkfifo};
use prefork_server::{Address, ConnectionInfo, Generation, Peer, Slot};

use super::*;

fn log_to(path: &std::path::Path, format: LogFormat) -> Arc<AccessLog> {
    AccessLog::open(LogTarget::File(path.into()), format, worker()).unwrap()
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn worker() -> WorkerInfo {
    WorkerInfo::new(Slot(1), Generation::FIRST, 7)
}

fn from(peer: Peer) -> ConnectionInfo {
    ConnectionInfo::new(peer, "127.0.0.1:80".parse::<Address>().unwrap())
}

fn peer() -> ConnectionInfo {
    from(Peer::Tcp(([192, 0, 2, 7], 40_000).into()))
}

/// One request, answered with `body`; its line is recorded when this returns.
async fn serve(
    log: &Arc<AccessLog>,
    peer: ConnectionInfo,
    request: Request<()>,
    body: &'static str,
) {
    let mut record = log.begin(&peer, &request);
    record.request.at = SystemTime::UNIX_EPOCH;
    let response = LoggedBody::wrap(Response::new(Full::<Bytes>::from(body)), Some(record));
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        body
    );
}

/// At the end of a worker its service may be dropped before the last request.
#[test]
fn a_record_that_is_dropped_after_the_log_has_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = log_to(&path, LogFormat::Text);
    let record = log.begin(&peer(), &get("/cut"));
    drop(log);
    drop(record);
    let lines = fs::read_to_string(path).unwrap();
    assert!(lines.contains("\"GET /cut HTTP/1.1\" - 0 "), "{lines:?}");
}

fn get(target: &str) -> Request<()> {
    Request::get(target).body(()).unwrap()
}

/// The seconds a request took are its own; everything else is known.
fn without_seconds(line: &str) -> String {
    let is_seconds = |word: &str| word.len() > 7 && word.parse().is_ok_and(|it: f64| it >= 0.0);
    let words = line
        .split(' ')
        .map(|word| if is_seconds(word) { "S" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_line_of_text_is_combined_with_the_time_it_took() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = log_to(&path, LogFormat::Text);
    let request = Request::get("/a?b=c")
        .header("user-agent", "curl/8")
        .header("referer", "http://r/")
        .header("host", "example.org")
        .header("x-request-id", "tea-1")
        .header("traceparent", TRACE);
    serve(&log, peer(), request.body(()).unwrap(), "12345").await;
    serve(&log, from(Peer::Unix), get("http://host/x"), "").await;
    let mut http2 = get("https://example.org:8443/a?b=c");
    *http2.version_mut() = Version::HTTP_2;
    serve(&log, from(Peer::Unix), http2, "").await;
    drop(log);
    let lines = fs::read_to_string(path).unwrap();
    let lines: Vec<_> = lines.lines().map(without_seconds).collect();
    let when = "[01/Jan/1970:00:00:00 +0000]";
    let more = format!(r#"S S http "example.org" 1 1 tea-1 {TRACE}"#);
    let named = |host| format!(r#""-" "-" S S http "{host}" 1 1 - -"#);
    let (one, other) = (named("host"), named("example.org:8443"));
    assert_eq!(
        lines,
        [
            format!(
                r#"192.0.2.7 - - {when} "GET /a?b=c HTTP/1.1" 200 5 "http://r/" "curl/8" {more}"#
            ),
            format!(r#"- - - {when} "GET http://host/x HTTP/1.1" 200 0 {one}"#),
            format!(r#"- - - {when} "GET /a?b=c HTTP/2.0" 200 0 {other}"#),
        ]
    );
}

#[tokio::test]
async fn a_line_of_json_is_one_object() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = log_to(&path, LogFormat::Json);
    let agent =
        http::HeaderValue::from_bytes(b"\xc3\xa4 \"q\" \\ \xff\t\xc2\x9b\xe2\x80\xae").unwrap();
    let request = Request::post("/a")
        .header("user-agent", agent)
        .header("host", "example.org")
        .header("x-request-id", "tea-1")
        .header("traceparent", TRACE)
        .body(())
        .unwrap();
    serve(&log, peer(), request, "123").await;
    drop(log);
    let line = fs::read_to_string(path).unwrap();
    assert!(
        line.ends_with("}\n") && line.contains("\\u009b\\u202e"),
        "{line}"
    );
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(object["time"], "1970-01-01T00:00:00.000Z");
    assert_eq!(object["peer"], "192.0.2.7");
    assert_eq!(object["method"], "POST");
    assert_eq!(object["target"], "/a");
    assert_eq!(object["version"], "HTTP/1.1");
    assert_eq!(object["status"], 200);
    assert_eq!(object["bytes"], 3);
    assert!(object["seconds"].as_f64().unwrap() >= 0.0);
    assert!(object["first_byte_seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!(object["scheme"], "http");
    assert_eq!(
        (&object["slot"], &object["generation"]),
        (&1.into(), &1.into())
    );
    assert_eq!(object["host"], "example.org");
    assert_eq!(object["request_id"], "tea-1");
    assert_eq!(object["traceparent"], TRACE);
    assert_eq!(object["referer"], serde_json::Value::Null);
    assert_eq!(
        object["user_agent"],
        "\u{e4} \"q\" \\ \u{fffd}\t\u{9b}\u{202e}"
    );
    let guide = include_str!("../../../guide/logs.md");
    for name in object.as_object().unwrap().keys() {
        assert!(guide.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn a_client_that_left_before_the_response_leaves_a_line() {
    let dir = tempfile::tempdir().unwrap();
    for (format, told) in [
        (LogFormat::Text, "\" - 0 \"-\" \"-\" "),
        (LogFormat::Json, "\"status\":null"),
    ] {
        let path = dir.path().join(told.len().to_string());
        let log = log_to(&path, format);
        drop(log.begin(&peer(), &get("/")));
        drop(log);
        let line = fs::read_to_string(path).unwrap();
        assert!(line.contains(told), "{line}");
    }
}

/// What a client sends to forge a line, or to speak to the terminal of who reads it.
#[tokio::test]
async fn no_client_can_forge_or_tear_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = log_to(&path, LogFormat::Text);
    let agent = http::HeaderValue::from_bytes(b"\" 200 0 \"\\\xff\t").unwrap();
    let request = Request::get("/\"a").header("user-agent", agent);
    serve(&log, peer(), request.body(()).unwrap(), "").await;
    drop(log);
    let lines = fs::read_to_string(path).unwrap();
    assert!(lines.contains(r#""GET /\"a HTTP/1.1""#), "{lines}");
    assert!(lines.contains(r#""\" 200 0 \"\\\xFF\x09""#), "{lines}");
}

#[tokio::test]
async fn the_longest_line_fits_one_write_and_stays_well_formed() {
    let hostile = http::HeaderValue::from_bytes(&[0xff; 16_000]).unwrap();
    let quotes = http::HeaderValue::from_bytes(&[b'"'; 16_000]).unwrap();
    let method = http::Method::from_bytes(&[b'A'; 500]).unwrap();
    let target = format!("/{}", "\"".repeat(16_000));
    let dir = tempfile::tempdir().unwrap();
    for (format, name) in [(LogFormat::Text, "text"), (LogFormat::Json, "json")] {
        let path = dir.path().join(name);
        let log = log_to(&path, format);
        let request = Request::builder().method(method.clone()).uri(&target);
        let request = request
            .header("referer", &hostile)
            .header("user-agent", &quotes)
            .header("host", &quotes)
            .header("x-request-id", "i".repeat(64))
            .header("traceparent", "\"".repeat(16_000));
        let peer = from(Peer::Tcp(([u16::MAX; 8], u16::MAX).into()));
        serve(&log, peer, request.body(()).unwrap(), "").await;
        drop(log);
        let line = fs::read_to_string(path).unwrap();
        assert!((2048..WRITE_BYTES).contains(&line.len()), "{}", line.len());
        assert_eq!(line.matches('\n').count(), 1);
        if format == LogFormat::Json {
            serde_json::from_str::<serde_json::Value>(&line).unwrap();
        } else {
            without_seconds(line.trim_end());
        }
    }
}

#[test]
fn pieces_are_whole_lines_that_fit_one_write() {
    let lines: Vec<u8> = (0..500)
        .flat_map(|i| [vec![b'x'; i * 7 % 900], vec![b'\n']].concat())
        .collect();
    let cut: Vec<&[u8]> = pieces(&lines).collect();
    assert_eq!(cut.concat(), lines);
    assert!(
        cut.iter()
            .all(|piece| piece.len() <= WRITE_BYTES && piece.ends_with(b"\n"))
    );
    // Each is as full as it can be: with the next line it would be too long.
    for pair in cut.windows(2) {
        let next = pair[1].iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert!(pair[0].len() + next > WRITE_BYTES);
    }
    assert_eq!(pieces(b"").count(), 0);
}

#[test]
fn lines_of_several_workers_do_not_mix() {
    const LINES: usize = 3000;
    let (mut reader, writer) = io::pipe().unwrap();
    let logs: Vec<Arc<AccessLog>> = ["/one", "/two"].map(|_| log_to_pipe(&writer)).into();
    drop(writer);
    let reading = thread::spawn(move || {
        let mut lines = String::new();
        reader.read_to_string(&mut lines).map(|_| lines)
    });
    thread::scope(|scope| {
        for (log, name) in logs.into_iter().zip(["/one", "/two"]) {
            scope.spawn(move || {
                let request = get(&format!("{name}/{}", "long".repeat(100)));
                (0..LINES).for_each(|_| drop(log.begin(&peer(), &request)));
            });
        }
    });
    let lines = reading.join().unwrap().unwrap();
    let of = |name: &str| {
        let asked = format!("\"GET {name}/{} HTTP/1.1\"", "long".repeat(100));
        lines
            .lines()
            .filter(|line| line.matches('"').count() == 8 && line.contains(&asked))
            .count()
    };
    // What was lost for want of room is missing; what is there is whole.
    assert_eq!(of("/one") + of("/two"), lines.lines().count());
    assert!(of("/one") > 0 && of("/two") > 0);
}

fn log_to_pipe(writer: &io::PipeWriter) -> Arc<AccessLog> {
    let file = File::from(std::os::fd::OwnedFd::from(writer.try_clone().unwrap()));
    let sink = Sink::of(LogTarget::Stdout, Some(file));
    AccessLog::start(sink, LogFormat::Text, worker()).unwrap()
}

#[test]
fn a_reader_that_stalls_costs_lines_and_not_memory() {
    let (mut reader, writer) = io::pipe().unwrap();
    let log = log_to_pipe(&writer);
    drop(writer);
    let request = get(&format!("/{}", "a".repeat(1500)));
    let requests = 4 * PENDING_BYTES as u64 / 1500;
    for _ in 0..requests {
        drop(log.begin(&peer(), &request));
        assert!(log.shared.lock().lines.len() <= PENDING_BYTES + WRITE_BYTES);
    }
    // Not `lost`: the thread may have taken that number meanwhile, with the first lines.
    let recorded = log.shared.lock().recorded;
    assert!(recorded < requests);
    let reading = thread::spawn(move || {
        let mut lines = String::new();
        reader.read_to_string(&mut lines).map(|_| lines)
    });
    drop(log);
    let kept = reading.join().unwrap().unwrap().lines().count();
    assert_eq!(kept as u64, recorded);
}

#[test]
fn lines_for_a_fifo_are_lost_while_it_has_no_reader_and_wait_while_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, done) = (dir.path().join("log"), AtomicU64::new(0));
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let reader = || {
        let flags = OFlag::O_NONBLOCK.bits();
        let fifo = File::options().read(true).custom_flags(flags).open(&fifo);
        fifo.unwrap()
    };
    let mut sink = Sink::open(LogTarget::File(fifo.clone())).unwrap();
    let lines = b"line\n".repeat(50_000);
    for lost in [2, 1] {
        (0..lost).for_each(|_| sink.write(b"lost\n", &done));
        assert_eq!(sink.lost, lost);
        let mut reader = reader();
        thread::scope(|scope| {
            let writing = scope.spawn(|| sink.write(&lines, &done));
            let mut read = Vec::new();
            while read.len() < lines.len() {
                // It fails while the FIFO is empty.
                let _ = reader.read_to_end(&mut read);
            }
            writing.join().unwrap();
            assert!(read == lines);
        });
        assert_eq!(sink.lost, 0);
    }
    assert_eq!(done.into_inner(), 100_003);
}

/// The file can not grow, and is full at its end.
#[test]
fn after_half_a_line_the_next_line_begins_anew() {
    const SIZE: u64 = 4096;
    let dir = tempfile::tempdir().unwrap();
    let (path, done) = (dir.path().join("log"), AtomicU64::new(0));
    let memory = memfd_create("log", MFdFlags::MFD_ALLOW_SEALING).unwrap();
    let mut file = File::from(memory);
    file.set_len(SIZE).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).unwrap();
    let mut sink = Sink::of(LogTarget::File(path.clone()), None);
    for full in [
        file.try_clone().unwrap(),
        File::create("/dev/full").unwrap(),
    ] {
        file.seek(SeekFrom::Start(SIZE - 10)).unwrap();
        sink.file = Some(full);
        sink.write(b"whole\nhalf\nlost\n", &done);
        sink.file = Some(file.try_clone().unwrap());
        file.seek(SeekFrom::Start(0)).unwrap();
        sink.write(b"good\n", &done);
        sink.write(b"next\n", &done);
        let mut read = [0; 11];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(str::from_utf8(&read), Ok("\ngood\nnext\n"));
    }
    let mut read = [0; 10];
    file.read_exact_at(&mut read, SIZE - 10).unwrap();
    assert_eq!(str::from_utf8(&read), Ok("whole\nhalf"));
    file.seek(SeekFrom::Start(SIZE - 10)).unwrap();
    sink.write(b"whole\nhalf\nlost\n", &done);
    assert_eq!(sink.lost, 2);
    sink.reopen();
    sink.write(b"good\n", &done);
    assert_eq!(fs::read_to_string(path).unwrap(), "good\n");
}

#[tokio::test]
async fn after_reopen_lines_go_to_a_new_file_of_the_old_name() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("log"), dir.path().join("log.1"));
    let log = log_to(&path, LogFormat::Text);
    serve(&log, peer(), get("/before"), "").await;
    fs::rename(&path, &moved).unwrap();
    log.reopen();
    serve(&log, peer(), get("/after"), "").await;
    drop(log);
    let (old, new) = (
        fs::read_to_string(moved).unwrap(),
        fs::read_to_string(&path).unwrap(),
    );
    assert!(old.contains("/before") && !old.contains("/after"), "{old}");
    assert!(new.contains("/after") && !new.contains("/before"), "{new}");

    let log = log_to(&path, LogFormat::Text);
    serve(&log, peer(), get("/later"), "").await;
    drop(log);
    assert!(
        fs::read_to_string(path).unwrap().starts_with(&new),
        "appended to, never cut"
    );
}

#[test]
fn lines_are_written_while_the_log_is_open() {
    let (mut reader, writer) = io::pipe().unwrap();
    let log = log_to_pipe(&writer);
    drop(log.begin(&peer(), &get("/a")));
    let mut line = [0; 9];
    reader.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"192.0.2.7");
}

#[test]
fn a_log_that_can_not_be_opened_is_told_by_its_name() {
    let target = LogTarget::File("/nonexistent/access.log".into());
    let error = AccessLog::open(target, LogFormat::Text, worker()).unwrap_err();
    assert!(
        error.to_string().contains("/nonexistent/access.log"),
        "{error}"
    );
}

#[tokio::test]
async fn without_a_log_a_body_passes_unchanged() {
    let response = LoggedBody::wrap(Response::new(Full::<Bytes>::from("abc")), None);
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(3));
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "abc"
    );
}
