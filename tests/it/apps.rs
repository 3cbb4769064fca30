//! Small programs on the library, chosen by a variable that their workers inherit.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::future::poll_fn;
use std::num::NonZeroU16;
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::process::Command;
use std::task::Poll;
use std::time::Duration;

use prefork_server::{
    Address, Balance, BoxError, CrashLimit, Error, Exit, Generation, Hooks, Limit, Notice, Prefork,
    Request, Response, Role, Slot, Stop, Worker, WorkerCommand, WorkerExit, WorkerInfo, role,
    service_fn,
};
use serde_json::json;

use crate::support::CEILING;
use crate::{
    admin_addresses, adoption, at_exit, balance, cap, crash, drain, exit_codes, first_byte,
    frameworks, hostile, init, log, own_metrics, placing, presence, privileges, recycle, resize,
    sandbox, signals, startup, status, upgrade, websocket,
};

/// If it is set, this binary runs the app of that name instead of the tests.
pub(crate) const VARIABLE: &str = "PREFORK_TEST_APP";

/// Names the folder with the files for TLS. If it is set, an app speaks TLS.
#[cfg(feature = "tls")]
pub(crate) const FILES: &str = "PREFORK_TEST_FILES";

/// Runs an app. Its end is the end of `main`.
pub(crate) fn run(app: &OsStr) -> Exit {
    let result = match app.to_str() {
        Some("crashes") => crashes(),
        Some(app) if app.starts_with("unready: ") => crash::unready(app),
        Some("waits_for_all") => crash::waits_for_all(),
        Some(app @ ("starts_beside" | "boundless")) => startup::app(app),
        Some("leaves") => leaves(),
        Some("logs") => log::app(),
        Some("speaks") => init::app(),
        Some("hooks") => server().hooks(Told).serve(async |_| Ok(service_fn(hello))),
        Some("refuses") => refuses(),
        Some("handle") => handle(),
        Some("axum") => axum(),
        Some("framework") => frameworks::app(),
        Some("readme") => return exit_codes::app(),
        Some("inside_a_runtime") => inside_a_runtime(),
        Some("at_exit") => at_exit::app(),
        Some("endless_exit") => at_exit::endless(),
        Some("status") => status::app(),
        Some("role") => prints_role(),
        Some("starts_programs") => starts_programs(),
        Some("starts_early") => starts_early(),
        Some("leaks") => leaks(),
        Some("threads") => threads(),
        Some(app @ ("early_signal" | "late_signal")) => signals::app(app),
        Some("panicking_hook") => panicking_hook(),
        Some("panics") => panics(),
        Some("glances") => glances(),
        Some("blocks") => blocks(),
        Some("nobody") => nobody(),
        Some("hangs") => hangs(),
        Some("few_files") => adoption::app(),
        Some("hostile") => hostile::app(),
        Some("rests") => rests(),
        Some("fickle") => fickle(),
        Some("sour") => sour(),
        Some("balanced") => balanced(),
        Some("connects") => privileges::connect(),
        Some("privileges") => privileges::app(),
        Some("sandbox") => sandbox::app(),
        Some("wrong_in_master") => admin_addresses::wrong_in_master(),
        Some("own_metrics") => own_metrics::app(),
        Some("other_recorder") => own_metrics::recorded(),
        Some("patient") => cap::patient(),
        Some("first_byte") => first_byte::app(),
        Some("silent") => presence::app(),
        Some("computes") => balance::app(),
        Some("placing") => placing::app(),
        Some("websocket") => websocket::app(CEILING),
        Some("tunnel") => websocket::tunnel(),
        Some("hasty_websocket") => websocket::app(websocket::HASTY),
        #[cfg(all(feature = "http2", feature = "tls"))]
        Some("clients") => crate::clients::app::app(),
        #[cfg(feature = "tls")]
        Some("short_tickets") => short_tickets(),
        Some("tls_in_run") => server().run(async |_, _| Ok(())),
        Some("gated") => upgrade::gated(),
        Some("replaced") => upgrade::replaced(),
        Some("slow_slots") => resize::slow_slots(),
        Some("long_pauses") => resize::long_pauses(),
        Some("crashing_slots") => resize::crashing_slots(),
        Some("untiring") => crash::untiring(),
        Some("restless") => recycle::restless(),
        Some("rude_waker") => crash::rude_waker(),
        Some(app @ ("endless" | "waits_for_database")) => drain::app(app),
        Some("hello") => server().serve(async |_| Ok(service_fn(hello))),
        other => panic!("no such app: {other:?}"),
    };
    result.into()
}

fn prints_role() -> Result<(), Error> {
    print!("{:?}", role());
    Ok(())
}

pub(crate) fn server() -> Prefork {
    let server = Prefork::bind("127.0.0.1:0").workers(2).announce_fd(1);
    #[cfg(feature = "tls")]
    if std::env::var_os(FILES).is_some() {
        return server.tls(tls());
    }
    server
}

#[cfg(feature = "tls")]
pub(crate) fn tls() -> prefork_server::Tls {
    let files = std::env::var_os(FILES).expect("the test says where");
    let files = std::path::Path::new(&files);
    prefork_server::Tls::new()
        .certificate_file(files.join("cert.pem"))
        .key_file(files.join("key.pem"))
}

#[cfg(feature = "tls")]
fn short_tickets() -> Result<(), Error> {
    let tls = tls().ticket_lifetime(Duration::from_secs(3));
    server().tls(tls).serve(async |_| Ok(service_fn(hello)))
}

fn refuses() -> Result<(), Error> {
    let server = server().hooks(Refuses);
    server.serve(async |_| Ok(service_fn(hello)))
}

fn blocks() -> Result<(), Error> {
    let server = server().drain_timeout(Duration::ZERO);
    server.serve(async |_| Ok(service_fn(block)))
}

/// Blocks the event loop for ever.
async fn block(_request: Request) -> Result<Response, Infallible> {
    loop {
        std::thread::park();
    }
}

pub(crate) async fn hello(_request: Request) -> Result<Response, Infallible> {
    Ok(Response::new("hello".into()))
}

/// Becomes ready, and fails.
fn crashes() -> Result<(), Error> {
    let limit = CrashLimit::new(3, Duration::from_secs(60));
    server()
        .workers(1)
        .crash_limit(limit)
        .run(async |_worker, mut incoming| {
            let once = poll_fn(|cx| Poll::Ready(pin!(incoming.accept()).poll(cx).is_ready()));
            assert!(!once.await, "no client connects");
            // Now the worker is ready. At the end of this round its runtime has told the master.
            tokio::task::yield_now().await;
            Err("the disk is on fire".into())
        })
}

/// For apps that do not crash.
const ONE_CRASH: CrashLimit = CrashLimit::new(1, Duration::from_secs(60));

/// Each worker serves one connection and exits.
fn leaves() -> Result<(), Error> {
    use tokio::io::AsyncWriteExt;
    let server = server().workers(1).crash_limit(ONE_CRASH);
    server.run(async |worker, mut incoming| {
        if let Some(mut connection) = incoming.accept().await {
            let body = worker.info().pid.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            connection.write_all((head + &body).as_bytes()).await?;
        }
        Ok(())
    })
}

/// Writes the name of each hook that is called to the announce stream.
pub(crate) struct Told;

impl Told {
    fn tell(hook: &str, more: serde_json::Value) {
        println!(
            "{}",
            json!({ "notice": "hook", "hook": hook, "more": more })
        );
    }
}

impl Hooks for Told {
    fn worker_command(
        &mut self,
        slot: Slot,
        generation: Generation,
        command: &mut WorkerCommand,
    ) -> Result<(), BoxError> {
        command.env("GREETING", format!("slot {slot}"));
        Self::tell("worker_command", json!([slot.0, generation.0]));
        Ok(())
    }

    fn worker_spawned(&mut self, worker: &WorkerInfo) -> Result<(), BoxError> {
        Self::tell("worker_spawned", json!(worker.pid));
        Ok(())
    }

    fn serving(&mut self, addresses: &[Address], workers: &[WorkerInfo]) -> Result<(), BoxError> {
        Self::tell("serving", json!([addresses.len(), workers.len()]));
        Ok(())
    }

    fn worker_respawned(&mut self, old: &WorkerInfo, status: WorkerExit, new: &WorkerInfo) {
        Self::tell(
            "worker_respawned",
            json!([old.pid, status.to_string(), new.pid]),
        );
    }

    fn notice(&mut self, notice: &Notice) {
        if let Notice::Finished { outcome, .. } = notice {
            Self::tell("notice", json!(outcome.to_string()));
        }
    }

    fn reopen_logs(&mut self) {
        Self::tell("reopen_logs", json!(format!("{:?}", role())));
    }

    fn master_died(&mut self) {
        Self::tell(
            "master_died",
            json!(std::env::var("GREETING").unwrap_or_default()),
        );
    }
}

struct Refuses;

impl Hooks for Refuses {
    fn worker_spawned(&mut self, worker: &WorkerInfo) -> Result<(), BoxError> {
        if worker.slot == Slot(1) {
            Err("slot 1 is cursed".into())
        } else {
            Ok(())
        }
    }
}

/// The path tells a worker which command to give to the server by its handle.
fn handle() -> Result<(), Error> {
    server().serve(async |worker: Worker| {
        Ok(service_fn(move |request: Request| {
            let handle = worker.handle().clone();
            async move {
                match request.uri().path() {
                    "/reload" => handle.reload()?,
                    "/upgrade" => handle.upgrade()?,
                    "/resize" => handle.resize(NonZeroU16::new(3).expect("not zero"))?,
                    "/stop" => handle.stop(Stop::Drain)?,
                    _ => {}
                }
                Ok::<Response, BoxError>(Response::new("asked".into()))
            }
        }))
    })
}

/// For workers that are never ready. Every other worker is ready long before, and a test that waits
/// for the timeout waits for longer than this.
const READY_TIMEOUT: Duration = CEILING.checked_div(4).expect("4 is not 0");

/// The file `whim` beside the program tells an upgrade's canary what to do.
fn fickle() -> Result<(), Error> {
    let server = server().ready_timeout(READY_TIMEOUT);
    server.serve(async |worker: Worker| {
        let program = std::env::current_exe()?;
        let whim = fs::read_to_string(program.with_file_name("whim")).unwrap_or_default();
        match whim.as_str() {
            _ if worker.generation() == Generation::FIRST => {}
            "wait for ever" => std::future::pending().await,
            "vanish" => fs::remove_file(program)?,
            "lock" => fs::set_permissions(program, fs::Permissions::from_mode(0o600))?,
            _ => {}
        }
        Ok(service_fn(hello))
    })
}

/// The second generation fails, the third is never ready, the fourth serves as the first does.
fn sour() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let server = server().ready_timeout(READY_TIMEOUT).hooks(Told);
    server.serve(async |worker: Worker| match worker.generation() {
        Generation(2) => Err("the milk is sour".into()),
        Generation(3) => std::future::pending().await,
        _ => Ok(service_fn(hello)),
    })
}

/// As a `main` with `#[tokio::main]`.
fn inside_a_runtime() -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async { server().serve(async |_| Ok(service_fn(hello))) })
}

fn axum() -> Result<(), Error> {
    use axum::Router;
    use axum::routing::get;
    server().run(async |worker, incoming| {
        let pid = worker.info().pid.to_string();
        let router = Router::new().route("/", get(async move || pid));
        axum::serve(incoming, router)
            .with_graceful_shutdown(worker.drain())
            .await?;
        Ok(())
    })
}

/// A handler starts the same program again, but not as a worker.
fn starts_programs() -> Result<(), Error> {
    server().serve(async |_worker| {
        Ok(service_fn(async |_request: Request| {
            let this = std::env::current_exe()?;
            // The program ends at once, so the worker may block until then.
            let output = Command::new(this).env(VARIABLE, "role").output()?;
            let said = String::from_utf8(output.stdout)?;
            Ok::<Response, BoxError>(Response::new(said.into()))
        }))
    })
}

/// Starts a program before the server. The program lists the sockets and memory that it inherited.
fn starts_early() -> Result<(), Error> {
    let listing = Command::new("ls").args(["-l", "/proc/self/fd"]).output();
    let listing = String::from_utf8(listing.expect("there is ls").stdout).expect("text");
    let inherited = |line: &&str| line.contains("socket:") || line.contains("memfd:");
    let inherited: Vec<_> = listing.lines().filter(inherited).collect();
    println!(
        "{}",
        json!({ "notice": "early", "role": format!("{:?}", role()), "inherited": inherited })
    );
    server().serve(async |_| Ok(service_fn(hello)))
}

/// Sends each client the address that the server has for it. Balancers connect from 127.0.0.0/31,
/// or to a Unix address.
fn balanced() -> Result<(), Error> {
    let networks = ["127.0.0.0/31", "unix"].map(|text| text.parse().expect("a network"));
    let server = server().proxy_protocol(networks);
    server.serve(async |_| {
        Ok(service_fn(async |request: Request| {
            let client = request.body().connection().client();
            Ok::<Response, Infallible>(Response::new(format!("{client:?}").into()))
        }))
    })
}

/// Blocks for ever when a request asks for it.
fn hangs() -> Result<(), Error> {
    // A connection that moved to a worker that hangs would end with it.
    let server = server().balance(Balance::Off);
    let server = server.hang_timeout(HANG_TIMEOUT).hooks(NO_CORES);
    server.serve(async |worker: Worker| {
        let pid = worker.info().pid;
        Ok(service_fn(move |request: Request| async move {
            if request.uri().path() == "/hang" {
                println!("{}", json!({ "notice": "blocked", "pid": pid }));
                loop {
                    std::thread::park();
                }
            }
            Ok::<Response, Infallible>(Response::new(pid.to_string().into()))
        }))
    })
}

/// Accepts no connection. In one slot the worker waits for its drain, in the other it hangs.
fn rests() -> Result<(), Error> {
    let server = server().hang_timeout(HANG_TIMEOUT).hooks(NO_CORES);
    server.run(async |worker, mut incoming| {
        // No client connects yet; the first poll makes the worker ready.
        let _ = tokio::time::timeout(Duration::ZERO, incoming.accept()).await;
        while worker.slot() == Slot(1) {
            std::thread::park();
        }
        worker.drain().await;
        Ok(())
    })
}

/// For [`hangs`] and [`rests`].
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(1);

/// Workers that a test aborts on purpose write no core files.
const NO_CORES: WorkersHave = WorkersHave(Limit::Core, 0);

/// Each worker has this limit.
pub(crate) struct WorkersHave(pub(crate) Limit, pub(crate) u64);

impl Hooks for WorkersHave {
    fn worker_command(
        &mut self,
        _slot: Slot,
        _generation: Generation,
        command: &mut WorkerCommand,
    ) -> Result<(), BoxError> {
        command.limit(self.0, self.1);
        Ok(())
    }
}

/// Opens a descriptor that is not close-on-exec, as a program's own code may.
fn leaks() -> Result<(), Error> {
    if role() == Role::Master {
        let file = std::fs::File::open("/proc/self/status").expect("procfs is mounted");
        std::mem::forget(nix::unistd::dup(&file).expect("a descriptor is free"));
    }
    server().serve(async |_| Ok(service_fn(hello)))
}

/// Has a thread that blocks no signals, as in most programs.
fn threads() -> Result<(), Error> {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    server().serve(async |_| Ok(service_fn(hello)))
}

struct Panics;

impl Hooks for Panics {
    fn reopen_logs(&mut self) {
        if role() == Role::Worker {
            Told::tell("reopen_logs", json!("about to panic"));
            panic!("the disk is full");
        }
    }
}

fn panicking_hook() -> Result<(), Error> {
    let server = server().workers(1).hooks(Panics);
    server.serve(async |_| Ok(service_fn(hello)))
}

/// Polls once for a connection and exits before the runtime runs another task.
fn glances() -> Result<(), Error> {
    let server = server().workers(1).crash_limit(ONE_CRASH);
    server.run(async |_worker, mut incoming| {
        let mut accept = std::pin::pin!(incoming.accept());
        std::future::poll_fn(|cx| {
            let _ = accept.as_mut().poll(cx);
            std::task::Poll::Ready(Ok(()))
        })
        .await
    })
}

/// Panics while a thread of its runtime is blocked for ever.
fn panics() -> Result<(), Error> {
    server().workers(1).run(async |_worker, mut incoming| {
        tokio::task::spawn_blocking(|| {
            loop {
                std::thread::park();
            }
        });
        incoming.accept().await;
        panic!("out of cheese");
    })
}

/// A worker of another user responds with the signal that it gets when its master dies.
fn nobody() -> Result<(), Error> {
    server().user("nobody").serve(async |_worker| {
        Ok(service_fn(async |_request: Request| {
            let signal = nix::sys::prctl::get_pdeathsig()?;
            Ok::<Response, BoxError>(Response::new(format!("{signal:?}").into()))
        }))
    })
}
