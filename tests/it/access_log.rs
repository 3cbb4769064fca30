//! The lines that requests leave in the access log.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::client::{Client, get};
use crate::support::{Server, until};

tests! {
    requests_that_the_server_refuses_are_logged,
    fields_that_were_not_parsed_are_null_in_json,
    reopening_the_access_log_is_logged,
    a_fifo_without_a_reader_costs_lines_and_no_request,
    lost_lines_are_logged_while_the_reader_stalls_and_counted_when_it_reads,
}

/// The line of a request that no handler got has the fields that were read, and `-` for the others.
fn requests_that_the_server_refuses_are_logged() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let path = log.to_str().expect("text");
    let options = ["--header-timeout", "500ms", "--respond", "hi"];
    let options = [&["--access-log", path], &options[..]].concat();
    let mut server = Server::start(&options);
    let address = server.address();
    let long = format!("/{}", "a".repeat(9000));
    let field = "b".repeat(20_000);
    let asked = [
        ("no request\r\n\r\n".to_owned(), 400),
        (
            "GET / HTTP/1.1\r\nUser-Agent: no host\r\n\r\n".to_owned(),
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: te".to_owned(), 408),
        (
            "PUT /up HTTP/1.1\r\nHost: test\r\nContent-Length: 5000000\r\n\r\n".to_owned(),
            413,
        ),
        (format!("GET {long} HTTP/1.1\r\nHost: test\r\n\r\n"), 414),
        (
            format!("GET / HTTP/1.1\r\nHost: test\r\nX-Large: {field}\r\n\r\n"),
            431,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: test\r\nX-Larger: {field}{field}\r\n\r\n"),
            431,
        ),
    ];
    let mut ids = Vec::new();
    for (request, status) in asked {
        let mut client = Client::connect(address);
        client.send(&request);
        let response = client.response();
        assert_eq!(response.status(), status, "{response:?}");
        let id = response.header("x-request-id");
        ids.push((id.expect("an id").to_owned(), status));
    }
    assert_eq!(get(address, "/served").body, "hi");
    server.stop();

    let log = fs::read_to_string(log).expect("it was written");
    for (id, status) in ids {
        let mut found = log.lines().filter(|line| line.contains(&id));
        let line = found.next().expect("a line has the id of the response");
        assert!(line.contains(&format!("\" {status} 0 ")), "{line}");
        assert_eq!(found.next(), None);
    }
    let mut lines: Vec<_> = log.lines().map(known).collect();
    lines.sort_unstable();
    let cut = &long[..2048];
    let mut expected = [
        r#""-" 400 0 "-" "-""#.to_owned(),
        r#""GET / HTTP/1.1" 400 0 "-" "no host""#.to_owned(),
        r#""-" 408 0 "-" "-""#.to_owned(),
        r#""PUT /up HTTP/1.1" 413 0 "-" "-""#.to_owned(),
        format!(r#""GET {cut} HTTP/1.1" 414 0 "-" "-""#),
        r#""GET / HTTP/1.1" 431 0 "-" "-""#.to_owned(),
        r#""-" 431 0 "-" "-""#.to_owned(),
        r#""GET /served HTTP/1.1" 200 2 "-" "-""#.to_owned(),
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

/// What does not change of a line of this machine: from the request line to the user agent.
fn known(line: &str) -> String {
    let (client, rest) = line.split_once(" - - [").expect("the client");
    assert_eq!(client, "127.0.0.1");
    let (_, rest) = rest.split_once("] ").expect("the time");
    let (rest, _) = rest.rsplit_once(" http ").expect("the scheme");
    let mut words = rest.rsplitn(3, ' ');
    let mut times = words.by_ref().take(2);
    assert!(times.all(|time| time.parse::<f64>().is_ok()), "{line}");
    words
        .next()
        .expect("what comes before the times")
        .to_owned()
}

fn fields_that_were_not_parsed_are_null_in_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let path = log.to_str().expect("text");
    let mut server = Server::start(&["--access-log", path, "--log-format", "json"]);
    let mut client = Client::connect(server.address());
    client.send("no request\r\n\r\n");
    client.take(1);
    server.stop();
    let log = fs::read_to_string(log).expect("it was written");
    let line: serde_json::Value = serde_json::from_str(&log).expect("one object");
    assert_eq!(line["status"], 400);
    for name in [
        "method",
        "target",
        "version",
        "referer",
        "user_agent",
        "host",
        "traceparent",
    ] {
        assert_eq!(line.get(name), Some(&serde_json::Value::Null), "{name}");
    }
}

/// The worker creates the new file, and the master logs the signal once.
fn reopening_the_access_log_is_logged() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let mut server = Server::start(&["--access-log", log.to_str().expect("text")]);
    server.address();
    fs::rename(&log, dir.path().join("old")).expect("it is ours");
    server.signal(Signal::SIGUSR1);
    until(|| log.exists());
    assert_eq!(server.log().matches("logs are reopened").count(), 1);
}

/// At the start, and after its reader has left: over a reload, and when logs are reopened.
fn a_fifo_without_a_reader_costs_lines_and_no_request() {
    let dir = tempfile::tempdir().expect("a directory");
    let fifo = dir.path().join("log");
    let mut server = start_with_fifo(&fifo);
    let address = server.address();
    let told = |server: &Server, text| server.log().matches(text).count();
    assert_eq!(told(&server, "has no reader"), 1, "{}", server.log());
    // A failed request, whose line is written at once.
    let fail = || {
        let mut client = Client::connect(address);
        client.send("no request\r\n\r\n");
        client.take(1);
    };
    let is_read = |reader: &File| {
        until(|| {
            fail();
            (&*reader).read(&mut [0; 9]).is_ok_and(|len| len == 9)
        });
    };
    is_read(&reader(&fifo));
    // The reader has left.
    fail();
    until(|| told(&server, "has no reader") == 2);
    server.reload();
    until(|| told(&server, "has no reader") == 3);
    until(|| told(&server, "lines of the access log were lost") == 1);
    server.signal(Signal::SIGUSR1);
    until(|| told(&server, "logs are reopened") == 1);
    assert_eq!(get(address, "/").body, "hi");
    is_read(&reader(&fifo));
    let ended = server.stop();
    assert!(!ended.log.contains("accepts no data"), "{}", ended.log);
}

fn lost_lines_are_logged_while_the_reader_stalls_and_counted_when_it_reads() {
    let dir = tempfile::tempdir().expect("a directory");
    let fifo = dir.path().join("log");
    let mut server = start_with_fifo(&fifo);
    let mut client = Client::connect(server.address());
    let reader = reader(&fifo);
    let target = format!("/{}", "a".repeat(2000));
    let sent = 1500;
    let mut ask = |requests| {
        for _ in 0..requests {
            assert_eq!(client.get(&target).body, "hi");
        }
    };
    // The lines of the first ones fill the FIFO. From then on the thread that writes them waits.
    let first_ones = 100;
    ask(first_ones);
    until(|| is_full(&fifo));
    ask(sent - first_ones);
    let first = "lines are lost bound=1048576";
    until(|| server.log().contains(first));
    let lost = || {
        let log = server.log();
        let (_, lost) = log.split_once("lines of the access log were lost lost=")?;
        lost.lines().next()?.parse::<usize>().ok()
    };
    assert_eq!(lost(), None);
    let lines = RefCell::new(Vec::new());
    until(|| {
        let mut lines = lines.borrow_mut();
        // It fails while the FIFO is empty.
        let _ = (&reader).read_to_end(&mut lines);
        let read = lines.iter().filter(|&&byte| byte == b'\n').count();
        lost().is_some_and(|lost| lost + read == sent)
    });
    assert_eq!(server.log().matches(first).count(), 1);
}

fn start_with_fifo(fifo: &Path) -> Server {
    mkfifo(fifo, Mode::S_IRUSR | Mode::S_IWUSR).expect("a new name");
    let log = fifo.to_str().expect("text");
    Server::start(&["--workers", "1", "--respond", "hi", "--access-log", log])
}

fn is_full(fifo: &Path) -> bool {
    let flags = OFlag::O_NONBLOCK.bits();
    let writer = File::options().write(true).custom_flags(flags).open(fifo);
    let writer = writer.expect("it has a reader");
    let writable = PollFd::new(writer.as_fd(), PollFlags::POLLOUT);
    poll(&mut [writable], PollTimeout::ZERO).expect("a descriptor of ours") == 0
}

/// A reader that does not wait, neither for a writer nor for lines.
fn reader(fifo: &Path) -> File {
    let flags = OFlag::O_NONBLOCK.bits();
    let fifo = File::options().read(true).custom_flags(flags).open(fifo);
    fifo.expect("it is ours")
}
