use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::libc;
use socket2::Socket;

use super::*;
use crate::sys::fds::tests::until_other_end_closed;

fn note(read_ahead: &'static [u8]) -> Note {
    Note {
        reason: Reason::HandedOver,
        local: "[::1]:80".parse().expect("an address"),
        forwarded: None,
        moved: Moved {
            read_ahead: read_ahead.into(),
            ..Moved::default()
        },
    }
}

/// HTTP/2 in the open, TLS, and HTTP/2 within TLS.
fn moved() -> [Note; 3] {
    let (tls, http2) = (Secret::new(b"session"), Bytes::from_static(b"state"));
    [
        (None, Some(http2.clone())),
        (Some(tls.clone()), None),
        (Some(tls), Some(http2)),
    ]
    .map(|(tls, http2)| Note {
        moved: Moved {
            tls,
            http2,
            read_ahead: Bytes::from_static(b"\0\0\x01"),
        },
        ..note(b"")
    })
}

/// Runs the test inside a runtime.
fn with_inbox(test: impl FnOnce(Sender, Receiver)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("a runtime");
    let _inside = runtime.enter();
    let Inbox { sender, receiver } = Inbox::new().expect("a pair");
    let receiver = Receiver::new(receiver).expect("a runtime");
    test(Sender::new(sender), receiver);
}

/// A filter would drop connections, and the sender would not learn of it.
#[test]
fn no_process_can_attach_a_filter_to_an_inbox() {
    let inbox = Inbox::new().expect("a pair");
    for end in [inbox.sender(), inbox.receiver()] {
        let locked = fds::option(end, libc::SOL_SOCKET, libc::SO_LOCK_FILTER);
        assert_eq!(locked.expect("a socket"), 1);
    }
}

#[test]
fn a_note_is_read_as_it_was_written() {
    let unix = Note {
        local: "unix:/run/app.sock".parse().expect("an address"),
        ..note(b"GET / HT")
    };
    let forwarded = Note {
        forwarded: Some(Forwarded {
            peer: ([192, 0, 2, 7], 56324).into(),
            local: ([198, 51, 100, 1], 443).into(),
        }),
        ..note(b"GET")
    };
    let placed = Note {
        reason: Reason::Placed,
        ..note(b"")
    };
    let [http2, tls, both] = moved();
    for note in [
        note(b""),
        note(b"\0\xff"),
        unix,
        forwarded,
        placed,
        http2,
        tls,
        both,
    ] {
        assert_eq!(Note::decode(&note.encode()), Ok(note));
    }
}

#[test]
fn other_bytes_are_refused_without_a_panic() {
    for note in [note(b"")].into_iter().chain(moved()) {
        let whole = note.encode();
        for length in 0..whole.len() - note.moved.read_ahead.len() {
            assert_eq!(Note::decode(&whole[..length]), Err(Malformed), "{length}");
        }
    }
    let whole = note(b"").encode();
    let known = [HANDED_OVER, PLACED, HTTP2_HANDED_OVER, TLS_HANDED_OVER];
    for version in (0..=u8::MAX).filter(|version| !known.contains(version)) {
        let other = [&[version], &whole[1..]].concat();
        assert_eq!(Note::decode(&other), Err(Malformed), "{version}");
    }
    for tag in 0..=u8::MAX {
        let _ = Note::decode(&[HANDED_OVER, tag, 0xff, 0xff, 0xff, 0xff, 0]);
    }
}

#[test]
fn the_master_sees_that_a_connection_waits() {
    let inbox = Inbox::new().expect("a pair");
    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    assert!(!inbox.is_waited_in());
    let sender = inbox.sender().try_clone_to_owned().expect("a number");
    Sender::new(sender).send(&ours, &note(b"")).expect("room");
    assert!(inbox.is_waited_in());
}

#[test]
fn a_sender_sees_that_nothing_is_left_in_the_inbox() {
    with_inbox(|sender, mut receiver| {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        assert!(!sender.has_unread());
        sender.send(&ours, &note(b"")).expect("room");
        sender.send(&ours, &note(b"")).expect("room");
        for _ in 0..2 {
            assert!(sender.has_unread());
            receiver.take().expect("no error").expect("one");
        }
        assert!(!sender.has_unread());
    });
}

#[test]
fn connections_arrive_one_by_one_with_their_bytes() {
    with_inbox(|sender, mut receiver| {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        sender.send(&ours, &note(b"ab")).expect("room");
        sender.send(&ours, &note(b"")).expect("room");
        drop(ours);
        let (first, received) = receiver.take().expect("no error").expect("one");
        assert_eq!(received, note(b"ab"));
        drop(first);
        let (second, received) = receiver.take().expect("no error").expect("another");
        assert_eq!(received, note(b""));
        assert!(receiver.take().expect("no error").is_none());
        theirs.set_nonblocking(true).expect("a socket");
        let open = std::io::Read::read(&mut &theirs, &mut [0]).expect_err("nothing to read");
        assert_eq!(open.kind(), io::ErrorKind::WouldBlock);
        drop(second);
        until_other_end_closed(&theirs);
        let ended = std::io::Read::read(&mut &theirs, &mut [0]);
        assert_eq!(ended.expect("the last one has it"), 0);
    });
}

/// A hostile worker may send one that blocks.
#[test]
fn a_connection_that_has_arrived_does_not_block() {
    with_inbox(|sender, mut receiver| {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        assert!(!SockRef::from(&ours).nonblocking().expect("a socket"));
        sender.send(&ours, &note(b"")).expect("room");
        let (connection, _) = receiver.take().expect("no error").expect("one");
        assert!(SockRef::from(&connection).nonblocking().expect("a socket"));
    });
}

#[test]
fn connections_in_another_version_are_passed_over_and_closed() {
    with_inbox(|sender, mut receiver| {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        for bytes in [&b"\xff"[..], &[0; LEN_MAX + 1]] {
            fds::send(&sender.0, bytes, &[ours.as_raw_fd()]).expect("room");
        }
        let two = [ours.as_raw_fd(); 2];
        fds::send(&sender.0, &note(b"").encode(), &two).expect("room");
        fds::send(&sender.0, &note(b"").encode(), &[]).expect("room");
        // No file, and what is no sealed file.
        let with_file = [&[WITH_FILE], &note(b"").encode()[..]].concat();
        for fds in [&two[..0], &two[..1], &two[..]] {
            fds::send(&sender.0, &with_file, fds).expect("room");
        }
        sender.send(&theirs, &note(b"x")).expect("room");
        drop(ours);
        let (_connection, received) = receiver.take().expect("no error").expect("the last");
        assert_eq!(received, note(b"x"));
        until_other_end_closed(&theirs);
        let ended = std::io::Read::read(&mut &theirs, &mut [0]);
        assert_eq!(ended.expect("nobody has the other end"), 0);
    });
}

#[test]
fn an_inbox_that_was_shut_down_is_emptied_and_then_nothing_comes_from_it() {
    with_inbox(|sender, mut receiver| {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        fds::send(&sender.0, b"", &[]).expect("room");
        sender.send(&ours, &note(b"x")).expect("room");
        let (_, received) = receiver.take().expect("no error").expect("one");
        assert_eq!(received, note(b"x"), "an empty message is not the end");
        fds::send(&sender.0, b"", &[ours.as_raw_fd()]).expect("room");
        sender.send(&ours, &note(b"")).expect("room");
        let pair = socket2::SockRef::from(&sender.0);
        pair.shutdown(std::net::Shutdown::Both).expect("a socket");
        sender.send(&ours, &note(b"")).expect_err("it is shut down");
        receiver.take().expect("no error").expect("what was left");
        for _ in 0..2 {
            assert!(receiver.take().expect("no error").is_none());
            let polled = receiver.poll_take(&mut Context::from_waker(std::task::Waker::noop()));
            assert!(polled.is_pending());
        }
    });
}

#[test]
fn to_close_what_another_process_sent_does_not_wait_for_its_unsent_data() {
    with_inbox(|sender, mut receiver| {
        let domain = socket2::Domain::IPV4;
        let stream = Socket::new(domain, socket2::Type::STREAM, None).expect("a socket");
        for bytes in [&b"\x03"[..], &[0; LEN_MAX + 1]] {
            let linger = Some(Duration::from_secs(600));
            stream.set_linger(linger).expect("an option");
            fds::send(&sender.0, bytes, &[stream.as_raw_fd()]).expect("room");
            assert!(receiver.take().expect("no error").is_none());
            assert_eq!(stream.linger().expect("an option"), None);
        }
    });
}

#[test]
fn an_inbox_and_the_bytes_of_a_message_have_a_limit() {
    with_inbox(|sender, mut receiver| {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let [session, state, read_ahead] = [secret::RECORD_MAX, HTTP2_MAX, READ_AHEAD_MAX]
            .map(|length| Bytes::from(vec![b'x'; length + 1]));
        let long_session = Moved {
            tls: Some(Secret::new(&session)),
            ..Moved::default()
        };
        let long_state = Moved {
            http2: Some(state.clone()),
            ..Moved::default()
        };
        let long = Moved {
            read_ahead: read_ahead.clone(),
            ..Moved::default()
        };
        for moved in [long_session, long_state, long] {
            let note = Note { moved, ..note(b"") };
            let error = sender.send(&ours, &note).expect_err("too much");
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        }
        let longest = Note {
            moved: Moved {
                tls: Some(Secret::new(&session[1..])),
                http2: Some(state.slice(1..)),
                read_ahead: read_ahead.slice(1..),
            },
            forwarded: None,
            reason: Reason::HandedOver,
            local: format!("unix:/{}", "p".repeat(106)).parse().expect("valid"),
        };
        sender.send(&ours, &longest).expect("it fits");
        let (_, received) = receiver.take().expect("no error").expect("one");
        assert_eq!(received, longest);
        let full = (0..10_000).find_map(|count| {
            let error = sender.send(&ours, &note(b"")).err()?;
            Some((count, error.kind()))
        });
        let (count, kind) = full.expect("it is full at last");
        assert_eq!(kind, io::ErrorKind::WouldBlock);
        assert!(count > 100, "{count}");
    });
}

#[test]
fn too_many_descriptors_in_all_sockets_are_no_room() {
    let kind = |errno: Errno| or_no_room(errno.into()).kind();
    assert_eq!(kind(Errno::ETOOMANYREFS), io::ErrorKind::WouldBlock);
    assert_eq!(kind(Errno::EPIPE), io::ErrorKind::BrokenPipe);
}

/// The inboxes of others are open to a hostile worker.
#[test]
fn a_receiver_comes_back_from_a_flood_of_what_is_no_connection() {
    with_inbox(|sender, mut receiver| {
        let junk = 3 * CLOSED_MAX;
        for _ in 0..junk {
            fds::send(&sender.0, b"junk", &[]).expect("room");
        }
        for _ in 0..3 {
            let error = receiver.take().expect_err("other tasks have their turn");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        sender.send(&ours, &note(b"")).expect("room");
        assert!(receiver.take().expect("no error").is_some());
        assert!(receiver.take().expect("no error").is_none());
    });
}

/// The master keeps the inbox for the next workers of the slot.
#[test]
fn options_that_keep_connections_out_do_not_stay() {
    let inboxes = [(); 3].map(|()| Inbox::new().expect("a pair"));
    let harmed = &inboxes[1];
    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    let large: Note = note(&[b'x'; INLINE_MAX]);
    let send = || {
        let sender = harmed.sender().try_clone_to_owned().expect("a number");
        Sender::new(sender).send(&ours, &large)
    };
    let set = |end, option, value| fds::set_option(end, libc::SOL_SOCKET, option, value);
    set(harmed.sender(), libc::SO_SNDBUF, 0).expect("a small one");
    send().expect_err("it is kept out");
    assert_eq!(Inbox::mend(&inboxes).expect("no lock is held"), 1);
    send().expect("room");
    assert_eq!(Inbox::mend(&inboxes).expect("no lock is held"), 0);
    // Linux before 6.16 does not know it.
    if set(harmed.receiver(), fds::SO_PASSRIGHTS, 0).is_ok() {
        send().expect_err("no descriptor passes");
        Inbox::mend(&inboxes).expect("no lock is held");
        send().expect("it passes");
    }
}
