//! Conditions and ranges (RFC 9110 13 and 14), beside what nginx sends. Where nginx is installed
//! the test asks it too. Each difference has its reason.
//!
//! `cargo test --test it conditions -- --nocapture` prints the table.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use tempfile::TempDir;

use crate::support::{Server, until};

tests! { conditions_and_ranges_are_treated_as_the_table_says }

/// What a client sends, and what the server and nginx send back.
struct Case {
    method: &'static str,
    path: &'static str,
    /// Separated by `; `.
    fields: &'static str,
    result: &'static str,
    /// `None`: the same.
    nginx: Option<(&'static str, &'static str)>,
}

const fn case(fields: &'static str, result: &'static str) -> Case {
    Case {
        method: "GET",
        path: "/digits",
        fields,
        result,
        nginx: None,
    }
}

impl Case {
    const fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    const fn path(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    /// What nginx sends, and why the server does not.
    const fn nginx(self, result: &'static str, why: &'static str) -> Self {
        let nginx = Some((result, why));
        Self { nginx, ..self }
    }
}

const WHOLE: &str = "200 0123456789";
const EARLIER: &str = "Fri, 02 Jan 2026 03:04:04 GMT";
const LATER: &str = "Fri, 02 Jan 2026 03:04:06 GMT";
/// In seconds since 1970: one second after the one and before the other.
const MODIFIED: u64 = 1_767_323_045;

const LINES: &str = "several lines of a list are one list (5.3)";
const MALFORMED: &str = "a malformed field is ignored (14.2)";
const RANGES: &str = "of several ranges the first is sent; the client asks for the others (15.3.7)";
const ONLY_GET: &str = "ranges are for GET only (14.2)";

/// `{tag}`, `{date}`, `{other}`, `{earlier}` and `{later}` stand for the server's own tag and date,
/// for another tag, and for dates beside it.
const CASES: &[Case] = &[
    case("", WHOLE),
    case("", "200").method("HEAD"),
    case("If-None-Match: {tag}", "304"),
    case("If-None-Match: W/{tag}", "304"),
    case("If-None-Match: {other}, {tag}", "304"),
    case("If-None-Match: {other}; If-None-Match: {tag}", "304").nginx("400", LINES),
    case("If-None-Match: *", "304"),
    case("If-None-Match: {other}", WHOLE),
    case("If-None-Match: {tag}", "304").method("HEAD"),
    case("If-None-Match: {other}; If-Modified-Since: {date}", WHOLE),
    case("If-None-Match: ; If-Modified-Since: {date}", WHOLE),
    case("If-Modified-Since: {date}", "304"),
    case("If-Modified-Since: {earlier}", WHOLE),
    case("If-Modified-Since: {later}", "304").nginx(
        WHOLE,
        "it compares for equality; 13.1.3 for earlier or equal",
    ),
    case("If-Modified-Since: Friday, 02-Jan-26 03:04:05 GMT", "304"),
    case("If-Modified-Since: Fri Jan  2 03:04:05 2026", "304"),
    case("If-Modified-Since: yesterday", WHOLE),
    case("If-Match: {tag}", WHOLE),
    case("If-Match: {other}, {tag}", WHOLE),
    case("If-Match: *", WHOLE),
    case("If-Match: {other}", "412"),
    case("If-Match: W/{tag}", "412"),
    case("If-Match: ", "412"),
    case("If-Match: ,", "412"),
    case("If-Unmodified-Since: {date}", WHOLE),
    case("If-Unmodified-Since: {later}", WHOLE),
    case("If-Unmodified-Since: {earlier}", "412"),
    case("If-Match: {tag}; If-Unmodified-Since: {earlier}", WHOLE)
        .nginx("412", "with If-Match the date does not count (13.1.4)"),
    case("If-Match: {other}; If-None-Match: {tag}", "412"),
    case("Range: bytes=2-4", "206 2-4/10 234"),
    case("Range: Bytes=2-4", "206 2-4/10 234"),
    case("Range: bytes=7-", "206 7-9/10 789"),
    case("Range: bytes=5-99", "206 5-9/10 56789"),
    case("Range: bytes=-2", "206 8-9/10 89"),
    case("Range: bytes=-99", "206 0-9/10 0123456789"),
    case("Range: bytes=0-9", "206 0-9/10 0123456789"),
    case("Range: bytes=10-", "416 */10"),
    case("Range: bytes=-0", "416 */10"),
    case("Range: bytes=5-99999999999999999999", "206 5-9/10 56789")
        .nginx("416 */10", "the last byte may be beyond the end (14.1.2)"),
    case(
        "Range: bytes=-99999999999999999999",
        "206 0-9/10 0123456789",
    )
    .nginx("416 */10", "a longer suffix is the whole (14.1.2)"),
    case("Range: bytes=4-2", WHOLE).nginx("416 */10", MALFORMED),
    case("Range: bytes=x", WHOLE).nginx("416 */10", MALFORMED),
    case("Range: bytes=", WHOLE),
    case("Range: lines=1-2", WHOLE),
    case("Range: bytes=0-1,4-5", "206 0-1/10 01").nginx("206 multipart", RANGES),
    case("Range: bytes=0-1,99-", "206 0-1/10 01"),
    case("Range: bytes=2-4; Range: bytes=5-6", WHOLE).nginx(
        "206 2-4/10 234",
        "a second field is malformed, and is ignored",
    ),
    case("Range: bytes=2-4", "200")
        .method("HEAD")
        .nginx("206 2-4/10", ONLY_GET),
    case("Range: bytes=99-", "200")
        .method("HEAD")
        .nginx("416 */10", ONLY_GET),
    case("Range: bytes=0-", "200").path("/empty"),
    case("Range: bytes=-1", "200").path("/empty"),
    case("Range: bytes=2-4; If-Range: {tag}", "206 2-4/10 234"),
    case("Range: bytes=2-4; If-Range: W/{tag}", WHOLE),
    case("Range: bytes=2-4; If-Range: {other}", WHOLE),
    case("Range: bytes=2-4; If-Range: {date}", "206 2-4/10 234"),
    case("Range: bytes=2-4; If-Range: {earlier}", WHOLE),
    case("Range: bytes=2-4; If-Range: {later}", WHOLE),
    case("Range: bytes=99-; If-Range: {other}", WHOLE),
    case("Range: bytes=2-4; If-None-Match: {tag}", "304"),
    case("Range: bytes=2-4; If-Match: {other}", "412"),
    case("Range: bytes=99-; If-Match: {other}", "412"),
    case("If-None-Match: *", "404").path("/none"),
    case("Content-Length: 0", "405 GET, HEAD, OPTIONS")
        .method("POST")
        .nginx("405", "405 has an Allow (15.5.6)"),
    case("", "204 GET, HEAD, OPTIONS")
        .method("OPTIONS")
        .nginx("405", "it knows no OPTIONS for files"),
    case("", "308")
        .path("/dir")
        .nginx("301", "308 keeps the method (15.4.9)"),
];

/// A server, and what it says of the file with the digits.
struct Known<'a> {
    ask: Box<dyn Fn(&str) -> String + 'a>,
    tag: String,
    date: String,
}

impl<'a> Known<'a> {
    /// Waits for a strong tag: for the moments after a change a server may have none.
    fn new(ask: impl Fn(&str) -> String + 'a) -> Self {
        let get = "GET /digits HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        until(|| field(&ask(get), "etag").is_some_and(|tag| tag.starts_with('"')));
        let response = ask(get);
        let own = |name| field(&response, name).expect("it is there").to_owned();
        Self {
            tag: own("etag"),
            date: own("last-modified"),
            ask: Box::new(ask),
        }
    }

    fn result(&self, case: &Case) -> String {
        let values = [
            ("{tag}", &*self.tag),
            ("{date}", &self.date),
            ("{other}", "\"other\""),
            ("{earlier}", EARLIER),
            ("{later}", LATER),
        ];
        let fields = values.iter().fold(
            case.fields.replace("; ", "\r\n"),
            |fields, (name, value)| fields.replace(name, value),
        );
        let end = ["\r\n\r\n", "\r\n"][usize::from(fields.is_empty())];
        let (method, path) = (case.method, case.path);
        let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
        summary(&(self.ask)(&format!("{head}{fields}{end}")))
    }
}

/// The value of a field.
fn field<'a>(response: &'a str, name: &str) -> Option<&'a str> {
    let (head, _) = response.split_once("\r\n\r\n")?;
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// The status, the part or the methods, and the bytes of the file.
fn summary(response: &str) -> String {
    let status = response.split(' ').nth(1).expect("a status").to_owned();
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let is_multipart = field(response, "content-type").is_some_and(|it| it.starts_with("multi"));
    let part = field(response, "content-range").map(|range| range.trim_start_matches("bytes "));
    let bytes = match status.as_str() {
        "206" if is_multipart => "multipart",
        "200" | "206" => body,
        _ => "",
    };
    let words = [Some(&*status), part, field(response, "allow"), Some(bytes)];
    let words: Vec<&str> = words
        .into_iter()
        .flatten()
        .filter(|it| !it.is_empty())
        .collect();
    words.join(" ")
}

/// All that comes until the end.
fn exchange(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

fn conditions_and_ranges_are_treated_as_the_table_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let site = dir.path().join("site");
    fs::create_dir_all(site.join("dir")).expect("a directory");
    fs::write(site.join("digits"), "0123456789").expect("a file");
    fs::write(site.join("empty"), "").expect("a file");
    let digits = File::options().append(true).open(site.join("digits"));
    let modified = UNIX_EPOCH + Duration::from_secs(MODIFIED);
    digits
        .and_then(|file| file.set_modified(modified))
        .expect("a file");
    let mut server = Server::start(&[site.to_str().expect("a path")]);
    let address = server.address();
    let ours = Known::new(|request| {
        let stream = TcpStream::connect(address).expect("it listens");
        exchange(stream, request)
    });
    let nginx = Nginx::start(&dir);
    let theirs = nginx.as_ref().map(|nginx| {
        Known::new(|request| {
            let stream = UnixStream::connect(&nginx.socket).expect("it listens");
            exchange(stream, request)
        })
    });
    let mut wrong = Vec::new();
    for case in CASES {
        let (method, path, fields) = (case.method, case.path, case.fields);
        let (nginx, why) = case.nginx.unwrap_or((case.result, ""));
        let row = format!(
            "{method:7} {path:7} {fields:50} | {:22} | {nginx:22} | {why}",
            case.result
        );
        println!("{row}");
        for (server, expected) in [(Some(&ours), case.result), (theirs.as_ref(), nginx)] {
            let result = server.map(|server| server.result(case));
            if result.as_deref().is_some_and(|result| result != expected) {
                wrong.push(format!("{row}\n  is not {result:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// nginx in one process, if it is installed. Dropped, it is killed and reaped.
struct Nginx {
    process: Child,
    socket: std::path::PathBuf,
}

impl Nginx {
    fn start(dir: &TempDir) -> Option<Self> {
        let home = dir.path();
        let socket = home.join("socket");
        fs::write(home.join("nginx.conf"), configuration(home)).expect("a file");
        let mut command = Command::new("nginx");
        command.arg("-c").arg(home.join("nginx.conf"));
        command
            .arg("-e")
            .arg(home.join("log"))
            .stderr(Stdio::null());
        let Ok(process) = command.spawn() else {
            println!("nginx is not installed: only the server is asked");
            return None;
        };
        let nginx = Self { process, socket };
        until(|| UnixStream::connect(&nginx.socket).is_ok());
        Some(nginx)
    }
}

fn configuration(home: &Path) -> String {
    let home = home.display();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|name| format!("{name}_temp_path {home}/{name};"));
    format!(
        "daemon off; master_process off; pid {home}/pid; events {{}}
http {{ access_log off; {} server {{ listen unix:{home}/socket; root {home}/site; }} }}",
        paths.concat()
    )
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
