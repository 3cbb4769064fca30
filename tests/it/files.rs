//! Files for clients that read slowly, over real connections.

pub(crate) mod conditions;
#[cfg(feature = "http2")]
pub(crate) mod windowless;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::process::Command;

use nix::errno::Errno;
use nix::libc::{SYS_openat2, SYS_preadv2, SYS_sendfile};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::client::{Client, get};
use crate::confined::refusing;
use crate::support::{BINARY, Server, descriptors, output, until};

tests! {
    slow_clients_of_one_file_share_one_descriptor,
    a_file_beyond_the_descriptor_limit_gets_503,
    head_of_a_directory_has_the_fields_of_get,
    the_options_of_files_reach_the_workers,
    a_part_beyond_4_gib_is_served,
    a_file_that_is_cut_in_its_place_is_sent_as_it_was_read,
    a_file_that_becomes_shorter_ends_the_connection_and_not_the_worker,
    a_file_that_becomes_shorter_ends_the_connection_with_sendfile,
    a_file_that_sendfile_cannot_read_is_told,
    a_file_that_is_overwritten_ends_the_connection_with_sendfile,
    a_file_that_grows_is_sent_with_sendfile_as_it_was_announced,
    a_filter_that_does_not_know_how_files_are_read_hides_no_file,
    a_filter_that_does_not_know_how_files_are_opened_is_named,
    a_reload_waits_for_a_file_and_then_moves_its_connection,
}

/// More bytes than the buffers of two sockets hold.
const LARGE: usize = 8 << 20;

/// A directory with this number of files of this length, and a small file.
fn directory(files: usize, length: usize) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("docs")).expect("a directory");
    fs::write(dir.path().join("small"), "small").expect("a file");
    for at in 0..files {
        let file = fs::File::create(dir.path().join(at.to_string())).expect("a file");
        file.set_len(length as u64).expect("a sparse file");
    }
    dir
}

/// A server with one worker and this limit on descriptors.
fn serve(dir: &TempDir, descriptors: usize, options: &str) -> Server {
    let script = format!(
        "ulimit -n {descriptors}; exec \"$0\" --listen 127.0.0.1:0 --workers 1 --announce-fd 1 \
         {options} \"$1\""
    );
    let mut command = Command::new("sh");
    Server::spawn(command.args(["-c", &script, BINARY]).arg(dir.path()))
}

/// A client that reads the beginning of the response and no more.
fn slow(address: SocketAddr, path: &str) -> Client {
    let mut client = Client::connect(address);
    client.ask(path);
    client.wait_for(64);
    client
}

fn slow_clients_of_one_file_share_one_descriptor() {
    let dir = directory(1, LARGE);
    let mut server = serve(&dir, 256, "");
    let address = server.address();
    let before = descriptors(server.workers()[0]);
    let clients: Vec<_> = (0..120).map(|_| slow(address, "/0")).collect();
    // A client that reads gets the whole file.
    let mut whole = Client::connect(address);
    let response = whole.get("/0");
    assert_eq!(response.body.len(), LARGE);
    assert_eq!(get(address, "/small").body, "small");
    let held = descriptors(server.workers()[0]) - before;
    assert!(held <= clients.len() + 4, "{held} descriptors");
}

fn a_file_beyond_the_descriptor_limit_gets_503() {
    let dir = directory(20, LARGE);
    let mut server = serve(&dir, 256, "");
    let address = server.address();
    let mut clients: Vec<_> = (0..16).map(|at| slow(address, &format!("/{at}"))).collect();
    let response = get(address, "/16");
    assert_eq!(response.status(), 503, "{}", response.head);
    assert_eq!(response.header("retry-after"), Some("1"));
    // A file that is open already is served, and so is a file that is read at once.
    assert_eq!(get(address, "/0").body.len(), LARGE);
    assert_eq!(get(address, "/small").body, "small");
    clients.pop();
    until(|| get(address, "/16").status() == 200);
}

fn head_of_a_directory_has_the_fields_of_get() {
    let dir = directory(0, 0);
    let mut server = serve(&dir, 256, "");
    let address = server.address();
    // In any order.
    let fields = |head: &str| -> BTreeSet<String> {
        let lines = head.lines().filter(|line| !line.starts_with("date: "));
        lines.map(str::to_owned).collect()
    };
    for path in ["/docs", "/docs/", "/small", "/none"] {
        let mut client = Client::connect(address);
        let got = client.get(path);
        client.send(&format!("HEAD {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        let head = client.response_without_body();
        assert_eq!(fields(&head.head), fields(&got.head), "{path}");
    }
}

fn a_file_that_becomes_shorter_ends_the_connection_and_not_the_worker() {
    cut_while_it_is_sent("");
}

fn a_file_that_becomes_shorter_ends_the_connection_with_sendfile() {
    cut_while_it_is_sent("--sendfile");
}

fn writable(dir: &TempDir, name: &str) -> fs::File {
    let file = fs::File::options().write(true).open(dir.path().join(name));
    file.expect("it is there")
}

fn cut_while_it_is_sent(options: &str) {
    let dir = directory(1, LARGE);
    let mut server = serve(&dir, 256, options);
    let address = server.address();
    let before = server.workers();
    let mut client = slow(address, "/0");
    let file = writable(&dir, "0");
    file.set_len(1 << 20).expect("it is shorter");
    let received = client.try_response().expect_err("the file is shorter");
    assert_ne!(received.kind(), io::ErrorKind::WouldBlock, "it ends");
    assert_eq!(get(address, "/0").body.len(), 1 << 20);
    assert_eq!(get(address, "/small").body, "small");
    assert_eq!(server.workers(), before);
    let log = server.stop().log;
    let said = "response broken off: its body failed error=the file was changed while it was sent";
    assert!(log.contains(said), "{log}");
}

/// As on a disk that fails. On a machine with 32 bits the call has another number.
fn a_file_that_sendfile_cannot_read_is_told() {
    if cfg!(target_pointer_width = "32") {
        return;
    }
    let Some(mut command) = refusing(SYS_sendfile, Errno::EIO) else {
        return;
    };
    let dir = directory(1, LARGE);
    command.args([BINARY, "--listen", "127.0.0.1:0", "--announce-fd", "1"]);
    let mut server = Server::spawn(command.arg("--sendfile").arg(dir.path()));
    let address = server.address();
    let received = slow(address, "/0").try_response();
    let received = received.expect_err("no byte of the file comes");
    assert_ne!(received.kind(), io::ErrorKind::WouldBlock, "it ends");
    assert_eq!(get(address, "/small").body, "small");
    let log = server.stop().log;
    let said = "response broken off: its body failed error=Input/output error (os error 5)";
    assert!(log.contains(said), "{log}");
}

fn a_file_that_is_overwritten_ends_the_connection_with_sendfile() {
    let dir = directory(1, LARGE);
    let mut server = serve(&dir, 256, "--sendfile");
    let address = server.address();
    let mut client = slow(address, "/0");
    let longer = vec![b'x'; LARGE + 100];
    let written = writable(&dir, "0").write_all_at(&longer, 0);
    written.expect("there is space");
    let received = client.try_response().expect_err("it is another file");
    assert_ne!(received.kind(), io::ErrorKind::WouldBlock, "it ends");
    assert_eq!(get(address, "/0").body.len(), LARGE + 100);
}

fn a_file_that_grows_is_sent_with_sendfile_as_it_was_announced() {
    let dir = directory(1, LARGE);
    let mut server = serve(&dir, 256, "--sendfile");
    let address = server.address();
    let mut client = slow(address, "/0");
    let written = writable(&dir, "0").write_all_at(b"more", LARGE as u64);
    written.expect("there is space");
    assert_eq!(client.response().body.len(), LARGE);
    assert_eq!(get(address, "/0").body.len(), LARGE + 4);
}

/// The file is cut within what the sockets' buffers hold.
fn a_file_that_is_cut_in_its_place_is_sent_as_it_was_read() {
    const LENGTH: usize = 4 * LARGE;
    let dir = directory(0, 0);
    let path = dir.path().join("large");
    fs::write(&path, vec![b'x'; LENGTH]).expect("a file");
    let file = writable(&dir, "large");
    let directory = dir.path().to_str().expect("a path");
    let mut server = Server::start(&[directory]);
    let mut client = slow(server.address(), "/large");
    client.wait_for(LARGE / 2);
    file.set_len(LARGE as u64 / 2 + 100).expect("it is shorter");
    let bytes = client.until_end();
    let head = bytes.windows(4).position(|at| at == b"\r\n\r\n");
    let body = &bytes[head.expect("a head") + 4..];
    assert!(body.len() < LENGTH, "it is broken off");
    assert!(body.iter().all(|byte| *byte == b'x'));
}

fn a_reload_waits_for_a_file_and_then_moves_its_connection() {
    let dir = directory(1, LARGE);
    let mut command = Command::new(BINARY);
    command.args(["--listen", "127.0.0.1:0", "--workers", "1", "--announce-fd"]);
    let options = ["1", "--worker-header", "--sendfile"];
    let mut server = Server::spawn(command.args(options).arg(dir.path()));
    let mut client = Client::connect(server.address());
    client.ask("/0");
    client.wait_for(64);
    server.signal(Signal::SIGHUP);
    server.wait("worker_draining");
    let file = client.response();
    assert_eq!(file.body.len(), LARGE);
    assert_eq!(file.header("connection"), None);
    assert_eq!(file.worker("generation"), 1);
    server.wait("reload_finished");
    assert_eq!(client.get("/small").worker("generation"), 2);
}

/// Of a sparse file, which takes no space.
fn a_part_beyond_4_gib_is_served() {
    const AT: u64 = (5 << 30) - 3;
    let dir = directory(0, 0);
    let file = fs::File::create(dir.path().join("large")).expect("a file");
    file.write_all_at(b"end", AT).expect("a sparse file");
    let mut server = serve(&dir, 256, "");
    let mut client = Client::connect(server.address());
    for (range, body) in [(format!("{}-", AT - 1), "\0end"), ("-3".into(), "end")] {
        client.send(&format!(
            "GET /large HTTP/1.1\r\nHost: test\r\nRange: bytes={range}\r\n\r\n"
        ));
        let part = client.response();
        assert_eq!(part.body, body);
        let range = part.header("content-range").expect("a part");
        assert!(range.ends_with("-5368709119/5368709120"), "{range}");
    }
}

fn the_options_of_files_reach_the_workers() {
    let dir = directory(1, 0);
    fs::write(dir.path().join("about.html"), "about").expect("a file");
    fs::write(dir.path().join("none.html"), "none").expect("a file");
    fs::write(dir.path().join("app-3f2a9c1b.js"), "code; ".repeat(1000)).expect("a file");
    std::os::unix::fs::symlink("small", dir.path().join("link")).expect("a link");
    let directory = dir.path().to_str().expect("a path");
    let flags = "--clean-urls --listing --compress --safe-caching --symlinks never --fallback \
                 about.html --not-found-page none.html --allow-origin https://a.example --header";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let mut server = Server::start(&[&flags[..], &["**: x-own: b, c", directory]].concat());
    let mut client = Client::connect(server.address());
    assert_eq!(client.get("/about").body, "about");
    assert!(
        client
            .get("/docs/")
            .body
            .contains("The directory is empty.")
    );
    assert_eq!(client.get("/link").body, "none");
    let small = client.get("/small");
    assert_eq!(small.header("cache-control"), Some("no-cache"));
    assert_eq!(small.header("x-own"), Some("b, c"));
    let mut ask = |path: &str, field: &str| {
        client.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\n{field}\r\n\r\n"
        ));
        client.response_without_body()
    };
    let page = ask("/users/7", "Accept: text/html\r\nIf-None-Match: *");
    assert_eq!(page.status(), 304, "{}", page.head);
    let known = "Accept-Encoding: gzip\r\nOrigin: https://a.example\r\nIf-None-Match: *";
    let code = ask("/app-3f2a9c1b.js", known);
    assert!(
        code.header("cache-control")
            .is_some_and(|it| it.ends_with("immutable"))
    );
    assert!(code.header("etag").is_some_and(|it| it.contains("gz")));
    let origin = code.header("access-control-allow-origin");
    assert_eq!(origin, Some("https://a.example"));
}

/// Such a filter refuses a system call that it does not know by either error.
const UNKNOWN: [Errno; 2] = [Errno::EPERM, Errno::ENOSYS];

fn a_filter_that_does_not_know_how_files_are_read_hides_no_file() {
    let dir = directory(1, 1000);
    for error in UNKNOWN {
        let Some(mut command) = refusing(SYS_preadv2, error) else {
            return;
        };
        command.args([BINARY, "--listen", "127.0.0.1:0", "--announce-fd", "1"]);
        let mut server = Server::spawn(command.arg(dir.path()));
        let response = get(server.address(), "/0");
        assert!(
            response.head.starts_with("HTTP/1.1 200 "),
            "{error}: {}",
            response.head
        );
        assert_eq!(response.body.len(), 1000);
        server.stop();
    }
}

fn a_filter_that_does_not_know_how_files_are_opened_is_named() {
    let dir = directory(1, 1);
    for error in UNKNOWN {
        let Some(mut command) = refusing(SYS_openat2, error) else {
            return;
        };
        let ended = output(command.arg(BINARY).arg(dir.path()));
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains("a filter refuses it"), "{error}: {said}");
    }
}
