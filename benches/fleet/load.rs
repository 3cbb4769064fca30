//! The load: requests at a steady rate, whatever becomes of those before. Each has a number, which
//! is in its path and in its body, and the response must repeat the body.
//!
//! Three of four requests go over connections that are kept, which as many requests share as are
//! under way at once; the fourth opens a connection of its own and asks for its end. Every second
//! request is a PUT, which a balancer may send again, and every other a POST, which it may not.

use std::cell::RefCell;
use std::io::{ErrorKind, Result as IoResult};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::process::Trouble;
use crate::support::load::{Expected, Fate, Response};

/// Longer than the balancers wait for a server, twice.
const TIMEOUT: Duration = Duration::from_secs(25);

/// How much of a response is told if it is wrong.
const TOLD_MAX: usize = 300;

/// How a failure ends if nothing came back on a connection that was used before.
pub(crate) const KEPT: &str = ", kept connection";

/// What became of one request. Times are since the load began.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: usize,
    pub(crate) sent: Duration,
    pub(crate) done: Duration,
    /// Why there was no right response.
    pub(crate) failure: Option<String>,
}

pub(crate) struct Load {
    began: Instant,
    over: Arc<AtomicBool>,
    requests: Option<JoinHandle<IoResult<Vec<Record>>>>,
}

impl Load {
    pub(crate) fn start(address: SocketAddr, per_second: u32) -> Self {
        let (began, over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let is_over = Arc::clone(&over);
        let requests = thread::spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())?;
            Ok(runtime.block_on(requests(address, per_second, began, &is_over)))
        });
        Self {
            began,
            over,
            requests: Some(requests),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for all responses. In the order of their ends.
    pub(crate) fn finish(mut self) -> Result<Vec<Record>, Trouble> {
        self.over.store(true, Relaxed);
        let requests = self.requests.take().expect("it finishes once").join();
        let failed = |_| Trouble::Stuck("the load itself failed".into());
        Ok(requests.map_err(failed)??)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(requests) = self.requests.take() {
            // The run has failed already, so what was counted is of no use.
            let _ = requests.join();
        }
    }
}

async fn requests(
    address: SocketAddr,
    per_second: u32,
    began: Instant,
    over: &AtomicBool,
) -> Vec<Record> {
    let kept = Rc::new(RefCell::new(Vec::new()));
    let mut under_way = JoinSet::new();
    let mut arrivals = interval(Duration::from_secs(1) / per_second);
    arrivals.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut records = Vec::new();
    for number in 1.. {
        arrivals.tick().await;
        if over.load(Relaxed) {
            break;
        }
        let kept = Rc::clone(&kept);
        under_way.spawn_local(async move {
            let sent = began.elapsed();
            let ended = timeout(TIMEOUT, ask(address, number, &kept)).await;
            let ended = ended.unwrap_or_else(|_| Err("silent".into()));
            Record {
                number,
                sent,
                done: began.elapsed(),
                failure: ended.err(),
            }
        });
        while let Some(record) = under_way.try_join_next() {
            records.push(record.expect("a request does not panic"));
        }
    }
    while let Some(record) = under_way.join_next().await {
        records.push(record.expect("a request does not panic"));
    }
    records
}

type Kept = RefCell<Vec<TcpStream>>;

/// One request and its response.
async fn ask(address: SocketAddr, number: usize, kept: &Kept) -> Result<(), String> {
    let is_kept = !number.is_multiple_of(4);
    let old = is_kept.then(|| open_one(kept)).flatten();
    let was_used = old.is_some();
    let mut stream = match old {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(address).await;
            stream.map_err(|error| format!("no connection: {error}"))?
        }
    };
    // It is a socket of TCP.
    let _ = stream.set_nodelay(true);
    let method = ["PUT", "POST"][(number + number / 4) % 2];
    let fields = if is_kept { "" } else { "Connection: close\r\n" };
    let token = format!("request {number} of the load");
    let request = format!(
        "{method} /{number} HTTP/1.1\r\nHost: fleet\r\n{fields}Content-Length: {}\r\n\r\n{token}",
        token.len(),
    );
    let mut told = Vec::new();
    let response = exchange(&mut stream, request.as_bytes(), &token, &mut told).await;
    match response {
        Ok(fate) => {
            if is_kept && fate == Fate::Kept {
                kept.borrow_mut().push(stream);
            }
            Ok(())
        }
        Err(why) if told.is_empty() && was_used => Err(format!("{why}{KEPT}")),
        Err(why) if told.is_empty() => Err(format!("{why}, new connection")),
        Err(why) => {
            Err(status_of(&told).unwrap_or_else(|| format!("{why}: {}", told.escape_ascii())))
        }
    }
}

/// A kept connection that the balancer has not closed.
fn open_one(kept: &Kept) -> Option<TcpStream> {
    loop {
        let stream = kept.borrow_mut().pop()?;
        if let Err(error) = stream.try_read(&mut [0])
            && error.kind() == ErrorKind::WouldBlock
        {
            return Some(stream);
        }
    }
}

async fn exchange(
    stream: &mut TcpStream,
    request: &[u8],
    token: &str,
    told: &mut Vec<u8>,
) -> Result<Fate, String> {
    let broken = |error: std::io::Error| match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "reset".to_owned(),
        _ => error.to_string(),
    };
    stream.write_all(request).await.map_err(broken)?;
    let expected = Expected::Bytes(token.as_bytes().into());
    let (mut parser, mut bytes) = (Response::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut bytes).await.map_err(broken)?;
        if count == 0 {
            return Err("eof".into());
        }
        let room = TOLD_MAX.saturating_sub(told.len());
        told.extend_from_slice(&bytes[..count.min(room)]);
        match parser.feed(&bytes[..count], &expected) {
            Ok(None) => {}
            Ok(Some((used, fate))) if used == count => return Ok(fate),
            Ok(Some(_)) => return Err("more than a response".into()),
            Err(failure) => return Err(failure.name().into()),
        }
    }
}

/// The status, if it is not the one that was expected.
fn status_of(response: &[u8]) -> Option<String> {
    let line = str::from_utf8(response.get(..12)?).ok()?;
    let status = line.strip_prefix("HTTP/1.1 ")?;
    (status != "200").then(|| status.to_owned())
}
