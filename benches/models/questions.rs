//! The questions, each with what it leaves out.

use std::fs;
use std::path::Path;

use crate::handlers::{BODY, COMPUTED};
use crate::load::{Ask, Plan};
use crate::server::{App, Model};
use crate::support::cpus;
use crate::support::options::Extent;
use crate::support::tree::allowed;

/// A part of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loop {
    Closed,
    Open,
}

/// One load on every model.
pub(crate) struct Question {
    pub(crate) name: String,
    pub(crate) app: App,
    pub(crate) plan: Plan,
    /// Connections beside those, which have had one response and rest.
    pub(crate) idle: usize,
    /// What one more client asks for all the time.
    pub(crate) greedy: Option<Ask>,
    /// Before this loop all servers get its load for the time of four loops, and nothing is
    /// measured. For loads to which a server adapts in some seconds.
    pub(crate) settles_before: Option<Loop>,
    /// Whether a server has one worker, on a CPU on which another process computes. Else it has a
    /// worker for each CPU.
    pub(crate) beside_neighbour: bool,
}

impl Question {
    /// To the handlers, on connections that are kept if `usual` keeps them.
    fn new(name: impl Into<String>, connections: usize, usual: Ask) -> Self {
        Self {
            name: name.into(),
            app: App::Handlers,
            plan: Plan::new(connections, usual),
            idle: 0,
            greedy: None,
            settles_before: None,
            beside_neighbour: false,
        }
    }

    /// Whether the server can be asked which worker has each connection.
    pub(crate) fn tells_workers(&self, model: Model) -> bool {
        let handlers = matches!(self.app, App::Handlers);
        handlers && !self.plan.usual.closes && model.keeps_connections_apart()
    }
}

/// `directory` is for files.
pub(crate) fn all(extent: Extent, directory: &Path) -> Vec<Question> {
    let mut all = keep_alive();
    all.push(browsing());
    all.extend(neighbour());
    all.extend(churn());
    all.push(pipelined());
    all.push(waiting());
    all.extend(computing());
    all.push(mixed());
    all.push(uneven());
    all.extend(idle(extent));
    all.extend(files(directory));
    all
}

fn hello() -> Ask {
    Ask::get("/").expecting(BODY)
}

/// What does a request on a kept connection cost, with one client, a few, many?
///
/// With 1 and 4 connections the kernel's spread over the listeners is a matter of luck, and each
/// round draws anew. With 1 most of the time is spent in waking each other up.
///
/// Not measured: more connections than fit the caches (see [`idle`]), handlers that do anything.
fn keep_alive() -> Vec<Question> {
    let cases = [1, 4, 64, 512];
    cases
        .map(|connections| Question::new(format!("keep_alive_{connections}"), connections, hello()))
        .into()
}

/// What does a request cost that no client sends a second time?
///
/// 64 connections, and requests as a browser sends them from page to page.
///
/// Not measured: how browsers open and close connections.
fn browsing() -> Question {
    Question::new("browsing_64", 64, Ask::browsing().expecting(BODY))
}

/// What does a request cost while another process computes on the worker's CPU?
///
/// Each server has one worker, pinned to one CPU together with a process that never stops
/// computing. The load driver runs on the other CPUs, as clients on a network do: a request wakes
/// the worker by an interrupt, and no waker goes to sleep on the worker's CPU. A setting that makes
/// workers wait for their turn looks good beside a load driver that shares their CPU, and bad here.
///
/// Not measured: a neighbour that sleeps or does I/O, more than one worker.
fn neighbour() -> Vec<Question> {
    if cpus::usable().len() < 2 {
        eprintln!("neighbour_1, _8 and _64 are left out: they need two CPUs");
        return Vec::new();
    }
    let cases = [1, 8, 64];
    cases
        .map(|connections| Question {
            beside_neighbour: true,
            ..Question::new(format!("neighbour_{connections}"), connections, hello())
        })
        .into()
}

/// What does a connection cost that lives for one request?
///
/// 64 or 256 clients connect, send one request with `Connection: close`, read to the end and
/// connect again. The server closes first, so the ports in TIME_WAIT are its own and the clients
/// never run out of theirs. To open a connection costs the one driving thread about as much as it
/// costs a server to accept it: look at the driver's column before reading anything into the
/// throughput.
///
/// Each turn begins with four seconds of this load that are not measured. After about two of them
/// the master of `prefork` has the kernel keep each connection until its first byte has come
/// (`--defer-accept auto`). It ends that when the server is idle, as it is between its turns.
///
/// Not measured: the first seconds of a rush, a queue that overflows, and how connections are
/// spread.
fn churn() -> Vec<Question> {
    let cases = [64, 256];
    cases
        .map(|clients| Question {
            settles_before: Some(Loop::Closed),
            ..Question::new(format!("churn_{clients}"), clients, hello().closing())
        })
        .into()
}

/// What does a request cost whose fifteen successors lie in the same buffer?
///
/// 64 connections send 16 requests in one write and wait for all responses. With the system calls
/// shared among sixteen this is mostly parsing and the handler's way through hyper.
///
/// Not measured: clients as they are. Browsers do not pipeline.
fn pipelined() -> Question {
    let mut question = Question::new("pipelined_x16", 64, hello());
    question.plan.pipeline = 16;
    question
}

/// What does it cost to wait for something else, as most handlers do?
///
/// 512 connections whose handler sleeps 100 ms before it responds. The most that any server can
/// do is 5,120 requests in a second. The CPU time and the latency beyond 100 ms are what differs.
///
/// Not measured: what is waited for. A timer stands for a database.
fn waiting() -> Question {
    Question::new("sleep_100ms_512", 512, Ask::get("/sleep").expecting(BODY))
}

/// Which server keeps all CPUs busy when handlers compute and do not yield?
///
/// With few connections a fixed split leaves a CPU idle while requests queue behind another: this
/// is what prefork is worst at, and what a runtime that moves tasks is made for.
///
/// Not measured: handlers that move such work to other threads, as they should when it is long.
fn computing() -> Vec<Question> {
    let cases = [(50, 4), (50, 64), (500, 4), (500, 64)];
    cases
        .map(|(micros, connections)| {
            let ask = Ask::get(&format!("/cpu/{micros}")).expecting(COMPUTED);
            Question::new(format!("cpu_{micros}us_{connections}"), connections, ask)
        })
        .into()
}

/// How long do light requests wait behind a heavy one?
///
/// 64 connections; one request in a hundred computes for 5 ms, the others do nothing. A request
/// that shares a thread with the heavy one waits for it: in prefork all other connections of that
/// worker, in the multi-threaded runtime only those that no other thread takes over.
///
/// Not measured: which of the latencies are the heavy requests' own. They are one in a hundred, so
/// p50 is the light ones', and p99 is where the two meet.
fn mixed() -> Question {
    let heavy = Ask::get("/cpu/5000").expecting(COMPUTED);
    let mut question = Question::new("mixed_64", 64, hello());
    question.plan.seldom = Some((10, heavy));
    question
}

/// How long do light requests wait if one client keeps a worker busy?
///
/// 64 connections with light requests, and one client more, whose requests compute for 5 ms, one
/// after the other. A light request that shares a thread with it waits for it. The figures are
/// those of the light requests, but the CPU time is also that of the client's. The latencies are
/// measured after four seconds of the open loop: workers take some to learn which of them has time.
///
/// Not measured: more such clients than workers.
fn uneven() -> Question {
    let heavy = Ask::get("/cpu/5000").expecting(COMPUTED);
    Question {
        greedy: Some(heavy),
        settles_before: Some(Loop::Open),
        ..Question::new("uneven_64", 64, hello())
    }
}

/// What does a connection cost that is only there?
///
/// 8,000 connections have had one response and rest; 64 others are busy. The memory of one is the
/// growth of the server's proportional set size, divided, in a server that has had no connections
/// before but the 64, so that no memory is there to be used again. What the kernel keeps for a
/// socket is in no process's set.
///
/// Not measured: connections that rest for longer than a few seconds, and what TLS adds.
fn idle(extent: Extent) -> Option<Question> {
    let idle = match extent {
        // Enough to run through all of it.
        Extent::Smoke => 200,
        Extent::Quick | Extent::Full => 8000,
    };
    if allowed(idle) < idle {
        eprintln!("idle_8000 is left out: it needs more open files than are allowed");
        return None;
    }
    Some(Question {
        idle,
        ..Question::new("idle_8000", 64, hello())
    })
}

/// What does a file cost, by its size?
///
/// 64 connections ask for the same file of 1 KiB, 64 KiB or 1 MiB, which stays in the page cache.
/// Here `prefork` is this package's binary, as it serves a directory, and the other models run
/// tower-http's `ServeDir`, as axum and most others do.
///
/// Not measured: disks, many files, ranges, conditional requests, compression.
fn files(directory: &Path) -> Vec<Question> {
    let cases = [("1kib", 1 << 10), ("64kib", 64 << 10), ("1mib", 1 << 20)];
    cases
        .map(|(name, size)| {
            // Bytes that differ from their neighbours, so that a part in the wrong place is seen.
            let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            fs::write(directory.join(name), &content).expect("it is ours");
            let ask = Ask::get(&format!("/{name}")).expecting(content);
            Question {
                app: App::Files(directory.to_owned()),
                ..Question::new(format!("file_{name}"), 64, ask)
            }
        })
        .into()
}
