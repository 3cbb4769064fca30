//! A prefork HTTP server: one supervised process per core, each with its own listener.
//!
//! A *master* process without an async runtime holds the listeners and supervises. *Workers*,
//! which are the same program executed again, serve: each has one thread, one tokio runtime and a
//! listener of its own, so the kernel spreads new connections over them. The master keeps each
//! listener and its queue when a worker crashes or is replaced, and when the master itself becomes
//! a newer binary. When a worker is replaced, its connections go to the next worker, each when no
//! request is open; when it crashes, they are lost. Linux only (5.10 or newer).
//!
//! ```no_run
//! use prefork_server::{Exit, Prefork, Response, handler};
//!
//! fn main() -> Exit {
//!     Prefork::bind("127.0.0.1:8080")
//!         .serve(async |_worker| {
//!             Ok(handler(async |_request| {
//!                 Ok(Response::new("Hello, World!".into()))
//!             }))
//!         })
//!         .into()
//! }
//! ```
//!
//! # Called in every process
//!
//! **[`Prefork::serve`] and [`Prefork::run`] are called in every process: in the master they
//! supervise, in a worker they serve and never return.** The code before them in `main` runs in
//! each process: in the master, again in the master after an upgrade, in each worker that starts,
//! and in the process of each [admin address](Prefork::admin). So
//!
//! - what each worker needs (a pool, a cache) belongs into the closure, which runs once per
//!   worker, inside its runtime;
//! - what only one process may do (migrate a database, write a file) belongs behind [`role`], or
//!   into a [hook](Hooks) that is called in the master;
//! - nothing before them may depend on being alone: no lock file, no port, no prompt;
//! - other programs may be started before them, and get no descriptor of the server; but a worker
//!   that itself becomes another program (execve(2)) loses its listeners and its control channel;
//! - the master reaps the programs that its serving thread has started before. A later wait for
//!   one fails (`ECHILD`): wait for it before, or start it on another thread, which waits for it;
//! - a worker begins with the environment and the working directory that the master has then, so
//!   also with what `main` has changed there: a variable that `main` removes is missing in each
//!   worker, and a relative path that `main` enters is entered once more. The arguments are those
//!   of the master, but the first one, by which ps(1) shows what the process is: `app: worker
//!   slot=0 generation=1`. Standard input is `/dev/null`;
//! - state made before them is not shared. Each process has its own;
//! - a worker serves in the first call that it comes to. So the workers of a second server, which
//!   the program starts when the first one has ended, serve the app of the first.
//!
//! # The log
//!
//! Master and workers log by the `tracing` facade, and the program chooses the subscriber. Install
//! it in `main` before [`Prefork::serve`], so that each process has it:
//! `tracing_subscriber::fmt().init()`. Without a subscriber nothing is logged: not that the
//! server serves, and not why a handler's response was 500. A program with a logger of the crate
//! `log`, such as env_logger, gets these lines by a feature of tracing; its own dependencies need
//! `tracing = { version = "0.1", features = ["log"] }`. They do not have the span `worker`.
//!
//! The master has one thread, which writes each line itself. So a subscriber whose writer blocks
//! stops the master for as long: no worker is replaced and no signal is heard while the reader of a
//! pipe does not read. A subscriber that panics ends the master. tracing-subscriber's `fmt` can do
//! both by default: it writes to a standard output that may be a pipe, and tells of a failed write
//! by `eprintln!`, which panics when the reader of standard error has left. For a server:
//!
//! - `log_internal_errors(false)`;
//! - a writer that drops lines rather than wait, such as tracing-appender's `non_blocking` in its
//!   lossy form, which is the default. Each process starts its thread, because each process runs
//!   the code before [`Prefork::serve`]. Its guard writes the last lines when it is dropped, so a
//!   worker drops it [at the exit](Worker::at_exit): it never comes to the end of `main`.
//!
//! The binary does both, and the log says how many lines were dropped.
//!
//! What a worker does on its thread is in the span `worker`, which has its `slot` and
//! `generation`. Events of a handler that failed or panicked have the `method` and the `uri` of
//! the request, and its [id](Http::request_ids) if it has one. Threads that the app starts
//! (`spawn_blocking`) do not inherit the span; [`this_worker`] knows the worker there too.
//!
//! A panic in a task that the app spawns, or that serves an upgraded connection, is in no event and
//! in no metric. The panic hook (`std::panic::set_hook`) has it, and by default prints it to
//! standard error.
//!
//! # Where to begin
//!
//! - [`Prefork`] has every setting with its default. [`Prefork::serve`] serves HTTP/1, and HTTP/2
//!   with the feature `http2`; [`Http`] has the limits and timeouts, and with the feature `tls`
//!   `Tls` has the certificate. With the feature `tower` it serves any tower service, such as
//!   axum's `Router` (feature `axum`) and tonic's `Routes`. [`Prefork::run`] gives [`Incoming`]
//!   connections to any other server that takes tokio streams.
//! - [`Worker`] tells the app which worker it is, [how many](Worker::workers) there are and
//!   [when to drain](Worker::drain). It [ends a stream](Worker::until_drain) then, can ask to be
//!   replaced, and runs what is to be done [at the exit](Worker::at_exit).
//!   [`Handle`] reloads, upgrades, resizes and stops the server, from any of its processes.
//! - [`Hooks`] are called with a [`Notice`] for each event. [`Handle::status`] has the state of
//!   each worker and the server's counts, [`Totals`]. [`Prefork::admin`] gives the server an
//!   address that has them for other programs, with metrics for Prometheus.
//! - [`Error`] says why a server could not start or had to end. If `main` returns [`Exit`], the
//!   program prints it and exits with its code. If a worker exits with [`EXIT_MISCONFIGURED`],
//!   the server drains and ends; in a reload or an upgrade, the old workers go on.
//! - [`TestServer`] serves an app in a test. [`Prefork::in_process`] serves without workers, for
//!   debuggers. The page [`guide::testing`] has both, and tests with real workers.
//!
//! The [`guide`] has one page for each further subject: the options of the binary, HTTPS,
//! upgrades, tuning, load balancers, init systems, tables for those who come from a server in one
//! tokio process, fasthttp/prefork, forker, gunicorn and nginx, and the design. The README has the
//! signals and the exit codes.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `cli` | yes | the binary `prefork-server`; no part of the library |
//! | `http2` | yes | HTTP/2 in [`Prefork::serve`] |
//! | `tls` | yes | HTTPS: `Prefork::tls`, on ring |
//! | `aws-lc-rs` | no | the cryptography of aws-lc in place of ring's, and X25519MLKEM768 |
//! | `tower` | no | tower services in [`Prefork::serve`] |
//! | `axum` | no | `tower`, and axum's `ConnectInfo`; [`Incoming`] as axum's `Listener` |
//! | `tonic` | no | [`Connection`] as tonic's `Connected`, for [`Prefork::run`] |
//! | `files` | with `cli` | `files`: the files of a directory, and parts of files as bodies |
//! | `compression` | with `cli` | `files`, and `Files::compress`: texts compressed on demand |
//! | `metrics` | no | `Prefork::metrics`: the app's own metrics at [`Prefork::admin`] |
//! | `sandbox` | with `cli` | `Prefork::sandbox`: what workers may open and reach |
//! | `serde` | no | [`Notice`], [`Totals`] and [`Status`] can be serialized |
//!
//! Types and traits of other crates are not exported again: a program adds the crates that it
//! names. Their versions are `http` 1, `hyper` 1, `bytes` 1, `http-body` 1, `http-body-util` 0.1,
//! `tokio` 1, `futures-core` 0.3, `tower-service` 0.3, `axum` 0.8, `tonic` 0.14, `metrics` 0.24 and
//! `serde` 1. A later version of this crate that needs others raises its minor number. What a
//! program counts by another version of `metrics` is counted nowhere.
//!
//! The crate needs Rust 1.88. A later version of the crate may need a later Rust; that raises its
//! minor number.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | slot | a place for a worker, with one listener per address for the life of the server |
//! | generation | all workers between two reloads or upgrades, counted from 1 |
//! | ready | the worker has asked for its first connection |
//! | drain | accept what is in the queue if no worker follows, finish what is open, exit |
//! | hand over | give an idle open connection to the slot's next worker |
//! | inbox | a pair of sockets of a slot, through which connections are handed over and placed |
//! | place | give a new connection to a worker with less load, before a byte of it is read |
//! | shed | give connections to a worker that has time, because this one is busy all the time |
//! | rush | so many new connections that a worker seldom sleeps between two of them |
//! | defer | have the kernel keep a new connection until its first byte has come |
//! | sibling | a worker to which another one may give new connections |
//! | reload | give each slot a worker of the next generation, ready before the old one drains |
//! | upgrade | become the binary that is now on disk, in the same process, and reload |
//! | canary | an upgrade's first worker, which must serve before the master becomes its binary |
//! | recycle | replace one worker that has reached its limit; the new one is ready first |
//! | hung | a worker whose event loop stands still while work waits |
//! | adopt | accept from the listeners of a slot whose own worker does not serve |
//! | crash limit | more crashes than this within a time end the server |
//! | notice | a value that describes an event of the server |
//! | admin process | a process at an admin address, which tells operators what the server does |
//!
//! # The house
//!
//! For contributors. The [design page](guide::design) names, for each question, the function that
//! decides.
//!
//! A *room* is a module with its folder. A room may use the rooms on floors below it.
//! `tests/tidy.rs` enforces that, and lists the exceptions: the rooms on floor 0 that use each
//! other (`BESIDE`), and what a room may not use although it is below (`FORBIDDEN`: `prefork` uses
//! neither `sys` nor `protocol`, `http` makes no system calls, `supervisor` uses words and figures
//! only).
//!
//! ```text
//! floor 7  bin/prefork-server   the binary; it uses the public API and nothing else
//! floor 6  prefork              the builder: finds out which process this is, starts its part
//! floor 5  admin                the admin process: tells what the server does
//! floor 4  master | worker      the loop that supervises | the life of a worker
//! floor 4  files                the files of a directory as a service
//! floor 3  http                 HTTP on accepted sockets; `http/mod.rs` draws its own floors
//! floor 2  protocol             what two processes agree on: control channel, inheritance, inbox
//! floor 1  control              the client of an admin address
//! floor 1  sys | supervisor     system calls, one family each | decisions
//! floor 0  address config error exit handle hooks id named one_line policy | codec drain pool |
//!          proxy keyring moved secret stats status
//! ```
//!
//! `policy` has the words that users and the supervisor share, `named` the names of option values.
//! `one_line` makes errors fit for a terminal; the binary has its source too.
//! `codec` turns values into bytes and back, for messages between processes and for the state that
//! a master leaves to its next image. `stats` is what one worker counts; `protocol` has the
//! scoreboard, with a page for each worker. `keyring` has the keys of TLS session tickets;
//! `protocol` has the page in which all workers see them. `secret` has bytes that are wiped.
//!
//! Names that are used in more than one file:
//!
//! | name | what it is |
//! |---|---|
//! | `ConnectionTask` | serves one connection to its end |
//! | `ConnState` | what a connection is doing, and since when it has not moved |
//! | `Registry`, `Member` | all connections of a worker, and one connection's entry |
//! | `ActiveSet`, `EvictionScore` | connections that are served, and which of them rests next |
//! | `LingeringClose` | sends the last bytes, then discards what the client still sends |
//! | `HandoverTarget` | another server that takes an idle connection |
//! | `Endpoint` | a service that serves one kind of stream |
//! | `Shared` | what the connections of an endpoint, or of HTTP/1, have in common |
//! | `Inputs`, `FieldMaps`, `FreeList` | buffers and maps that connections take and give back |
//! | `ClientState` | what replaces an HTTP/2 client's first frames when its connection has rested |
//! | `Moved`, `ClientRecord` | what moves with a socket; the part of an HTTP/2 client |
//! | `SessionRecord`, `TakenSession` | a TLS session that moves; what goes on with it |
//! | `Terms` | what a server agrees on in TLS |
//! | `Announced` | the limits that the server tells each HTTP/2 client first |
//! | `HeadCache`, `CachedHead` | the last request head of a connection, parsed |
//! | `Permanent` | the names and values of fields that are never freed |
//! | `DropNotice` | marks in the state that a stream was dropped |
//! | `KeptBody`, `KeptBodies` | what comes of a request in HTTP/2 after its response |
//! | `ResponseSource` | whether the handler or the server made a response |
//! | `Prefix`, `Origin` | what comes before HTTP on a connection, and where it comes from |
//! | `ControlTask` | receives the master's messages in a worker and applies them |
//! | `AdminKeeper`, `Fact` | decides when an admin process starts and ends; what it is told |
//! | `hang::watch`, `hang::policy` | reads heartbeats; decides that a worker hangs |
//! | `balance::collect`, `balance::policy` | reads loads; decides which connections move |
//! | `balance::shedding` | decides which busy workers give connections to workers with time |
//! | `Sharing` | decides which connections of a worker go: not the one that keeps it busy |
//! | `balance::deferring` | decides for which workers the kernel keeps connections a while |
//! | `balance::siblings`, `Told` | tells workers their siblings; what each worker knows |
//! | `Placing`, `placing::policy` | gives new connections to siblings; decides which go where |
//! | `WorkerStats` | what one worker counts |
//! | `Directory`, `Series` | the app's own metrics in a page; one of them with its labels |
//! | `App`, `MaybeReady` | in the binary: the services; a response that comes now or later |
//!
//! What must stay true:
//!
//! - `supervisor` is pure: events and the time go in, actions come out. It knows no clock, no pid,
//!   no descriptor, and logs nothing. It and `sys` meet only in `master`, where `master/apply.rs`
//!   has one arm for each action and decides nothing.
//! - `master` and `worker` know nothing of each other; they meet in `protocol`. So do `master` and
//!   `admin`.
//! - The master tells the admin process facts in the order in which they happened, so that no count
//!   falls or is added twice. The admin process can write nothing that others read. The master
//!   waits for it, for a second or two, only when the server has ended, or when an upgrade removes
//!   its address.
//! - Each word of the scoreboard is written by one process at a time. In the part for the app's own
//!   metrics one word says how many words are valid. In the rest of it no reader needs another word
//!   to know if a word is valid, but it reads the heartbeat after the connections. Totals never
//!   fall. A worker of another user can write only its own page, and can read the pages of its
//!   siblings. The master does not read from shared memory what it knows itself, and limits what it
//!   reads.
//! - What crosses an upgrade is in `master/upgrade/state.rs`; a change of it raises `VERSION` in
//!   `protocol/state.rs`. The canary reports which versions it reads before the master execs.
//!   After the exec something that the server does not need may fail: then the server goes on.
//! - `http` knows nothing of slots, signals or processes: it could serve in any program.
//! - `unsafe` is in `sys` alone, each block with its argument.
//! - The master has one thread and no runtime. Workers are executed, never only forked.
//! - The master takes no descriptors from workers. If a worker has sent one anyway, another
//!   process closes it last, because that close may block (`sys/discard.rs`).
//! - The master reads private keys and makes ticket keys; it gives them to the workers.
//! - Every descriptor is close-on-exec. The few that a worker inherits are put in place between
//!   fork and exec, and are close-on-exec again before `main` (`sys/before_main.rs`), as are those
//!   that cross into a master's next image. A process is a worker only if the master that started
//!   it made its channel.
//! - The master is never in a sandbox, because it executes workers and new programs. A worker
//!   enters the sandbox just before the app, and before it makes a thread (`worker/sandbox.rs`).
//!   After that the library opens no path, signals no other process, and neither binds nor
//!   connects. What the binary opens is in `bin/prefork-server/sandbox.rs`.
//! - No listener is closed while the server serves, unless a worker has used its socket for
//!   something else (`master/listeners/watch.rs`). The master keeps both ends of each inbox until
//!   the server ends, so that no connection in it is lost with a worker.
//! - A worker does not read a connection while it hands the connection over, and serves it again
//!   if the hand-over fails. In HTTP/2 it hands over only between two frames, without an open
//!   stream. The worker that takes it goes on only if it would have told the client the same
//!   limits, else it says GOAWAY. A connection is placed once: the worker that takes it keeps it.
//! - One function starts every worker and the canary: `Master::spawn()` in
//!   `master/workers/spawn.rs`. It removes the variables of a service manager first.
//!
//! To read everything, begin with `supervisor/slot.rs`: the table above `SlotEntry` says what each
//! event means to a worker in each state. Then `master/mod.rs` (the loop), `worker/mod.rs` (the
//! other side of the channel), `http/mod.rs` (the life of a connection), `master/upgrade.rs` (how
//! one image leaves and the next goes on).

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!("prefork-server runs on Linux only (5.10 or newer)");

mod address;
mod admin;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
#[path = "../benches/internals/mod.rs"]
pub mod bench_internals;
mod codec;
mod config;
pub mod control;
mod drain;
mod error;
mod exit;
#[cfg(feature = "files")]
pub mod files;
#[cfg(test)]
#[path = "../tests/fuzz/target.rs"]
mod fuzz;
pub mod guide;
mod handle;
mod hooks;
mod http;
mod id;
mod keyring;
mod master;
mod moved;
mod named;
mod one_line;
mod policy;
mod pool;
mod prefork;
mod protocol;
mod proxy;
mod secret;
mod stats;
mod status;
mod supervisor;
mod sys;
mod worker;

pub use crate::address::{Address, AddressError, Peer};
#[cfg(feature = "metrics")]
pub use crate::config::Metrics;
#[cfg(feature = "sandbox")]
pub use crate::config::Sandbox;
pub use crate::config::{Balance, DeferAccept, HANG_TIMEOUT_MIN, Listeners, WorkerRequests};
pub use crate::error::{BoxError, EXIT_MISCONFIGURED, Error};
pub use crate::exit::Exit;
pub use crate::handle::Handle;
pub use crate::hooks::{Core, Hooks, Limit, Notice, WorkerCommand, WorkerExit, WorkerInfo};
#[cfg(feature = "http2")]
pub use crate::http::Http2;
pub use crate::http::{
    Body, BodyError, ConnectionInfo, DateHeader, Http, IntoService, KeepAlive, Piece, Refused,
    Request, Response, ServiceFn, handler, reply, reply_with, service_fn,
};
#[cfg(feature = "tls")]
pub use crate::http::{Certificate, ClientAuth, Tls, TlsHandshake, TlsInfo, TlsVersion};
#[cfg(feature = "tower")]
pub use crate::http::{TowerFuture, TowerService, tower_service};
pub use crate::id::{ConnectionId, Generation, MAX_WORKERS, Slot};
pub use crate::named::NameError;
pub use crate::policy::{Backoff, CrashLimit, Outcome, ServerState, Stop, WorkerState};
pub use crate::pool::Buffer;
pub use crate::prefork::{Prefork, Role, TestServer, role, this_worker};
pub use crate::proxy::{Forwarded, Network, NetworkError};
pub use crate::stats::Totals;
pub use crate::status::{SlotStatus, Status, WorkerStatus};
pub use crate::sys::limits::{CpuReason, Cpus, usable_cpus};
pub use crate::worker::Worker;
pub use crate::worker::connection::Connection;
pub use crate::worker::incoming::Incoming;
pub use crate::worker::until_drain::UntilDrain;

/// The programs in the README, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
