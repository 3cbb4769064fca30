//! Finds the server that a verb is for.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use prefork_server::Address;
use prefork_server::control::{Control, ControlError};
use serde_json::Value;

use super::Failure;
use crate::cli::admin::{admin, has_listener};
use crate::cli::{Admin, is_running, runtime_directory, sockets, value};

/// An address to connect to.
pub(super) fn address(text: &str) -> Result<Address, String> {
    match value::address(text)? {
        Address::Tcp(address) if address.port() == 0 => {
            Err("it needs the port that the server has; the server's log names it".into())
        }
        address => Ok(address),
    }
}

/// The server whose process id is in this file.
pub(super) fn by_pid_file(file: &Path) -> Result<Control, Failure> {
    let none = |why: &str| Failure::NoServer(format!("{}: {why}", file.display()));
    let pid = fs::read_to_string(file).map_err(|error| none(&error.to_string()))?;
    let pid = pid.trim().parse().map_err(|_| none("no process id"))?;
    let directory = directory()?;
    let path = socket(&directory, pid);
    let has_socket = path.try_exists().unwrap_or(true);
    let responds = has_socket && has_listener(&path);
    // A process in a container is not seen, but its socket may be.
    if !responds && !is_running(&path) {
        return Err(none(&format!("process {pid} has ended")));
    }
    if !has_socket {
        let directory = directory.display();
        return Err(none(&format!(
            "process {pid} has no socket in {directory}; --admin names another address"
        )));
    }
    Ok(Control::at(Address::Unix(path)))
}

/// The address that the server itself takes from the environment, if it is one. A socket comes
/// first, because a port takes no commands. An address with port 0 is left out: the kernel has
/// chosen a port, which only the server knows.
pub(super) fn by_environment() -> Result<Option<Address>, Failure> {
    let text = env::var("PREFORK_ADMIN").unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let given: Result<Vec<_>, _> = text.split(',').map(admin).collect();
    let given = given.map_err(|why| Failure::NoServer(format!("PREFORK_ADMIN: {why}")))?;
    let is_known = |address: &&Address| !matches!(address, Address::Tcp(it) if it.port() == 0);
    let mut addresses = given.iter().filter_map(Admin::given).filter(is_known);
    let first = addresses.clone().next();
    let socket = addresses.find(|address| matches!(address, Address::Unix(_)));
    let found = socket.cloned().or_else(|| socket_of(first?));
    Ok(found.or_else(|| first.cloned()))
}

/// The socket of the server at this port, in the runtime directory. `None` if this user cannot
/// connect to one. Another program may have the port, and name the process id of another server.
/// That server does not name the port.
fn socket_of(port: &Address) -> Option<Address> {
    let status = |address: &Address| -> Option<Value> {
        let status = Control::at(address.clone()).get("/status").ok()?;
        serde_json::from_str(&status).ok()
    };
    let master = status(port)?["pid"].as_u64()?;
    let socket = Address::Unix(socket(&runtime_directory()?, master));
    let ports = status(&socket)?["admin"].take();
    let has_port = ports.as_array()?.contains(&port.to_string().into());
    has_port.then_some(socket)
}

fn socket(directory: &Path, master: u64) -> PathBuf {
    directory.join(format!("{master}.sock"))
}

/// The server with a socket in the runtime directory, if there is one.
pub(super) fn only_one() -> Result<Control, Failure> {
    let directory = directory()?;
    if let Err(error) = fs::read_dir(&directory)
        && error.kind() == ErrorKind::PermissionDenied
    {
        return Err(ControlError::NotAllowed(directory).into());
    }
    let mut running: Vec<_> = sockets(&directory)
        .filter(|path| is_running(path) && has_listener(path))
        .collect();
    running.sort();
    match &running[..] {
        [] => Err(no_server(&directory)),
        [path] => Ok(Control::at(Address::Unix(path.clone()))),
        [..] => {
            let names: Vec<_> = running
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let names = names.join(", unix:");
            Err(Failure::NoServer(format!(
                "several servers run; choose by --admin: unix:{names}"
            )))
        }
    }
}

fn no_server(directory: &Path) -> Failure {
    let directory = directory.display();
    Failure::NoServer(format!(
        "no server has a socket in {directory}; --admin names another address"
    ))
}

fn directory() -> Result<PathBuf, Failure> {
    runtime_directory().ok_or_else(|| {
        Failure::NoServer("there is no runtime directory; name the server by --admin".to_owned())
    })
}
