use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use crate::error::chain;

/// What a client gets of a server that writes this to each connection, and closes it.
fn asked<T>(response: &'static [u8], ask: impl FnOnce(&Control) -> T) -> T {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin");
    let listener = UnixListener::bind(&path).expect("it is free");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(response);
        }
    });
    ask(&Control::at(Address::Unix(path)))
}

fn refused_by(response: &'static [u8]) -> ControlError {
    let followed = asked(response, |server| server.follow(|_| Ok(())));
    followed.expect_err("there are no notices")
}

#[test]
fn a_client_that_waits_gives_up_a_server_that_closes_each_connection() {
    let begun = Begun {
        id: 1,
        progress: Progress::Running,
        note: None,
        ends_server: false,
    };
    let waited = asked(b"", |server| server.wait(&begun, Duration::MAX));
    assert!(waited.is_err_and(|error| error.is_broken_off()));
}

#[test]
fn a_client_whose_command_gets_no_response_is_told_that_the_server_may_have_it() {
    let given = asked(b"", |server| server.begin(Command::Reload));
    let error = given.expect_err("there was no response");
    assert!(error.is_broken_off(), "{error:?}");
    // `Display` has no cause, so that a program that prints each error of a chain prints it once.
    assert!(
        error.to_string().ends_with("/admin does not respond"),
        "{error}"
    );
    let why = "respond: it closed the connection, but the server may have the command";
    let line = chain(&error);
    assert!(line.ends_with(why), "{line}");
}

#[test]
fn a_client_that_gets_no_notices_is_told_why() {
    let full = b"HTTP/1.0 503 Service Unavailable\r\n\r\ntoo many clients listen\n";
    let refused = refused_by(full);
    assert!(
        matches!(&refused, ControlError::Refused(why) if why == "too many clients listen"),
        "{refused:?}"
    );
    let page = b"HTTP/1.1 404 Not Found\r\n\r\n<html>\n</html>\n";
    let other = refused_by(page).to_string();
    assert!(other.ends_with("admin address: status 404"), "{other}");
    for closed in [&b""[..], b"HTTP/1.1 200 OK\r\n\r\n<html>\n"] {
        let closed = refused_by(closed);
        assert!(closed.is_broken_off(), "{closed:?}");
    }
}

#[test]
fn a_server_that_is_no_admin_address_does_not_refuse() {
    for response in [
        &b"HTTP/1.0 404 Not Found\r\n\r\nNot Found"[..],
        b"HTTP/1.0 308 Permanent Redirect\r\n\r\n",
        b"HTTP/1.0 405 Method Not Allowed\r\n\r\n<html>\n</html>\n",
        b"HTTP/1.0 405 Method Not Allowed\r\n\r\nMethod Not Allowed\n",
    ] {
        let status = asked(response, |server| server.get("/status"));
        let begun = asked(response, |server| server.begin(Command::Reload));
        for error in [status.err(), begun.err()] {
            assert!(
                matches!(error, Some(ControlError::Unexpected(_))),
                "{error:?}"
            );
        }
    }
    let refused = b"HTTP/1.0 409 Conflict\r\n\r\nthe server drains\n";
    let begun = asked(refused, |server| server.begin(Command::Reload));
    assert!(matches!(begun, Err(ControlError::Refused(why)) if why == "the server drains"));
}

#[test]
fn a_timeout_says_how_long_it_was_and_that_the_server_may_have_the_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin");
    let _accepts_nothing = UnixListener::bind(&path).expect("it is free");
    let server = Control::at(Address::Unix(path));
    let patience = Duration::from_millis(7);
    for (method, ends) in [
        (Method::Get, "no response within 7ms"),
        (
            Method::Post,
            "within 7ms, but the server may have the command",
        ),
    ] {
        let error = server.request(method, "/", patience);
        let line = chain(&error.expect_err("a timeout"));
        assert!(line.ends_with(ends), "{line}");
    }
}
