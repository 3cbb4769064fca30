//! Any path and any fields that choose what of a file is sent.

use http::header::{HeaderName, IF_UNMODIFIED_SINCE};
use tokio::runtime::Builder;

use super::*;
use crate::files::path::Target;
use crate::fuzz;

/// In this order in an input, each in a line, after the path.
const FIELDS: [HeaderName; 7] = [
    RANGE,
    IF_RANGE,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    ACCEPT_ENCODING,
    IF_MATCH,
    IF_UNMODIFIED_SINCE,
];

#[test]
fn requests() {
    let root = tempfile::tempdir().expect("a directory");
    let site = root.path().join("site");
    std::fs::create_dir_all(site.join("d")).expect("a directory");
    let long: Vec<u8> = (0..budget::PIECE_MAX + 500)
        .map(|at| (at % 251) as u8)
        .collect();
    let files: [(&str, &[u8]); 6] = [
        ("site/a", b"0123456789"),
        ("site/a.gz", b"gzip of a"),
        ("site/d/index.html", b"index"),
        ("site/empty", b""),
        ("site/long", &long),
        ("secret", SECRET.as_bytes()),
    ];
    for (name, content) in files {
        std::fs::write(root.path().join(name), content).expect("a file");
    }
    let site = Files::new(site).open().expect("a directory");
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    fuzz::check("files-tests-requests", |bytes| {
        let Some(request) = request(bytes) else {
            return;
        };
        let asked = request.uri_ref().expect("it has one").path().to_owned();
        let response = runtime.block_on(send(&site, request));
        let contents = files.iter().map(|(_, content)| *content);
        assert_response(&response, contents);
        if response.status() == 308 {
            // In the client's spelling, such as `./%64/`.
            let location = response.headers()[LOCATION].as_bytes();
            let (folder, _) = asked.rsplit_once('/').expect("a path");
            let location = http::Uri::try_from([folder.as_bytes(), &location[1..]].concat());
            let location = location.expect("an address");
            let target = Target::of(&location).expect("a path");
            assert_eq!(target.path(), b"d/");
        }
    });
}

#[test]
fn changes() {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    fuzz::check("files-tests-changes", |steps| {
        runtime.block_on(play::play(steps));
    });
}

/// `None` if hyper would have none.
fn request(bytes: &[u8]) -> Option<http::request::Builder> {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let mut request = Request::get(http::Uri::try_from(lines.next()?).ok()?);
    for (name, line) in FIELDS.into_iter().zip(lines) {
        if !line.is_empty() {
            request = request.header(name, http::HeaderValue::from_bytes(line).ok()?);
        }
    }
    Some(request)
}
