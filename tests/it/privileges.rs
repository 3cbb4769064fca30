//! The rights of workers that run as another user than a root master.

use std::fs;
use std::num::NonZeroU16;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;

use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};
use prefork_server::{BoxError, Error, Request, Response, Stop, Worker, service_fn};
use serde_json::Value;

use crate::apps;
use crate::client::{Client, get, get_unix};
use crate::hostile::inherited;
use crate::support::{Server, app_command, can_change_user, nobody, until};
use crate::terminal::session;

tests! {
    workers_can_reload_and_cannot_stop_the_server,
    a_listener_that_a_worker_shut_down_listens_again,
    a_unix_listener_that_a_worker_shut_down_is_replaced,
    an_inbox_that_a_worker_shut_down_is_replaced,
    workers_have_a_session_of_their_own,
    the_workers_group_can_connect_to_a_unix_address_and_others_as_the_mode_says,
}

/// Names a Unix address that the app listens on too.
const SOCKET: &str = "PREFORK_TEST_SOCKET";

/// The path gives a worker its command, as if an attacker controlled the worker.
pub(crate) fn app() -> Result<(), Error> {
    let mut server = apps::server().user("nobody");
    if let Ok(path) = std::env::var(SOCKET) {
        server = server.also_bind(format!("unix:{path}").as_str());
    }
    server.serve(async |worker: Worker| {
        Ok(service_fn(move |request: Request| {
            let done = act(request.uri().path(), &worker);
            async move { Ok::<Response, BoxError>(Response::new(done?.into())) }
        }))
    })
}

pub(crate) fn act(path: &str, worker: &Worker) -> Result<String, BoxError> {
    let handle = worker.handle();
    match path {
        "/stop" => handle.stop(Stop::Now)?,
        "/resize" => handle.resize(NonZeroU16::new(3).expect("not zero"))?,
        "/upgrade" => handle.upgrade()?,
        "/reload" => handle.reload()?,
        "/shutdown" => shut_down_listeners()?,
        "/shutdown-inbox" => shutdown(inherited(8), Shutdown::Both)?,
        "/slot" => return Ok(worker.slot().to_string()),
        _ => {}
    }
    Ok(worker.generation().to_string())
}

/// Shuts down every listener that this process has.
pub(crate) fn shut_down_listeners() -> Result<(), BoxError> {
    let tcp = fs::read_to_string("/proc/net/tcp")?;
    let unix = fs::read_to_string("/proc/net/unix")?;
    // proc_pid_net(5): the state LISTEN, and the flag __SO_ACCEPTCON.
    let listening = tcp.lines().map(|line| (line, 3, "0A", 9));
    let listening = listening.chain(unix.lines().map(|line| (line, 3, "00010000", 6)));
    let inode = |(line, at, wanted, inode): (&str, usize, &str, usize)| {
        let fields: Vec<_> = line.split_whitespace().collect();
        (*fields.get(at)? == wanted).then(|| format!("socket:[{}]", fields[inode]))
    };
    let sockets: Vec<_> = listening.filter_map(inode).collect();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // The directory's own descriptor may be closed already.
        let link = fs::read_link(entry.path()).unwrap_or_default();
        if sockets
            .iter()
            .any(|socket| link.as_os_str() == socket.as_str())
        {
            let fd = entry.file_name().to_string_lossy().parse()?;
            shutdown(fd, Shutdown::Both)?;
        }
    }
    Ok(())
}

/// Starts the app, or nothing if the tests do not run as root.
fn start() -> Option<Server> {
    if !can_change_user() {
        return None;
    }
    Some(Server::start_app("privileges"))
}

fn workers_can_reload_and_cannot_stop_the_server() {
    let Some(mut server) = start() else { return };
    let address = server.address();
    // One connection, so that one worker sends all commands, and the reload is the last.
    let mut client = Client::connect(address);
    for path in ["/stop", "/resize", "/upgrade", "/reload"] {
        assert_eq!(client.get(path).body, "1");
    }
    wait_until_replaced(&mut server);
    assert_eq!(get(address, "/").body, "2");
    server.stop();
}

fn a_listener_that_a_worker_shut_down_listens_again() {
    let Some(mut server) = start() else { return };
    let address = server.address();
    for slot in 0..2 {
        // Until the kernel gives a connection to this slot.
        let mut client = loop {
            let mut client = Client::connect(address);
            if client.get("/slot").body == slot.to_string() {
                break client;
            }
        };
        assert_eq!(client.get("/shutdown").body, "1");
        // The worker may have the other slot's listener too, which it adopted at the start.
        let reopened = server.wait_for("listener_reopened", |notice| notice["slot"] == slot);
        assert_eq!(reopened["address"], address.to_string());
        until(|| get(address, "/slot").body == slot.to_string());
    }
    assert_eq!(get(address, "/").body, "1", "no worker was replaced");
}

fn a_unix_listener_that_a_worker_shut_down_is_replaced() {
    if !can_change_user() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let mut command = app_command("privileges");
    let mut server = Server::spawn(command.env(SOCKET, &path));
    let address = server.address();
    assert_eq!(get(address, "/shutdown").body, "1");
    let of_path = |notice: &Value| notice["address"] == format!("unix:{}", path.display());
    let reopened = server.wait_for("listener_reopened", of_path);
    assert_eq!(reopened["slot"], Value::Null);
    server.wait("reload_finished");
    assert_eq!(get_unix(&path), "2");
    server.stop();
    assert!(!path.exists());
}

/// The sockets of the old inbox are of no use any more, so all workers are replaced.
fn an_inbox_that_a_worker_shut_down_is_replaced() {
    let Some(mut server) = start() else { return };
    let address = server.address();
    assert_eq!(get(address, "/shutdown-inbox").body, "1");
    wait_until_replaced(&mut server);
    // All connections of a worker move to the next one by its inbox.
    let mut clients = Client::connect_many(address, 8);
    for client in &mut clients {
        assert_eq!(client.get("/").body, "2");
    }
    server.signal(Signal::SIGHUP);
    wait_until_replaced(&mut server);
    for mut client in clients {
        assert_eq!(client.get("/").body, "3");
    }
    server.stop();
}

/// Until the old workers have exited.
fn wait_until_replaced(server: &mut Server) {
    server.wait("reload_finished");
    until(|| server.workers().len() == 2);
}

fn workers_have_a_session_of_their_own() {
    let Some(mut server) = start() else { return };
    server.address();
    for worker in server.workers() {
        assert_eq!(session(worker), (worker.as_raw(), 0));
    }
}

fn the_workers_group_can_connect_to_a_unix_address_and_others_as_the_mode_says() {
    if !can_change_user() {
        return;
    }
    let nobody = nobody();
    let (user, group) = (nobody.uid.as_raw(), nobody.gid.as_raw());
    for (mode, others) in [("666", "Ok"), ("0660", "PermissionDenied")] {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let path = dir.path().join("s");
        let listen = format!("unix:{}", path.display());
        let mut server =
            Server::start(&["--listen", &listen, "--user", "nobody", "--unix-mode", mode]);
        server.wait("serving");
        let connect = |uid, gid| {
            let mut client = app_command("connects");
            client.env(SOCKET, &path).uid(uid).gid(gid);
            let output = client.output().expect("it starts");
            String::from_utf8(output.stdout).expect("text")
        };
        assert_eq!(connect(user, group), "Ok");
        // A reverse proxy in the workers' group, and another outside it.
        assert_eq!(connect(user - 1, group), "Ok");
        assert_eq!(connect(user - 1, group - 1), others, "{mode}");
    }
}

/// Prints whether this process can connect to the address.
pub(crate) fn connect() -> Result<(), Error> {
    let path = std::env::var_os(SOCKET).expect("the test says where");
    match UnixStream::connect(path) {
        Ok(_) => print!("Ok"),
        Err(error) => print!("{:?}", error.kind()),
    }
    Ok(())
}
