//! The service manager: notifications to it, listeners from it, and the workers' user.

use std::io::IoSliceMut;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixDatagram};
use std::process::{Command, Stdio};

use nix::cmsg_space;
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::{close, geteuid};
use prefork_server::{BoxError, Error, Hooks, WorkerInfo, service_fn};
use tempfile::TempDir;

use crate::apps;
use crate::client::{Client, get};
use crate::support::{
    CEILING, Server, app_command, binary, can_change_user, nobody, output, proc_file, refused,
    status_field, until, words,
};

tests! {
    a_service_manager_is_notified_of_each_state_of_a_server,
    a_master_notifies_the_watchdog_only_if_the_watchdog_is_for_it,
    the_watchdog_is_notified_between_two_spawns,
    a_manager_in_the_abstract_namespace_is_notified_too,
    an_inherited_listener_is_served_with_its_queue,
    an_inherited_unix_listener_keeps_its_file,
    listeners_of_another_process_are_ignored,
    a_descriptor_that_is_no_listener_is_refused_by_its_number,
    descriptors_that_were_not_handed_in_are_not_taken,
    workers_run_as_the_configured_user,
    a_program_that_the_user_may_not_execute_is_named,
    workers_run_as_root_only_if_the_option_names_root,
}

fn a_service_manager_is_notified_of_each_state_of_a_server() {
    let manager = Manager::new();
    let mut server =
        Server::spawn(respond(&["--workers", "2"]).env("NOTIFY_SOCKET", manager.path()));
    let address = server.address();
    let up = |workers| format!("STATUS={workers} serving on {address}\n");
    assert_eq!(manager.hear(), format!("READY=1\n{}", up("2 workers")));
    for pid in server.workers() {
        let environment = proc_file(pid, "environ").expect("it lives");
        assert!(
            !environment.contains("NOTIFY_SOCKET"),
            "a worker could speak for its master"
        );
    }
    // In an upgrade the new image notifies the manager of the reload, not of a start.
    for cause in [Signal::SIGHUP, Signal::SIGUSR2, Signal::SIGUSR2] {
        server.signal(cause);
        let reloading = manager.hear();
        let since = reloading
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .and_then(|rest| rest.split('\n').next()?.parse::<u64>().ok());
        assert!(since.is_some_and(|since| since > 0), "{reloading}");
        assert_eq!(manager.hear(), format!("READY=1\n{}", up("2 workers")));
    }
    server.signal(Signal::SIGTTIN);
    assert_eq!(manager.hear(), up("2 of 3 workers"));
    assert_eq!(manager.hear(), up("3 workers"));
    server.signal(Signal::SIGTERM);
    assert_eq!(manager.hear(), "STOPPING=1\nSTATUS=draining\n");
    assert_eq!(manager.hear(), "STOPPING=1\nSTATUS=ended: drained\n");
    server.end_well();
}

fn a_master_notifies_the_watchdog_only_if_the_watchdog_is_for_it() {
    let manager = Manager::new();
    let mut command = respond(&[]);
    command
        .env("NOTIFY_SOCKET", manager.path())
        .env("WATCHDOG_USEC", "20000");
    let server = Server::spawn(&mut command);
    // More often than start, ready and status together: it also comes while nothing happens.
    manager.hear_until("READY=1");
    for _ in 0..5 {
        manager.hear_until("WATCHDOG=1");
    }
    drop(server);

    let manager = Manager::new();
    let mut server = Server::spawn(
        command
            .env("NOTIFY_SOCKET", manager.path())
            .env("WATCHDOG_PID", "1"),
    );
    server.address();
    server.stop();
    let said = manager.hear_until("STATUS=ended");
    assert!(!said.contains("WATCHDOG"), "{said}");
}

/// Tells the service manager of each worker that was spawned.
struct Speaks;

impl Hooks for Speaks {
    fn worker_spawned(&mut self, _worker: &WorkerInfo) -> Result<(), BoxError> {
        let manager = std::env::var_os("NOTIFY_SOCKET").ok_or("there is no manager")?;
        UnixDatagram::unbound()?.send_to(SPAWNED.as_bytes(), manager)?;
        Ok(())
    }
}

const SPAWNED: &str = "X_SPAWNED=1\n";

pub(crate) fn app() -> Result<(), Error> {
    let server = apps::server().workers(3).hooks(Speaks);
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

fn the_watchdog_is_notified_between_two_spawns() {
    let manager = Manager::new();
    let mut command = app_command("speaks");
    command
        .env("NOTIFY_SOCKET", manager.path())
        // Each report is due when the one before it was sent.
        .env("WATCHDOG_USEC", "2");
    let _server = Server::spawn(&mut command);
    for _ in 0..3 {
        manager.hear_until(SPAWNED.trim());
        assert_eq!(manager.hear(), "WATCHDOG=1\n");
    }
}

fn a_manager_in_the_abstract_namespace_is_notified_too() {
    let name = format!("prefork-server-test-{}", std::process::id());
    let address = net::SocketAddr::from_abstract_name(&name).expect("a short name");
    let socket = UnixDatagram::bind_addr(&address).expect("a new name");
    socket
        .set_read_timeout(Some(CEILING))
        .expect("a sane timeout");
    let _server = Server::spawn(respond(&[]).env("NOTIFY_SOCKET", format!("@{name}")));
    let mut bytes = [0; 1024];
    let len = socket.recv(&mut bytes).expect("a message");
    assert!(bytes[..len].starts_with(b"READY=1\n"));
}

fn an_inherited_listener_is_served_with_its_queue() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut early = Client::ask_many(address, 10, "/");
    // The inherited listener is used, not the address in the arguments of `respond`.
    let mut command = activated(
        &respond(&["--worker-header", "--workers", "2"]),
        "$$",
        "app.socket",
    );
    let mut server = Server::spawn_with_input(&mut command, input(copy(&listener)));
    assert_eq!(server.address(), address);
    for client in &mut early {
        assert_eq!(client.response().body, "hi");
    }
    for pid in server.workers() {
        let environment = proc_file(pid, "environ").expect("it lives");
        assert!(!environment.contains("LISTEN_"), "{environment}");
    }
    server.reload();
    until(|| get(address, "/").worker("generation") == 2);
    let ended = server.stop();
    assert!(
        ended.log.contains("inherited (LISTEN_FDS)"),
        "{}",
        ended.log
    );
    // The manager still has the listener: the next server accepts what waits in its queue.
    Client::connect(address);
}

fn an_inherited_unix_listener_keeps_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("app.sock");
    let listener = net::UnixListener::bind(&path).expect("a new path");
    let mut command = activated(&respond(&[]), "$$", "app.socket");
    let mut server = Server::spawn_with_input(&mut command, input(listener));
    assert_eq!(server.addresses(), [format!("unix:{}", path.display())]);
    server.stop();
    assert!(path.exists(), "the file is the manager's");
}

fn listeners_of_another_process_are_ignored() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut command = activated(&respond(&[]), "1", "app.socket");
    let mut server = Server::spawn_with_input(&mut command, input(copy(&listener)));
    assert_ne!(server.address(), address);
    let environment = proc_file(server.workers()[0], "environ").expect("it lives");
    assert!(!environment.contains("LISTEN_"), "{environment}");
}

fn a_descriptor_that_is_no_listener_is_refused_by_its_number() {
    let bound = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let connection = std::net::TcpStream::connect(address).expect("it listens");
    for (descriptor, why) in [
        (OwnedFd::from(bound), "SOCK_STREAM"),
        (OwnedFd::from(connection), "SO_ACCEPTCONN"),
    ] {
        let said = refused(activated(&respond(&[]), "$$", "app.socket").stdin(descriptor));
        assert!(
            said.contains("descriptor 3 (app.socket)") && said.contains(why),
            "{said}"
        );
    }
}

fn descriptors_that_were_not_handed_in_are_not_taken() {
    // One descriptor that is not open; then a hundred, which include the server's own.
    for count in ["1", "100"] {
        let server = respond(&[]);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh"])
            .arg(server.get_program())
            .args(server.get_args())
            .env("PREFORK_USER", geteuid().to_string())
            .env("LISTEN_FDS", count);
        let said = refused(&mut shell);
        assert!(
            said.contains("descriptor 3 (unknown) of LISTEN_FDS") && said.contains("handed in"),
            "{said}"
        );
    }
}

/// Only root can test it. For another user the test expects the server's refusal.
fn workers_run_as_the_configured_user() {
    if !geteuid().is_root() {
        println!("not root: only the refusal is tested");
        let mut command = respond(&["--user", "root"]);
        let said = refused(&mut command);
        assert!(
            said.contains("--user") && said.contains("only root"),
            "{said}"
        );
        return;
    }
    let nobody = nobody();
    let mut server = Server::spawn(&mut respond(&["--user", "nobody"]));
    let address = server.address();
    for pid in server.workers() {
        let (uid, gid) = (nobody.uid, nobody.gid);
        let field = |name| status_field(pid, name);
        assert_eq!(field("Uid"), format!("{uid}\t{uid}\t{uid}\t{uid}"));
        assert_eq!(field("Gid"), format!("{gid}\t{gid}\t{gid}\t{gid}"));
        assert_eq!(field("Groups"), "");
        assert_eq!(field("NoNewPrivs"), "1");
        assert_eq!(field("CapEff"), "0000000000000000");
    }
    assert_eq!(status_field(server.pid, "Uid"), "0\t0\t0\t0");
    assert_eq!(get(address, "/").body, "hi");
    // The kernel clears that signal when a process changes its user.
    let mut app = Server::start_app("nobody");
    assert_eq!(get(app.address(), "/").body, "Some(SIGTERM)");
    app.stop();
}

fn a_program_that_the_user_may_not_execute_is_named() {
    if !can_change_user() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("server");
    // By cp(1): if this process copied it, a program that another test starts meanwhile could have
    // the file open for writing.
    let installed = Command::new("install")
        .args(["--mode=700", env!("CARGO_BIN_EXE_prefork-server")])
        .arg(&program)
        .status();
    assert!(installed.expect("coreutils are there").success());
    let arguments = ["--listen", "127.0.0.1:0", "--user", "nobody"];
    let ended = output(Command::new(&program).args(arguments));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    let named = format!("may not execute {}", program.display());
    assert!(said.contains(&named), "{said}");
}

fn workers_run_as_root_only_if_the_option_names_root() {
    // Clients on other machines cannot reach this server.
    let mut server = Server::spawn(respond(&[]).env_remove("PREFORK_USER"));
    server.address();
    let warning = "Workers run as root. Choose a user with fewer rights";
    assert_eq!(server.log().contains(warning), geteuid().is_root());
    let mut command = respond(&["--listen", "0.0.0.0:0"]);
    command.env_remove("PREFORK_USER");
    if !geteuid().is_root() {
        Server::spawn(&mut command).address();
        return;
    }
    let said = refused(&mut command);
    assert!(said.contains("--user root"), "{said}");
    Server::spawn(command.args(["--user", "root"])).address();
}

/// The binary on a port of the kernel's choice, with its announce stream on standard output.
pub(crate) fn respond(arguments: &[&str]) -> Command {
    let mut command = binary();
    command
        // Root must set the user if a manager passes the listeners.
        .env("PREFORK_USER", geteuid().to_string())
        .args(words("--listen 127.0.0.1:0 --announce-fd 1 --respond hi"))
        .args(arguments);
    command
}

/// The same command with its standard input as descriptor 3, passed under `name`. The shell execs
/// the server, so that `LISTEN_PID` is the server's pid.
pub(crate) fn activated(command: &Command, pid: &str, name: &str) -> Command {
    let script = format!("LISTEN_PID={pid} exec \"$@\" 3<&0 </dev/null");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script, "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", name);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// A descriptor to pass to the server. The command keeps it open until the command is dropped.
pub(crate) fn input(descriptor: impl Into<OwnedFd>) -> Stdio {
    descriptor.into().into()
}

pub(crate) fn copy(listener: &TcpListener) -> TcpListener {
    listener.try_clone().expect("a descriptor is free")
}

/// A service manager's end of the notify socket.
pub(crate) struct Manager {
    socket: UnixDatagram,
    dir: TempDir,
}

impl Manager {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(dir.path().join("notify")).expect("a new path");
        socket
            .set_read_timeout(Some(CEILING))
            .expect("a sane timeout");
        Self { socket, dir }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("notify")
    }

    /// The next message. Its descriptors are counted and closed, as by a manager without a store.
    pub(crate) fn hear(&self) -> String {
        let mut bytes = [0; 4096];
        let mut control = cmsg_space!([i32; 8]);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(fd, &mut slices, Some(&mut control), flags)
            .expect("the server says something");
        let mut fds = 0;
        for part in message.cmsgs().expect("room for all") {
            if let ControlMessageOwned::ScmRights(received) = part {
                fds += received.len();
                received
                    .into_iter()
                    .for_each(|fd| close(fd).expect("it was just received"));
            }
        }
        let len = message.bytes;
        let mut text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        if fds > 0 {
            text.push_str(&format!("fds={fds}"));
        }
        text
    }

    /// All messages up to the first that begins with `wanted`.
    pub(crate) fn hear_until(&self, wanted: &str) -> String {
        let mut said = String::new();
        loop {
            let message = self.hear();
            said.push_str(&message);
            if message.lines().any(|line| line.starts_with(wanted)) {
                return said;
            }
        }
    }
}
