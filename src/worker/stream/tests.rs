use std::future::poll_fn;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;
use crate::sys::fds::tests::until_other_end_closed;

/// The client's end of a connection, and the worker's.
fn pair() -> (net::TcpStream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let client = net::TcpStream::connect(address).expect("it listens");
    let (socket, _) = listener.accept().expect("the client waits");
    socket.set_nonblocking(true).expect("a socket");
    (client, Stream::new(socket))
}

fn first_bytes(stream: &mut Stream) -> Vec<u8> {
    let mut first = Vec::new();
    stream.read_first(|bytes| first.extend_from_slice(bytes));
    first
}

fn is_new(stream: &Stream) -> bool {
    matches!(stream, Stream::New(_))
}

/// The test has no runtime, so registering the socket would panic.
#[test]
fn a_request_and_its_response_need_no_runtime() {
    let (mut client, mut stream) = pair();
    client.write_all(b"request").expect("it is open");
    // On loopback, written bytes can be read at once.
    assert_eq!(first_bytes(&mut stream), b"request");
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let written = Pin::new(&mut stream).poll_write(&mut cx, b"response");
    assert!(matches!(written, Poll::Ready(Ok(8))), "{written:?}");
    assert!(is_new(&stream));
    drop(stream);
    let mut response = String::new();
    client.read_to_string(&mut response).expect("it ends");
    assert_eq!(response, "response");
}

/// epoll_ctl(2) refuses files.
#[tokio::test]
async fn a_socket_that_the_kernel_does_not_watch_is_lost_and_told() {
    let file = net::TcpStream::from(OwnedFd::from(tempfile::tempfile().expect("a file")));
    file.set_nonblocking(true).expect("it is open");
    let mut stream = Stream::new(file);
    assert!(stream.registered().is_err());
    assert!(matches!(stream, Stream::Lost));
    let told = LOST.with_borrow_mut(|lost| lost.note(tokio::time::Instant::now()));
    assert_eq!(told, None, "there was a line just before");
}

#[tokio::test]
async fn the_end_of_file_is_sent_with_the_last_bytes() {
    for is_registered in [false, true] {
        let (mut client, mut stream) = pair();
        if is_registered {
            stream.registered().expect("a runtime");
        }
        let written = poll_fn(|cx| stream.poll_write_last(cx, b"last")).await;
        assert_eq!(written.expect("it is open"), 4);
        assert_eq!(is_new(&stream), !is_registered);
        let mut response = String::new();
        client.read_to_string(&mut response).expect("it ends");
        assert_eq!(response, "last");
    }
}

#[tokio::test]
async fn a_read_waits_for_bytes_that_come_later() {
    let (mut client, mut stream) = pair();
    assert_eq!(first_bytes(&mut stream), b"");
    assert!(is_new(&stream));
    let later = tokio::task::spawn_blocking(move || {
        client.write_all(b"late").expect("it is open");
        client
    });
    poll_fn(|cx| stream.poll_read_ready(cx))
        .await
        .expect("it comes");
    let _client = later.await.expect("it writes");
    assert_eq!(first_bytes(&mut stream), b"", "it is registered");
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).await.expect("it is there");
    assert_eq!(&bytes, b"late");
}

#[tokio::test]
async fn the_second_read_or_write_registers_the_socket() {
    for second in [Interest::READABLE, Interest::WRITABLE] {
        let (mut client, mut stream) = pair();
        client.write_all(b"12").expect("it is open");
        assert_eq!(stream.read_u8().await.expect("it is there"), b'1');
        stream.write_u8(b'a').await.expect("it is open");
        assert!(is_new(&stream));
        match second {
            Interest::READABLE => {
                assert_eq!(stream.read_u8().await.expect("it is there"), b'2');
            }
            _ => stream.write_u8(b'b').await.expect("it is open"),
        }
        assert!(!is_new(&stream));
    }
}

/// More bytes than the kernel takes at once.
fn large_response() -> Vec<u8> {
    (0..=u8::MAX).cycle().take(16 << 20).collect()
}

/// Reads until the end of file, in another thread.
fn read_all(mut client: net::TcpStream) -> JoinHandle<Vec<u8>> {
    tokio::task::spawn_blocking(move || {
        let mut read = Vec::new();
        client.read_to_end(&mut read).expect("it ends");
        read
    })
}

#[tokio::test]
async fn a_large_response_is_sent_in_whole() {
    let (client, mut stream) = pair();
    let response = large_response();
    let reader = read_all(client);
    stream.write_all(&response).await.expect("it is read");
    stream.shutdown().await.expect("it is open");
    assert!(reader.await.expect("it reads") == response);
}

#[tokio::test]
async fn closed_is_the_same_before_and_after_the_socket_is_registered() {
    for (shutdown, closed) in [
        (None, Closed::Nothing),
        (Some(net::Shutdown::Write), Closed::Sending),
        (Some(net::Shutdown::Both), Closed::Everything),
    ] {
        let (mut client, mut stream) = pair();
        client.write_all(b"?").expect("it is open");
        let _client = match shutdown {
            // The client has unread bytes, so its close(2) resets the connection.
            Some(net::Shutdown::Both) => {
                stream.write_u8(b'!').await.expect("it is open");
                drop(client);
                until_other_end_closed(&stream);
                None
            }
            Some(how) => {
                client.shutdown(how).expect("it is open");
                Some(client)
            }
            None => Some(client),
        };
        assert_eq!(stream.closed(), closed, "{shutdown:?}");
        poll_fn(|cx| stream.poll_read_ready(cx)).await.expect("?");
        assert!(!is_new(&stream));
        assert_eq!(stream.closed(), closed, "{shutdown:?}, registered");
    }
}

/// The client's end of a connection, and the worker's, which is registered with the runtime.
fn registered_pair() -> (net::TcpStream, Stream) {
    let (client, mut stream) = pair();
    stream.registered().expect("a runtime");
    (client, stream)
}

async fn read_unconstrained(stream: &mut Stream, len_max: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_max];
    let mut buf = ReadBuf::new(&mut bytes);
    poll_fn(|cx| stream.poll_read_unconstrained(cx, &mut buf))
        .await
        .expect("it is open");
    buf.filled().to_vec()
}

#[tokio::test]
async fn a_read_without_a_budget_misses_nothing() {
    let (mut client, mut stream) = registered_pair();
    client.write_all(b"1234").expect("it is open");
    assert_eq!(read_unconstrained(&mut stream, 3).await, b"123");
    assert_eq!(read_unconstrained(&mut stream, 3).await, b"4");
    // The last read was short, so it has emptied the socket.
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(stream.poll_read_ready(&mut cx).is_pending());
    client.write_all(b"5").expect("it is open");
    assert_eq!(read_unconstrained(&mut stream, 3).await, b"5");
    let later = tokio::task::spawn_blocking(move || {
        client.write_all(b"6").expect("it is open");
    });
    assert_eq!(read_unconstrained(&mut stream, 3).await, b"6");
    later.await.expect("it writes");
    assert_eq!(read_unconstrained(&mut stream, 3).await, b"", "it ends");
}

#[tokio::test]
async fn a_write_without_a_budget_sends_a_large_response_in_whole() {
    let (client, mut stream) = registered_pair();
    let response = large_response();
    let reader = read_all(client);
    let mut left = &response[..];
    while !left.is_empty() {
        let written = poll_fn(|cx| stream.poll_write_unconstrained(cx, left)).await;
        left = &left[written.expect("it is read")..];
    }
    drop(stream);
    assert!(reader.await.expect("it reads") == response);
}

/// The caller of an unconstrained write must yield to other tasks by itself.
#[tokio::test]
async fn an_unconstrained_write_succeeds_without_a_budget() {
    let (mut client, mut stream) = registered_pair();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    while tokio::task::coop::has_budget_remaining() {
        let proceeded = tokio::task::coop::poll_proceed(&mut cx);
        if let Poll::Ready(budget) = proceeded {
            budget.made_progress();
        }
    }
    let written = stream.poll_write_unconstrained(&mut cx, b"response");
    assert!(matches!(written, Poll::Ready(Ok(8))), "{written:?}");
    let mut bytes = [0; 8];
    client.read_exact(&mut bytes).expect("it is there");
    assert_eq!(&bytes, b"response");
}

/// Sends this part of the file and ends the stream. Returns the number of bytes that were sent.
async fn send_part(mut stream: Stream, file: &File, part: std::ops::Range<u64>) -> u64 {
    let mut at = part.start;
    while at < part.end {
        let length = usize::try_from(part.end - at).expect("it fits");
        let sent = poll_fn(|cx| stream.poll_send_file(cx, file, at, length)).await;
        match sent.expect("it is read") {
            0 => break,
            sent => at += sent as u64,
        }
    }
    at - part.start
}

#[tokio::test]
async fn a_part_of_a_file_comes_behind_its_head() {
    let content = large_response();
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&content).expect("space");
    for (client, mut stream) in [pair(), registered_pair()] {
        let reader = read_all(client);
        let head = poll_fn(|cx| stream.poll_write_before_file(cx, b"head")).await;
        assert_eq!(head.expect("it is read"), 4);
        let end = content.len() as u64 - 3;
        assert_eq!(send_part(stream, &file, 7..end).await, end - 7);
        let read = reader.await.expect("it reads");
        assert_eq!(read[..4], *b"head");
        assert!(read[4..] == content[7..content.len() - 3]);
    }
}

#[tokio::test]
async fn the_end_of_a_file_is_zero_bytes_beyond_four_gibibytes_too() {
    let end = (5 << 30) + 10;
    let file = tempfile::tempfile().expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, b"0123456789", end - 10).expect("space");
    let (client, stream) = pair();
    let reader = read_all(client);
    assert_eq!(send_part(stream, &file, end - 8..end + 8).await, 8);
    assert_eq!(reader.await.expect("it reads"), b"23456789");
}
