//! A server with several admin addresses.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hyper::service::service_fn;
use nix::sys::signal::{Signal, kill};
use prefork_server::{Error, Role, role, usable_cpus};
use tempfile::TempDir;

use crate::admin::{admin_port, ask, is_admin};
use crate::apps;
use crate::client::{Client, get};
use crate::confined::as_pid_1;
use crate::support::{
    BINARY, Server, binary, can_change_user, descendants, nobody, output, program, status_field,
    this, until,
};
use crate::upgrade::Installed;
use crate::verbs::{done, told};

tests! {
    a_port_comes_with_a_socket_for_verbs_and_both_stay,
    verbs_find_the_socket_of_a_server_by_its_port,
    with_port_0_in_the_variable_verbs_find_the_only_server,
    a_port_leads_verbs_to_no_server_without_it,
    a_port_needs_no_runtime_directory,
    a_socket_of_a_master_with_the_same_number_is_left_to_it,
    a_process_that_everyone_can_ask_runs_as_the_workers_user,
    an_upgrade_adds_and_removes_addresses,
    an_address_that_an_upgrade_cannot_open_is_opened_by_the_next_one,
    an_upgrade_with_too_many_addresses_is_abandoned,
    settings_that_only_the_master_has_do_not_end_an_upgraded_server,
}

const PORT: &str = "127.0.0.1:0";

/// A server whose admin address is a port, and the runtime directory with its socket.
struct Both {
    server: Server,
    installed: Installed,
    run: TempDir,
    port: SocketAddr,
}

impl Both {
    fn start(arguments: &[&str]) -> Self {
        let (installed, run) = (Installed::new(BINARY), tempfile::tempdir());
        let run = run.expect("a directory");
        let mut command = program(installed.path());
        command.args(["--listen", PORT, "--announce-fd", "1", "--admin", PORT]);
        command.args(arguments).env("RUNTIME_DIRECTORY", run.path());
        let mut server = Server::spawn(command.args(["--workers", "1", "--respond", "hi"]));
        server.address();
        let port = admin_port(&server);
        Self {
            server,
            installed,
            run,
            port,
        }
    }

    fn socket(&self) -> PathBuf {
        self.run.path().join(format!("{}.sock", self.server.pid))
    }

    /// A verb that has to find the server.
    fn verb(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.env("RUNTIME_DIRECTORY", self.run.path());
        command.args(arguments);
        command
    }

    fn check_both(&self) {
        let page = get(self.port, "/metrics").body;
        assert!(page.contains("prefork_worker_up"), "{page}");
        let mut client = Client::connect(self.port);
        client.send("POST /v1/reload HTTP/1.1\r\nhost: test\r\n\r\n");
        let refused = client.response();
        assert_eq!(refused.status(), 405, "{refused:?}");
        assert_eq!(ask(&self.socket(), "GET", "/livez").body, "live\n");
    }
}

fn a_port_comes_with_a_socket_for_verbs_and_both_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let pid_file = dir.path().join("pid").display().to_string();
    let both = Both::start(&["--pid-file", &pid_file]);
    let give = |verb: &str| {
        let arguments = [verb, "--wait", "--pid-file", &pid_file];
        told(&output(&mut both.verb(&arguments)))
    };
    both.check_both();
    assert_eq!(give("reload"), done());
    both.check_both();
    assert_eq!(give("upgrade"), done());
    both.check_both();
    both.installed.replace("/bin/false");
    assert_eq!(give("upgrade").0, Some(3));
    both.check_both();
    let ended = both.server.stop();
    assert_eq!(ended.count("reload_finished"), 2);
    let left = fs::read_dir(both.run.path()).expect("a directory");
    assert_eq!(left.count(), 0, "the socket file is left");
}

/// The variable is that of the server.
fn verbs_find_the_socket_of_a_server_by_its_port() {
    let (mut one, mut other) = (Both::start(&[]), Both::start(&[]));
    let reload = |variable: String| {
        let mut verb = one.verb(&["reload", "--wait"]);
        told(&output(verb.env("PREFORK_ADMIN", variable)))
    };
    assert_eq!(reload(one.port.to_string()), done());
    // A socket that is in the variable comes first.
    assert_eq!(
        reload(format!("{},unix:{}", one.port, other.socket().display())),
        done()
    );
    // It has its socket in another directory, so the verb goes to the port.
    let (code, _, why) = reload(other.port.to_string());
    assert_eq!(code, Some(3), "{why}");
    for server in [&mut one.server, &mut other.server] {
        server.wait("reload_finished");
    }
}

/// The kernel has chosen the port, so the variable does not lead to it.
fn with_port_0_in_the_variable_verbs_find_the_only_server() {
    let one = Both::start(&[]);
    let mut verb = one.verb(&["reload", "--wait"]);
    let verb = verb.env("PREFORK_ADMIN", PORT);
    assert_eq!(told(&output(verb)), done());
    let other = Both::start(&[]);
    let link = one.run.path().join(format!("{}.sock", other.server.pid));
    symlink(other.socket(), link).expect("a new name");
    let (code, _, why) = told(&output(verb));
    assert_eq!(code, Some(5), "{why}");
    assert!(
        why.contains("several servers run; choose by --admin"),
        "{why}"
    );
}

/// Another program has the port, and names the process id of a server.
fn a_port_leads_verbs_to_no_server_without_it() {
    let one = Both::start(&[]);
    let status = format!("{{\"pid\":{}}}", one.server.pid);
    let mut other = Server::start(&["--respond", &status]);
    let mut verb = one.verb(&["stop"]);
    let verb = verb.env("PREFORK_ADMIN", other.address().to_string());
    let (code, _, why) = told(&output(verb));
    assert_eq!(code, Some(1), "{why}");
    one.check_both();
    one.server.stop();
    other.stop();
}

fn a_port_needs_no_runtime_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let long = dir.path().join("a".repeat(100));
    let mut command = binary();
    command.args(["--listen", PORT, "--announce-fd", "1", "--respond", "hi"]);
    command.args(["--admin", PORT]);
    let mut server = Server::spawn(command.env("RUNTIME_DIRECTORY", &long));
    assert_eq!(get(server.address(), "/").body, "hi");
    assert_eq!(get(admin_port(&server), "/livez").body, "live\n");
    let log = server.log();
    assert!(log.contains("no socket for verbs: "), "{log}");
}

/// Two containers may share the directory. Needs user namespaces or root.
fn a_socket_of_a_master_with_the_same_number_is_left_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let commands = [as_pid_1(), as_pid_1()];
    let [Some(first), Some(second)] = commands else {
        return;
    };
    let servers = [first, second].map(|mut command| {
        command.args([BINARY, "--listen", PORT, "--announce-fd", "1"]);
        command.args(["--respond", "hi", "--admin", PORT]);
        let mut server = Server::spawn(command.env("RUNTIME_DIRECTORY", dir.path()));
        assert_eq!(server.wait("serving")["pid"], 1);
        server
    });
    let socket = dir.path().join("1.sock");
    let log = servers[1].log();
    let why = format!(
        "no socket for verbs: another server has {}",
        socket.display()
    );
    assert!(log.contains(&why), "{log}");
    assert_eq!(get(admin_port(&servers[1]), "/livez").body, "live\n");
    let ports = ask(&socket, "GET", "/status").body;
    let first = format!("\"{}\"", admin_port(&servers[0]));
    assert!(ports.contains(&first), "{ports}");
    for server in servers {
        kill(descendants(server.pid)[0], Signal::SIGTERM).expect("it lives");
        server.end_well();
    }
}

fn a_process_that_everyone_can_ask_runs_as_the_workers_user() {
    if !can_change_user() {
        return;
    }
    let both = Both::start(&["--user", "nobody"]);
    both.check_both();
    let processes = descendants(both.server.pid).into_iter();
    let users = processes.filter(is_admin).map(|pid| {
        let ids = status_field(pid, "Uid");
        let user = ids.split_whitespace().next();
        user.and_then(|id| id.parse().ok()).expect("a number")
    });
    let nobody = nobody().uid.as_raw();
    assert_eq!(users.collect::<BTreeSet<u32>>(), [0, nobody].into());
}

/// A server with options in a file, which the test changes.
struct Changing {
    server: Server,
    installed: Installed,
}

impl Changing {
    fn start() -> Self {
        let installed = Installed::new(BINARY);
        let mut command = program(installed.path());
        command.env_remove("PREFORK_ADMIN").arg("--config");
        command.arg(installed.beside("server.toml"));
        write(&installed, &[&address(&installed, "one")]);
        let mut server = Server::spawn(command.args(["--announce-fd", "1"]));
        server.address();
        Self { server, installed }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.installed.beside(name)
    }

    /// A verb with these addresses in the file, given at the address with this name.
    fn give(&self, verb: &str, name: &str, addresses: &[&str]) {
        let told = self.ask(verb, name, addresses);
        assert_eq!(told, done(), "{}", self.server.log());
    }

    /// The same. Returns the exit code, and what the verb has written to its output and as errors.
    fn ask(&self, verb: &str, name: &str, addresses: &[&str]) -> (Option<i32>, String, String) {
        write(&self.installed, addresses);
        let mut command = binary();
        command.args([verb, "--wait", "--admin", &self.address(name)]);
        told(&output(&mut command))
    }

    fn address(&self, name: &str) -> String {
        address(&self.installed, name)
    }
}

fn address(installed: &Installed, name: &str) -> String {
    format!("unix:{}", installed.beside(name).display())
}

fn write(installed: &Installed, addresses: &[&str]) {
    let text = format!("listen = [\"{PORT}\"]\nworkers = 1\nadmin = {addresses:?}\n");
    fs::write(installed.beside("server.toml"), text).expect("it is ours");
}

fn responds(socket: &Path) -> bool {
    ask(socket, "GET", "/livez").body == "live\n"
}

fn an_upgrade_adds_and_removes_addresses() {
    let mut changing = Changing::start();
    let [one, two] = ["one", "two"].map(|name| changing.address(name));
    changing.give("upgrade", "one", &[&one, PORT, &two]);
    let port = admin_port(&changing.server);
    assert_eq!(get(port, "/livez").body, "live\n");
    assert!(responds(&changing.socket("one")) && responds(&changing.socket("two")));
    fs::remove_file(changing.socket("two")).expect("it is the server's");
    changing.give("upgrade", "one", &[&one, PORT, &two]);
    assert!(responds(&changing.socket("two")));
    // A reload changes none, and says so.
    changing.give("reload", "two", &[PORT, &two]);
    let log = changing.server.log();
    assert!(log.contains("the option admin in "), "{log}");
    assert!(responds(&changing.socket("one")));
    changing.give("upgrade", "two", &[PORT, &two]);
    assert!(!changing.socket("one").exists());
    assert!(responds(&changing.socket("two")));
    assert_eq!(get(port, "/livez").body, "live\n");
    write(&changing.installed, &["off"]);
    changing.server.signal(Signal::SIGUSR2);
    for _ in 0..5 {
        changing.server.wait("reload_finished");
    }
    assert!(!changing.socket("two").exists());
    until(|| !descendants(changing.server.pid).iter().any(is_admin));
    changing.server.stop();
}

fn an_address_that_an_upgrade_cannot_open_is_opened_by_the_next_one() {
    let changing = Changing::start();
    let [one, two] = ["one", "two"].map(|name| changing.address(name));
    fs::write(changing.socket("two"), "no socket").expect("a new name");
    changing.give("upgrade", "one", &[&one, &two]);
    let log = changing.server.log();
    assert!(log.contains("no admin process"), "{log}");
    assert!(responds(&changing.socket("one")));
    fs::remove_file(changing.socket("two")).expect("it is ours");
    changing.give("upgrade", "one", &[&one, &two]);
    assert!(responds(&changing.socket("one")) && responds(&changing.socket("two")));
}

/// The master would not start with them, so it does not become such a binary.
fn an_upgrade_with_too_many_addresses_is_abandoned() {
    let changing = Changing::start();
    let (code, _, why) = changing.ask("upgrade", "one", &[PORT; 8]);
    assert_eq!(code, Some(3), "{why}");
    assert!(
        why.contains("9 addresses, with the socket for verbs"),
        "{why}"
    );
    assert!(responds(&changing.socket("one")));
    changing.server.stop();
}

/// An app whose settings are wrong in the master: nine addresses, a text that is no address, a
/// short hang timeout and no workers. In a worker it has no such setting.
pub(crate) fn wrong_in_master() -> Result<(), Error> {
    let mut server = apps::server();
    if role() == Role::Master {
        server = (0..9).fold(server, |server, _| server.admin(PORT));
        let at_once = Duration::from_nanos(1);
        server = server.admin("no address").hang_timeout(at_once).workers(0);
    }
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

/// The canary does not refuse them, and after it there is no way back.
fn settings_that_only_the_master_has_do_not_end_an_upgraded_server() {
    let (installed, mut server) = Installed::app("hello");
    let address = server.address();
    let (name, program) = (apps::VARIABLE, this());
    let script = format!("{name}=wrong_in_master exec {}", program.display());
    installed.replace_by_script("/bin/sh", &script);
    server.upgrade();
    assert_eq!(get(address, "/").body, "hello");
    // As many workers as there are by default, and a process for each address.
    until(|| descendants(server.pid).len() == usable_cpus().usable + 8);
    server.stop();
}
