use super::*;

/// Waits until no process has the other end of a socket or pipe. One that another test has forked
/// has the descriptors of this one until it ends or executes a program.
pub(crate) fn until_other_end_closed(fd: impl AsFd) {
    // poll(2) always reports this.
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::empty())];
    while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
}

#[test]
fn descriptors_are_received_with_their_message() {
    let (here, there) = seqpacket_pair().expect("a pair");
    let (mut reader, writer) = io::pipe().expect("a pipe");
    send(&here, b"take it", &[writer.as_raw_fd()]).expect("room for one");
    drop(writer);
    let mut bytes = [0; 16];
    let (len, fds) = receive(&there, &mut bytes).expect("a message");
    assert_eq!((&bytes[..len], fds.len()), (&b"take it"[..], 1));
    write_all(&fds[0], b"hello").expect("the pipe is open");
    drop(fds);
    assert_eq!(io::read_to_string(&mut reader).expect("readable"), "hello");
}

#[test]
fn a_message_that_is_too_long_is_an_error_and_the_next_is_received() {
    let (here, there) = seqpacket_pair().expect("a pair");
    send(&here, b"far too long", &[here.as_raw_fd()]).expect("room for one");
    send(&here, b"next", &[]).expect("room for one");
    let mut bytes = [0; 4];
    let error = receive(&there, &mut bytes).expect_err("it does not fit");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let (len, _) = receive(&there, &mut bytes).expect("the next one fits");
    assert_eq!(&bytes[..len], b"next");
}

/// With the most descriptors of one message, and after each kind of error.
#[test]
fn every_received_descriptor_is_closed_in_the_end() {
    let (here, there) = seqpacket_pair().expect("a pair");
    let (reader, writer) = io::pipe().expect("a pipe");
    let mut bytes = [0; 4];
    let most = vec![writer.as_raw_fd(); MESSAGE_FDS_MAX];
    send(&here, b"most", &most).expect("as many as may");
    let (_, fds) = receive(&there, &mut bytes).expect("a message");
    assert_eq!(fds.len(), MESSAGE_FDS_MAX);
    send(&here, b"too long", &most).expect("as many as may");
    receive(&there, &mut bytes).expect_err("the bytes do not fit");
    let more = vec![writer.as_raw_fd(); MESSAGE_FDS_MAX + 1];
    send(&here, b"more", &more).expect_err("more than may");
    drop((fds, writer));
    // The end of the pipe comes when the last writer is closed.
    assert_eq!(io::read_to_string(reader).expect("readable"), "");
}

/// A process that has the receiver may ask for it (`SO_PASSPIDFD`).
#[test]
fn a_descriptor_of_the_process_that_sent_is_closed() {
    let (here, there) = seqpacket_pair().expect("a pair");
    // Linux before 6.5 does not know the option.
    let asked = set_option(&there, libc::SOL_SOCKET, libc::SO_PASSPIDFD, 1);
    for fds in [&[][..], &[here.as_raw_fd()]] {
        send(&here, b"who", fds).expect("room for one");
        let (_, received) = receive(&there, &mut [0; 4]).expect("a message");
        assert_eq!(received.len(), fds.len());
    }
    let open = std::fs::read_dir("/proc/self/fd").expect("proc(5) is mounted");
    let files = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let left = files.filter(|file| file.to_string_lossy().contains("pidfd"));
    assert_eq!(left.count(), 0, "{asked:?}");
}

#[test]
fn receive_bytes_refuses_a_message_with_descriptors_and_leaves_it_in_the_socket() {
    let (here, there) = seqpacket_pair().expect("a pair");
    let mut bytes = [0; 16];
    let nothing = receive_bytes(&there, &mut bytes).expect_err("nothing was sent");
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    send(&here, b"plain", &[]).expect("room for one");
    send(&here, b"far too long to fit", &[]).expect("room for one");
    send(&here, b"two", &[here.as_raw_fd(); 2]).expect("room for one");
    assert_eq!(receive_bytes(&there, &mut bytes).expect("a message"), 5);
    let error = receive_bytes(&there, &mut bytes).expect_err("it does not fit");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    for _ in 0..2 {
        let error = receive_bytes(&there, &mut bytes).expect_err("it has descriptors");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let (len, fds) = receive(&there, &mut bytes).expect("it is still there");
    assert_eq!((&bytes[..len], fds.len()), (&b"two"[..], 2));
    drop((here, fds));
    until_other_end_closed(&there);
    assert_eq!(receive_bytes(&there, &mut bytes).expect("the end"), 0);
}

#[test]
fn a_socket_that_refuses_descriptors_takes_bytes() {
    let (here, there) = seqpacket_pair().expect("a pair");
    refuse_descriptors(&there);
    let mut bytes = [0; 16];
    // Linux before 6.16 accepts the message, and `receive_bytes` refuses it.
    if let Err(error) = send(&here, b"fds", &[here.as_raw_fd()]) {
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        send(&here, b"bytes", &[]).expect("room for one");
        assert_eq!(receive_bytes(&there, &mut bytes).expect("a message"), 5);
    }
    send(&there, b"fds", &[here.as_raw_fd()]).expect("the other side takes them");
    assert_eq!(receive(&here, &mut bytes).expect("a message").1.len(), 1);
}

#[test]
fn a_number_that_is_not_open_has_no_duplicate() {
    for fd in [-1, 1_000_000] {
        let error = duplicate(fd).expect_err("it is not open");
        assert_eq!(error.raw_os_error(), Some(Errno::EBADF as i32));
    }
    let (here, _there) = seqpacket_pair().expect("a pair");
    let copy = duplicate(here.as_raw_fd()).expect("it is open");
    let flags = fcntl(&copy, FcntlArg::F_GETFD).expect("it is open");
    assert_eq!(flags, FdFlag::FD_CLOEXEC.bits());
}

#[test]
fn a_closed_side_is_reported_as_length_0() {
    let (here, there) = seqpacket_pair().expect("a pair");
    let mut bytes = [0; 4];
    let error = receive(&there, &mut bytes).expect_err("nothing was sent");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    drop(here);
    until_other_end_closed(&there);
    assert_eq!(receive(&there, &mut bytes).expect("the end").0, 0);
}

#[test]
fn a_socket_pair_has_a_maker_and_other_descriptors_have_none() {
    let (here, _there) = seqpacket_pair().expect("a pair");
    assert_eq!(seqpacket_maker(here.as_raw_fd()), Some(Pid::this()));
    let (reader, _writer) = io::pipe().expect("a pipe");
    assert_eq!(seqpacket_maker(reader.as_raw_fd()), None);
    assert_eq!(seqpacket_maker(1_000_000), None);
}
