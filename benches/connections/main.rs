//! How many connections does a machine hold, what does each cost, and what does a reload do to
//! them?
//!
//! All connections are opened, and each has a response. Then they rest; the memory of the server
//! is its proportional set size above that before, and what else the machine has lost since is the
//! kernel's part, for both ends. Then all workers are replaced, until the old ones are gone, and
//! each connection is asked once more. At last the server gets TERM, until it is gone.
//!
//! - **closed**: the server has closed the connection before it was asked again, or with a
//!   response. A client must open another one.
//! - **lost**: a connection was not opened, or a request had no response.
//!
//! The clients are as many processes as the limit on descriptors asks for, each with an address of
//! its own in 127/8, so that ports do not run out. The servers get as many workers as they need
//! for the same limit. fasthttp knows no reload: each of its processes is ended and replaced in
//! turn.
//!
//! With `--protocol` they speak HTTP/2, or within TLS. The kernel's part is not known then, as
//! clients themselves need memory.
//!
//! Not measured: connections that do anything, a network. The bench fails if our binary lost a
//! connection, or closed one.

mod client;
mod crowd;
mod limits;
mod options;

#[path = "../lifecycle/connection.rs"]
#[allow(dead_code, reason = "`lifecycle` uses all of it")]
mod connection;
#[path = "../lifecycle/connections.rs"]
#[allow(dead_code, reason = "`lifecycle` uses all of it")]
mod connections;
#[path = "../lifecycle/contender.rs"]
#[allow(dead_code, reason = "`lifecycle` uses all of it")]
mod contender;
#[path = "../lifecycle/foreign.rs"]
mod foreign;
#[path = "../peers/http2.rs"]
#[allow(dead_code, reason = "`peers` uses more of it")]
mod http2;
#[path = "../lifecycle/prefork.rs"]
#[allow(dead_code, reason = "`lifecycle` uses all of it")]
mod prefork;
#[path = "../support/mod.rs"]
mod support;
#[path = "../lifecycle/tally.rs"]
#[allow(dead_code, reason = "`lifecycle` uses all of it")]
mod tally;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use nix::sys::signal::{Signal, kill};

use self::contender::{Contents, Name};
use self::crowd::{Counts, Crowd, Share, Step};
use self::limits::{Limits, Plan};
use self::options::{Options, Protocol};
use self::support::options::Extent;
use self::support::pem::Pem;
use self::support::process::{self, Trouble, is_alive, until};
use self::support::progress::Progress;
use self::support::report::{Table, counted, written};
use self::support::tree::Tree;
use self::support::{load, machine};

const HEAD: [&str; 9] = [
    "server",
    "opened in s",
    "server, bytes each",
    "kernel, bytes each",
    "reload in s",
    "closed",
    "lost",
    "asked again in s",
    "ended in s",
];

/// What happens to the connections of a server.
const STEPS: usize = 5;

fn main() -> ExitCode {
    if let Some(share) = process::role::<Share>() {
        share.hold();
    }
    let options = Options::parse();
    let connections = options.connections();
    let protocol = options.protocol;
    let limits = Limits::now(connections);
    let plan = Plan::of(connections, protocol.bytes_each(), &limits);
    let pem = Pem::new().expect("a directory for a certificate");
    let servers = options.servers();
    if let Some(line) = &plan.said {
        eprintln!("{line}");
    }
    let title = format!(
        "{} connections, {} processes of clients, {} workers:",
        counted(plan.connections),
        plan.clients,
        plan.workers
    );
    let mut table = Table::empty(title, &HEAD);
    let mut progress = Progress::new("connections", STEPS * servers.len());
    let mut is_sound = true;
    for &name in &servers {
        let run = Run::of(name, &plan, (protocol, &pem), &mut progress);
        is_sound &= !name.is_ours() || matches!(&run, Ok(run) if run.is_sound());
        let cells = run.map(|run| run.cells(protocol));
        table.push(name.name(), cells.as_ref().map(<[_; 8]>::as_slice));
    }
    if options.extent() != Extent::Smoke || !is_sound {
        println!("{}", table.for_a_terminal());
        for (fact, value) in machine::facts() {
            println!("{fact:<28} {value}");
        }
    }
    match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// What the connections of one server took.
struct Run {
    opened: (Counts, Duration),
    /// The server's memory, and what else the machine has lost, for each connection.
    bytes: [f64; 2],
    reload: Duration,
    asked: (Counts, Duration),
    end: Duration,
}

impl Run {
    fn of(
        name: Name,
        plan: &Plan,
        (protocol, pem): (Protocol, &Pem),
        progress: &mut Progress,
    ) -> Result<Self, Trouble> {
        let mut server = name.start_with(Contents::Echo, protocol.speaks(pem), plan.workers)?;
        let run = (|| {
            progress.step("open", name.name());
            let mut crowd = Crowd::start(server.address(), plan, protocol, pem)?;
            let processes = server.tree();
            let (own, free) = (processes.memory_at_rest()?, machine::available());
            let opened = timed(|| crowd.step(Step::Open))?;
            progress.step("rest", name.name());
            let own = processes.memory_at_rest()?.saturating_sub(own);
            let all = free.saturating_sub(machine::available());
            let answered = opened.0.answered.max(1) as f64;
            let each = |bytes: u64| bytes as f64 / answered;
            progress.step("reload", name.name());
            let ((), reload) = timed(|| {
                server.reload()?;
                server.settle(0)
            })?;
            progress.step("ask again", name.name());
            let asked = timed(|| crowd.step(Step::Ask))?;
            progress.step("end", name.name());
            let ((), end) = timed(|| end(server.tree()))?;
            Ok(Self {
                opened,
                bytes: [each(own), each(all.saturating_sub(own))],
                reload,
                asked,
                end,
            })
        })();
        run.inspect_err(|_: &Trouble| eprintln!("{}", server.log()))
    }

    fn closed(&self) -> usize {
        self.opened.0.closed + self.asked.0.closed
    }

    fn lost(&self) -> usize {
        self.opened.0.lost + self.asked.0.lost
    }

    fn is_sound(&self) -> bool {
        self.lost() == 0 && self.closed() == 0
    }

    fn cells(&self, protocol: Protocol) -> [String; 8] {
        let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
        [
            seconds(self.opened.1),
            written(self.bytes[0].round()),
            match protocol {
                Protocol::Http1 => written(self.bytes[1].round()),
                // What the clients themselves hold is not little.
                _ => "-".to_owned(),
            },
            seconds(self.reload),
            counted(self.closed()),
            counted(self.lost()),
            seconds(self.asked.1),
            seconds(self.end),
        ]
    }
}

/// Ends a server whose connections rest.
fn end(server: Tree) -> Result<(), Trouble> {
    let pids = server.pids();
    kill(server.root, Signal::SIGTERM)?;
    until("all its processes are gone", || {
        !pids.iter().any(|&pid| is_alive(pid))
    })
}

fn timed<T>(run: impl FnOnce() -> Result<T, Trouble>) -> Result<(T, Duration), Trouble> {
    let start = Instant::now();
    run().map(|done| (done, start.elapsed()))
}
