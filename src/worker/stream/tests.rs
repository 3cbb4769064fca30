use std::future::poll_fn;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;

/// A client's end, and ours.
fn pair() -> (net::TcpStream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let client = net::TcpStream::connect(address).expect("it listens");
    let (ours, _) = listener.accept().expect("somebody waits");
    ours.set_nonblocking(true).expect("a socket");
    (client, Stream::new(ours))
}

fn is_new(stream: &Stream) -> bool {
    matches!(stream, Stream::New(_))
}

/// No runtime: registering would panic.
#[test]
fn a_request_and_its_answer_need_no_runtime() {
    let (mut client, mut stream) = pair();
    client.write_all(b"request").expect("it is open");
    // Of loopback, what is written is there.
    assert_eq!(stream.glance().as_deref(), Some(&b"request"[..]));
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let written = Pin::new(&mut stream).poll_write(&mut cx, b"answer");
    assert!(matches!(written, Poll::Ready(Ok(6))), "{written:?}");
    assert!(is_new(&stream));
    drop(stream);
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it ends");
    assert_eq!(answer, "answer");
}

/// The kernel keeps them for a while; if the time was up there is nothing to be seen.
#[test]
fn the_last_bytes_wait_for_the_end_of_file() {
    loop {
        let (client, stream) = pair();
        let begun = Instant::now();
        assert_eq!(send_more(&stream.as_fd(), b"last").expect("it is open"), 4);
        let now = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let came = recv(client.as_raw_fd(), &mut [0], now);
        if begun.elapsed() < Duration::from_millis(100) {
            assert_eq!(came, Err(Errno::EAGAIN));
            break;
        }
    }
}

#[tokio::test]
async fn the_last_bytes_take_the_end_of_file_along() {
    for is_known in [false, true] {
        let (mut client, mut stream) = pair();
        if is_known {
            stream.known().expect("a runtime");
        }
        let written = poll_fn(|cx| stream.poll_write_last(cx, b"last")).await;
        assert_eq!(written.expect("it is open"), 4);
        assert_eq!(is_new(&stream), !is_known);
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("it ends");
        assert_eq!(answer, "last");
    }
}

#[tokio::test]
async fn what_comes_later_is_waited_for() {
    let (mut client, mut stream) = pair();
    assert_eq!(stream.glance(), None);
    assert!(is_new(&stream));
    let later = tokio::task::spawn_blocking(move || {
        client.write_all(b"late").expect("it is open");
        client
    });
    poll_fn(|cx| stream.poll_read_ready(cx))
        .await
        .expect("it comes");
    let _client = later.await.expect("it writes");
    assert_eq!(stream.glance(), None, "it belongs to the runtime");
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).await.expect("it is there");
    assert_eq!(&bytes, b"late");
}

#[tokio::test]
async fn the_second_of_each_is_the_runtimes() {
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

/// More than the kernel takes at once.
fn large_answer() -> Vec<u8> {
    (0..=u8::MAX).cycle().take(16 << 20).collect()
}

/// What a client is sent until the end.
fn read_all(mut client: net::TcpStream) -> JoinHandle<Vec<u8>> {
    tokio::task::spawn_blocking(move || {
        let mut read = Vec::new();
        client.read_to_end(&mut read).expect("it ends");
        read
    })
}

#[tokio::test]
async fn a_large_answer_is_waited_for() {
    let (client, mut stream) = pair();
    let answer = large_answer();
    let reader = read_all(client);
    stream.write_all(&answer).await.expect("it is read");
    stream.shutdown().await.expect("it is open");
    assert!(reader.await.expect("it reads") == answer);
}

#[tokio::test]
async fn the_runtime_and_the_kernel_agree_on_who_has_left() {
    for (leaves, closed) in [
        (None, Closed::Nothing),
        (Some(net::Shutdown::Write), Closed::Sending),
        (Some(net::Shutdown::Both), Closed::Everything),
    ] {
        let (mut client, mut stream) = pair();
        client.write_all(b"?").expect("it is open");
        let _still_here = match leaves {
            // What it has not read has it reset the connection.
            Some(net::Shutdown::Both) => {
                stream.write_u8(b'!').await.expect("it is open");
                drop(client);
                None
            }
            Some(how) => {
                client.shutdown(how).expect("it is open");
                Some(client)
            }
            None => Some(client),
        };
        assert_eq!(stream.closed(), closed, "{leaves:?}");
        poll_fn(|cx| stream.poll_read_ready(cx)).await.expect("?");
        assert!(!is_new(&stream));
        assert_eq!(stream.closed(), closed, "{leaves:?}, as the runtime has it");
    }
}

/// A stream that the runtime knows, and its client.
fn known_pair() -> (net::TcpStream, Stream) {
    let (client, mut stream) = pair();
    stream.known().expect("a runtime");
    (client, stream)
}

async fn read_unconstrained(stream: &mut Stream, room: usize) -> Vec<u8> {
    let mut bytes = vec![0; room];
    let mut buf = ReadBuf::new(&mut bytes);
    poll_fn(|cx| stream.poll_read_unconstrained(cx, &mut buf))
        .await
        .expect("it is open");
    buf.filled().to_vec()
}

#[tokio::test]
async fn a_read_without_a_budget_misses_nothing() {
    let (mut client, mut stream) = known_pair();
    client.write_all(b"1234").expect("it is open");
    assert_eq!(read_unconstrained(&mut stream, 3).await, b"123");
    assert_eq!(read_unconstrained(&mut stream, 3).await, b"4");
    // The last was short, so that all has come.
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
async fn a_write_without_a_budget_waits_for_room() {
    let (client, mut stream) = known_pair();
    let answer = large_answer();
    let reader = read_all(client);
    let mut left = &answer[..];
    while !left.is_empty() {
        let written = poll_fn(|cx| stream.poll_write_unconstrained(cx, left)).await;
        left = &left[written.expect("it is read")..];
    }
    drop(stream);
    assert!(reader.await.expect("it reads") == answer);
}

/// A task may do so as often as it likes: whoever asks gives others their turn by himself.
#[tokio::test]
async fn neither_needs_a_budget() {
    let (mut client, mut stream) = known_pair();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    while tokio::task::coop::has_budget_remaining() {
        let proceeded = tokio::task::coop::poll_proceed(&mut cx);
        if let Poll::Ready(budget) = proceeded {
            budget.made_progress();
        }
    }
    let written = stream.poll_write_unconstrained(&mut cx, b"answer");
    assert!(matches!(written, Poll::Ready(Ok(6))), "{written:?}");
    let mut bytes = [0; 6];
    client.read_exact(&mut bytes).expect("it is there");
    assert_eq!(&bytes, b"answer");
}
