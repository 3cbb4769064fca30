//! Small programs on the library, chosen by a variable that their workers inherit.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::num::NonZeroU16;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use prefork_server::{
    Address, BoxError, CrashLimit, Error, ExitStatus, Generation, Hooks, Notice, Prefork, Request,
    Response, Role, Slot, Stop, Worker, WorkerCommand, WorkerInfo, role, service_fn,
};
use serde_json::json;

/// Names the app that this binary is, instead of being tests.
pub(crate) const VARIABLE: &str = "PREFORK_TEST_APP";

/// Runs an app and exits as a program on the library should.
pub(crate) fn run(app: &OsStr) {
    let result = match app.to_str() {
        Some("crashes") => crashes(),
        Some("never_ready") => never_ready(),
        Some("leaves") => leaves(),
        Some("hooks") => server().hooks(Told).serve(async |_| Ok(service_fn(hello))),
        Some("refuses") => server()
            .hooks(Refuses)
            .serve(async |_| Ok(service_fn(hello))),
        Some("handle") => handle(),
        Some("axum") => axum(),
        Some("role") => return print!("{:?}", role()),
        Some("starts_programs") => starts_programs(),
        Some("leaks") => leaks(),
        Some("fickle") => fickle(),
        Some("hello") => server().serve(async |_| Ok(service_fn(hello))),
        other => panic!("no such app: {other:?}"),
    };
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(error.exit_code().into());
    }
}

fn server() -> Prefork {
    Prefork::bind("127.0.0.1:0").workers(2).announce_fd(1)
}

async fn hello(_request: Request) -> Result<Response, Infallible> {
    Ok(Response::new("hello".into()))
}

/// Accepts, and dies.
fn crashes() -> Result<(), Error> {
    let limit = CrashLimit {
        max: 3,
        per: Duration::from_secs(60),
    };
    server()
        .workers(1)
        .crash_limit(limit)
        .run(async |_worker, mut incoming| {
            // Nobody connects: it dies of the zero timeout, after the poll that made it ready.
            let _ = tokio::time::timeout(Duration::ZERO, incoming.accept()).await;
            Err("the disk is on fire".into())
        })
}

fn never_ready() -> Result<(), Error> {
    server().serve(async |_worker| {
        Err::<fn_service::Never, _>(BoxError::from("no database at 127.0.0.1:5432"))
    })
}

/// A service type for apps that never get to have one.
mod fn_service {
    use super::{Infallible, Request, Response};
    use std::future::Ready;

    #[derive(Clone)]
    pub(crate) enum Never {}

    impl hyper::service::Service<Request> for Never {
        type Response = Response;
        type Error = Infallible;
        type Future = Ready<Result<Response, Infallible>>;

        fn call(&self, _request: Request) -> Self::Future {
            match *self {}
        }
    }
}

/// Serves one connection a life.
fn leaves() -> Result<(), Error> {
    use tokio::io::AsyncWriteExt;
    server().workers(1).run(async |worker, mut incoming| {
        if let Some(mut connection) = incoming.accept().await {
            let body = worker.info().pid.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            connection.write_all((head + &body).as_bytes()).await?;
        }
        Ok(())
    })
}

/// Tells on the announce stream which hook was called.
struct Told;

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

    fn worker_respawned(&mut self, old: &WorkerInfo, status: ExitStatus, new: &WorkerInfo) {
        Self::tell(
            "worker_respawned",
            json!([old.pid, status.to_string(), new.pid]),
        );
    }

    fn notice(&mut self, notice: &Notice) {
        if let Notice::Finished { outcome } = notice {
            Self::tell("notice", json!(outcome));
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

/// Does to the server what the path says, from inside a worker.
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

/// An upgrade's canary does what the file `whim` beside its program says.
fn fickle() -> Result<(), Error> {
    let server = server().ready_timeout(Duration::from_secs(1));
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

/// A handler starts the same program again, as something that is not a worker.
fn starts_programs() -> Result<(), Error> {
    server().serve(async |_worker| {
        Ok(service_fn(async |_request: Request| {
            let this = std::env::current_exe()?;
            // It ends at once, so blocking the worker for it is no harm.
            let output = Command::new(this).env(VARIABLE, "role").output()?;
            let said = String::from_utf8(output.stdout)?;
            Ok::<Response, BoxError>(Response::new(said.into()))
        }))
    })
}

/// Has a descriptor open that is not close-on-exec, as careless code in a program may.
fn leaks() -> Result<(), Error> {
    if role() == Role::Master {
        let file = std::fs::File::open("/proc/self/status").expect("procfs is mounted");
        std::mem::forget(nix::unistd::dup(&file).expect("a descriptor is free"));
    }
    server().serve(async |_| Ok(service_fn(hello)))
}
