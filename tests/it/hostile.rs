//! Workers of another user attack the master, and the master keeps serving.
//!
//! To add an attack, write a function here and add a line to [`TRIES`]. The rest of the path has
//! the address of a client that does not read, if the attack needs one.

use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, send, sendmsg, socketpair,
};
use nix::unistd::{Pid, User, geteuid};
use prefork_server::{
    BoxError, CrashLimit, Error, Request, Response, Role, Worker, role, service_fn,
};
use serde_json::json;
use socket2::SockRef;

use crate::admin::{admin_of, admin_port};
use crate::apps;
use crate::client::{Client, get};
use crate::privileges;
use crate::support::{Server, binary, descendants, descriptors, pid_of, status_kib, until};

tests! {
    the_server_keeps_serving_after_every_attack_by_a_worker,
    the_server_keeps_serving_when_descriptors_reach_the_master,
    a_signal_does_not_wait_for_the_messages_that_a_worker_has_sent,
    a_descriptor_left_in_an_inbox_does_not_delay_the_end,
    a_worker_that_has_ended_leaves_no_harm_in_its_listeners,
    a_reload_mends_the_listener_of_an_admin_process,
    the_listener_of_an_admin_process_does_not_delay_the_end,
}

/// The beginning of the path that starts the attack, and the function that gets the rest of the
/// path.
type Try = (&'static str, fn(&str, &Worker));

/// The attacks of a hostile worker.
const TRIES: &[Try] = &[
    ("/scoreboard", |_, _| write_to_all_memory_files()),
    ("/descriptors/", |address, _| send_descriptors(address)),
    ("/empty/", |address, _| {
        send_descriptor_after_nothing(address)
    }),
    ("/flood", |_, _| flood()),
    ("/requests", |_, worker| ask_for_the_end(worker)),
    ("/shutdown", |_, _| shut_down_listeners()),
];

/// This attack leaves a descriptor in the inbox, which the master has to close.
const AT_THE_END: Try = ("/inbox/", |address, _| leave_in_the_inbox(address));

/// Fills the channel once, and responds with the number of messages.
const FILL: &str = "/fill";

/// The limit on the master's growth. If it reads a flood without a limit, it grows by megabytes per
/// second.
const GROWTH_MAX_KIB: usize = 1 << 10;

/// A close waits this long for a client that reads nothing: far longer than any test.
const LINGER: Duration = Duration::from_secs(600);

/// More descriptors than the master's own messages have, and fewer than the kernel's limit.
const MANY: usize = 200;

/// The memory files that a worker has inherited, opened once more before the library takes them.
static MEMORY: OnceLock<Vec<File>> = OnceLock::new();

pub(crate) fn app() -> Result<(), Error> {
    if role() == Role::Worker {
        MEMORY.get_or_init(memory_files);
    }
    let crashes = CrashLimit::new(100, Duration::from_secs(60));
    let mut server = apps::server().crash_limit(crashes).hooks(apps::Told);
    if geteuid().is_root() {
        server = server.user("nobody");
    }
    server.serve(async |worker: Worker| {
        Ok(service_fn(move |request: Request| {
            let said = act(request.uri().path(), &worker);
            async { Ok::<Response, BoxError>(Response::new(said.into())) }
        }))
    })
}

fn act(path: &str, worker: &Worker) -> String {
    if path == FILL {
        return fill_channel().to_string();
    }
    for (begin, tries) in TRIES.iter().chain(&[AT_THE_END]) {
        if let Some(rest) = path.strip_prefix(begin) {
            tries(rest, worker);
        }
    }
    "hello".into()
}

fn memory_files() -> Vec<File> {
    let open = fs::read_dir("/proc/self/fd").expect("procfs is mounted");
    let paths = open.map(|entry| entry.expect("an entry").path());
    let is_memory = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|file| file.to_string_lossy().contains("memfd:"))
    };
    let files = paths.filter(is_memory).filter_map(|path| {
        let mut options = File::options();
        options.read(true).write(true).open(path).ok()
    });
    files.collect()
}

fn write_to_all_memory_files() {
    for file in MEMORY.get().expect("it is a worker") {
        let length = file.metadata().expect("it is open").len();
        let bytes = vec![0xff; usize::try_from(length).expect("it is small")];
        file.write_all_at(&bytes, 0).expect("it is open to write");
    }
}

/// Sends a descriptor whose close waits: once, by the hundreds, and inside another socket.
fn send_descriptors(address: &str) {
    let stream = lingering(address);
    let fd = stream.as_raw_fd();
    let kind = SockType::SeqPacket;
    let (inner, outer) =
        socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).expect("a pair");
    send_with(inner.as_raw_fd(), &[fd]).expect("it takes descriptors");
    let sent = send_with(channel(), &[fd]);
    let _ = send_with(channel(), &[outer.as_raw_fd()]);
    for _ in 0..8 {
        let _ = send_with(channel(), &[fd; MANY]);
    }
    // Linux 6.16 and later refuses them, because the master's end accepts no descriptors. Then the
    // last close is here.
    if sent.is_err() {
        SockRef::from(&stream).set_linger(None).expect("a socket");
    }
}

/// Sends an empty message, which looks like the end of the channel, and a descriptor after it.
fn send_descriptor_after_nothing(address: &str) {
    let stream = lingering(address);
    send(channel(), b"", MsgFlags::MSG_NOSIGNAL).expect("the master reads");
    if send_with(channel(), &[stream.as_raw_fd()]).is_err() {
        SockRef::from(&stream).set_linger(None).expect("a socket");
    }
}

/// Sends the commands that the master refuses from a worker of another user. From a worker of its
/// own user they would end the server.
fn ask_for_the_end(worker: &Worker) {
    if runs_as_another_user() {
        for path in ["/resize", "/upgrade", "/stop"] {
            privileges::act(path, worker).expect("the master reads");
        }
    }
}

fn shut_down_listeners() {
    privileges::shut_down_listeners().expect("procfs is mounted");
}

fn runs_as_another_user() -> bool {
    User::from_name("nobody").is_ok_and(|user| user.is_some_and(|user| user.uid == geteuid()))
}

/// Leaves a descriptor in the slot's inbox, and blocks, so that it receives nothing from there.
fn leave_in_the_inbox(address: &str) {
    send_with(inherited(8), &[lingering(address).as_raw_fd()]).expect("it takes descriptors");
    println!("{}", json!({ "notice": "left", "pid": std::process::id() }));
    loop {
        thread::park();
    }
}

/// A connection to a client that reads nothing, with unsent data.
fn lingering(address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nonblocking(true).expect("a socket");
    while stream.write(&[0; 65536]).is_ok() {}
    SockRef::from(&stream)
        .set_linger(Some(LINGER))
        .expect("a socket");
    stream
}

fn send_with(socket: RawFd, fds: &[RawFd]) -> nix::Result<usize> {
    let bytes = [std::io::IoSlice::new(b"D\0\0\0\0")];
    let rights = [ControlMessage::ScmRights(fds)];
    sendmsg::<()>(socket, &bytes, &rights, MsgFlags::MSG_NOSIGNAL, None)
}

/// Sends the message that a worker sends once, again and again.
fn flood() {
    let channel = channel();
    thread::spawn(move || {
        loop {
            for message in [&b"D\0\0\0\0"[..], b"R"] {
                let _ = send(channel, message, MsgFlags::MSG_NOSIGNAL);
            }
        }
    });
}

/// Asks for the logs to be reopened until the channel takes no more.
fn fill_channel() -> usize {
    let ask = || send(channel(), b"Cl\0\0", MsgFlags::MSG_NOSIGNAL);
    std::iter::from_fn(|| ask().ok()).count()
}

/// The number of this worker's end of the control channel.
fn channel() -> RawFd {
    inherited(6)
}

/// A descriptor that this worker has inherited.
pub(crate) fn inherited(field: usize) -> RawFd {
    let marker = std::env::var("PREFORK_SERVER_WORKER").expect("it is a worker");
    let number = marker.split(' ').nth(field).expect("a field of the marker");
    number.parse().expect("a number")
}

fn the_server_keeps_serving_after_every_attack_by_a_worker() {
    tries(|_| {});
}

/// Before Linux 6.16 the kernel passes a worker's descriptors to the master.
fn the_server_keeps_serving_when_descriptors_reach_the_master() {
    if has_python() {
        tries(let_descriptors_pass);
    }
}

/// Whether scripts can take descriptors of other processes.
fn has_python() -> bool {
    let python = Command::new("python3").arg("--version").output();
    let has = geteuid().is_root() && python.is_ok();
    if !has {
        eprintln!("not tested: it needs root and python3");
    }
    has
}

/// Makes the master's sockets accept descriptors again (pidfd_getfd(2); 83 is `SO_PASSRIGHTS`).
fn let_descriptors_pass(master: Pid) {
    const SCRIPT: &str = "
import ctypes, os, socket, sys
pid = int(sys.argv[1])
process = os.pidfd_open(pid)
for fd in os.listdir(f'/proc/{pid}/fd'):
    if os.readlink(f'/proc/{pid}/fd/{fd}').startswith('socket:'):
        copy = socket.socket(fileno=ctypes.CDLL(None).syscall(438, process, int(fd), 0))
        if copy.type == socket.SOCK_SEQPACKET:
            copy.setsockopt(socket.SOL_SOCKET, 83, 1)
";
    let mut python = Command::new("python3");
    let pid = master.to_string();
    // Before 6.16 the kernel does not know the option.
    python.args(["-c", SCRIPT, &pid]).output().expect("python3");
}

/// The master handles a signal before it has read all messages of a worker.
fn a_signal_does_not_wait_for_the_messages_that_a_worker_has_sent() {
    let mut server = Server::start_app("hostile");
    let address = server.address();
    let mut client = Client::connect(address);
    kill(server.pid, Signal::SIGSTOP).expect("it lives");
    let said: usize = client.get(FILL).body.parse().expect("a number");
    server.signal(Signal::SIGTERM);
    server.signal(Signal::SIGCONT);
    let ended = server.end();
    let before = ended
        .notices
        .iter()
        .take_while(|it| it["notice"] != "draining");
    let heard = before.filter(|it| it["hook"] == "reopen_logs" && it["more"] == "Master");
    let heard = heard.count();
    assert!(heard <= 8 && said > 100, "{heard} of {said}");
}

fn a_descriptor_left_in_an_inbox_does_not_delay_the_end() {
    let mut server = Server::start_app("hostile");
    let address = server.address();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent_address = silent.local_addr().expect("bound");
    let mut client = Client::connect(address);
    client.ask(&format!("{}{silent_address}", AT_THE_END.0));
    let (_connection, _) = silent.accept().expect("it connects");
    let worker = pid_of(&server.wait("left"));
    server.signal(Signal::SIGTERM);
    server.wait("draining");
    kill(worker, Signal::SIGKILL).expect("it lives");
    server.end_well();
}

/// The harm is done to the sockets, which the workers share with the master.
fn a_worker_that_has_ended_leaves_no_harm_in_its_listeners() {
    if !has_python() {
        return;
    }
    let mut server = Server::start_app("hostile");
    let address = server.address();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent_address = silent.local_addr().expect("bound");
    for (harm, workers) in [("options", 2), ("connection", 1)] {
        until(|| server.workers().len() == 2);
        let workers = &server.workers()[..workers];
        for worker in workers {
            harm_listeners(*worker, harm, silent_address);
        }
        for worker in workers {
            let killed = kill(*worker, Signal::SIGKILL);
            // The master may have seen the shutdown(2) before the connection, and then it has
            // replaced the listener, and by a reload the worker.
            let is_replaced = harm == "connection" && killed == Err(Errno::ESRCH);
            assert!(killed.is_ok() || is_replaced, "{harm}: {killed:?}");
            // After the master has seen the end of the other one.
            server.wait("worker_spawned");
        }
        until(|| listeners(address) == 2);
        // Each of the two slots gets some.
        for _ in 0..32 {
            assert_eq!(get(address, "/").body, "hello", "{harm}");
        }
    }
    server.stop();
}

/// How many sockets listen at this address (proc_pid_net(5)).
fn listeners(address: SocketAddr) -> usize {
    let sockets = fs::read_to_string("/proc/net/tcp").expect("procfs is mounted");
    let port = format!(":{:04X}", address.port());
    let listens = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields[1].ends_with(&port) && fields[3] == "0A"
    };
    sockets.lines().filter(listens).count()
}

/// The process of a port may run as the workers' user.
fn a_reload_mends_the_listener_of_an_admin_process() {
    if !has_python() {
        return;
    }
    let mut server = with_admin_port();
    let port = admin_port(&server);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = silent.local_addr().expect("bound");
    for harm in ["options", "closed", "connection"] {
        let before = admin_of(&server);
        harm_listeners(before, harm, silent);
        server.reload();
        // It leaves when the next one serves.
        until(|| !descendants(server.pid).contains(&before));
        until(|| listeners(port) == 1);
        assert_eq!(get(port, "/livez").body, "live\n", "{harm}");
    }
    server.stop();
}

fn the_listener_of_an_admin_process_does_not_delay_the_end() {
    if !has_python() {
        return;
    }
    let server = with_admin_port();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound");
    harm_listeners(admin_of(&server), "unsent", address);
    server.stop();
}

/// A server with one admin process, which serves a port.
fn with_admin_port() -> Server {
    let mut command = binary();
    command.args(["--listen", "127.0.0.1:0", "--announce-fd", "1"]);
    command.args(["--workers", "1", "--respond", "hi"]);
    command.args(["--admin", "127.0.0.1:0"]);
    // No directory, so there is no socket beside the port.
    let mut server = Server::spawn(command.env("RUNTIME_DIRECTORY", "/dev/null"));
    server.address();
    server
}

/// Gives the listeners of a process options that keep clients out, or shuts them down and connects
/// the sockets. 21 is `IP_MINTTL`; a client of this machine sends 64.
fn harm_listeners(process: Pid, harm: &str, silent: SocketAddr) {
    const SCRIPT: &str = "
import ctypes, os, socket, struct, sys
pid, harm, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
process = os.pidfd_open(pid)
for fd in os.listdir(f'/proc/{pid}/fd'):
    try:
        copy = socket.socket(fileno=ctypes.CDLL(None).syscall(438, process, int(fd), 0))
        if not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            continue
    except (OSError, ValueError):
        continue
    if harm == 'options':
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 30)
        copy.setsockopt(socket.IPPROTO_IP, 21, 255)
        copy.listen(0)
    if harm == 'closed':
        copy.shutdown(socket.SHUT_RDWR)
    while harm in ('connection', 'unsent'):
        try:
            copy.shutdown(socket.SHUT_RDWR)
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
            copy.setblocking(True)
            copy.connect(('127.0.0.1', port))
            break
        except OSError:
            pass
    if harm == 'unsent':
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 600))
        copy.setblocking(False)
        try:
            while True:
                copy.send(bytes(65536))
        except BlockingIOError:
            pass
";
    let mut python = Command::new("python3");
    let (pid, port) = (process.to_string(), silent.port().to_string());
    let output = python.args(["-c", SCRIPT, &pid, harm, &port]).output();
    let output = output.expect("python3");
    assert!(output.status.success(), "{output:?}");
}

fn tries(before_each: impl Fn(Pid)) {
    let mut server = Server::start_app("hostile");
    let address = server.address();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent_address = silent.local_addr().expect("bound");
    let master = server.pid;
    let private = || status_kib(master, "RssAnon");
    let before = (descriptors(server.pid), private());
    for (begin, _) in TRIES {
        before_each(server.pid);
        let path = match begin.ends_with('/') {
            true => format!("{begin}{silent_address}"),
            false => (*begin).to_owned(),
        };
        let mut clients = Client::ask_many(address, 4, &path);
        for client in &mut clients {
            // A worker that the master has killed sends no response.
            let _ = client.try_response();
        }
        reload(&mut server);
        // A listener that was shut down again listens again after a second.
        until(|| TcpStream::connect(address).is_ok());
        assert_eq!(get(address, "/").body, "hello", "{begin}");
    }
    // The master closes a worker's descriptors a moment after it has reaped the worker.
    until(|| descriptors(server.pid) == before.0);
    let after = private();
    assert!(after < before.1 + GROWTH_MAX_KIB, "{before:?}, {after}");
    let mut clients = Client::connect_many(address, 4);
    for client in &mut clients {
        client.get("/flood");
    }
    server.signal(Signal::SIGTERM);
    server.wait("draining");
    server.end_well();
}

/// The master gets the signal, replaces every worker and reaps the old ones.
fn reload(server: &mut Server) {
    server.reload();
    until(|| server.workers().len() == 2);
}
