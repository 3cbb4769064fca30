//! The admin addresses. By default there is a socket in a directory that only the user of the
//! master can use, so that nothing has to be chosen, and nobody else can connect.

use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, getsockname};
use nix::unistd::{AccessFlags, access, geteuid};
use prefork_server::Address;

use super::origin::Known;

/// The directory of root's servers.
const OF_ROOT: &str = "/run/prefork-server";

/// The most addresses that [`Prefork::admin`](prefork_server::Prefork::admin) takes.
const ADDRESSES_MAX: usize = 8;

/// What one `--admin` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admin {
    Off,
    /// A socket in the runtime directory.
    Auto,
    At(Address),
}

pub(crate) fn admin(text: &str) -> Result<Admin, String> {
    match text {
        "off" => Ok(Admin::Off),
        "auto" => Ok(Admin::Auto),
        other => match super::value::address(other) {
            Ok(address) => Ok(Admin::At(address)),
            Err(why) if other.contains(':') => Err(why),
            Err(why) => Err(format!("{why}; or off, or auto")),
        },
    }
}

impl Admin {
    /// The address, if it was given.
    pub(crate) fn given(&self) -> Option<&Address> {
        match self {
            Self::Off | Self::Auto => None,
            Self::At(address) => Some(address),
        }
    }
}

/// Fails if `off` is not alone, or if there are too many addresses. The canary of an upgrade has to
/// see it, because the master opens the addresses when it has become the new binary.
pub(super) fn check(known: &Known<'_>, given: &[Admin]) -> Result<(), String> {
    let is_off = given.contains(&Admin::Off);
    let automatic = usize::from(has_automatic(given));
    let addresses = given.iter().filter_map(Admin::given).count() + automatic;
    let why = if is_off && given.iter().any(|it| *it != Admin::Off) {
        "off and an address exclude each other".to_owned()
    } else if addresses > ADDRESSES_MAX {
        let with = ["", ", with the socket for verbs"][automatic];
        format!("{addresses} addresses{with}: there can be up to {ADDRESSES_MAX}")
    } else {
        return Ok(());
    };
    let mut options = known.command.get_arguments();
    let option = options.find(|it| it.get_id() == "admin");
    let name = option.map_or_else(String::new, |it| known.name(it));
    Err(format!("{name}: {why}"))
}

/// The first address that a browser can open. For port 0 the kernel chooses a port, which only the
/// master knows.
pub(crate) fn browsable(given: &[Admin]) -> Option<SocketAddr> {
    given.iter().find_map(|admin| match admin.given()? {
        Address::Tcp(address) => {
            Some(*address).filter(|it| it.port() != 0 && !it.ip().is_unspecified())
        }
        _ => None,
    })
}

/// Whether there is a socket in the runtime directory: verbs need one.
fn has_automatic(given: &[Admin]) -> bool {
    let is_socket = |admin: &Admin| matches!(admin, Admin::Off | Admin::At(Address::Unix(_)));
    given.contains(&Admin::Auto) || !given.iter().any(is_socket)
}

/// The addresses for this master.
pub(crate) fn addresses(given: &[Admin]) -> Vec<Address> {
    let mut addresses: Vec<_> = given.iter().filter_map(Admin::given).cloned().collect();
    if has_automatic(given) {
        match in_runtime_directory() {
            Ok(address) => addresses.push(address),
            Err(error) if addresses.is_empty() => {
                tracing::info!("no admin address: {error}; --admin gives one");
            }
            Err(error) => {
                tracing::info!("no socket for verbs: {error}; --admin unix:/PATH adds one");
            }
        }
    }
    addresses
}

fn in_runtime_directory() -> io::Result<Address> {
    let directory = runtime_directory()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "XDG_RUNTIME_DIR is not set"))?;
    let named = |what: &str, error: io::Error| {
        let text = format!("cannot {what} {}: {error}", directory.display());
        io::Error::new(error.kind(), text)
    };
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(|error| named("make", error))?;
    access(&directory, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|error| named("write to", error.into()))?;
    remove_left_behind(&directory);
    // The process stays the same in an upgrade, and so does its socket.
    let file = directory.join(format!("{}.sock", std::process::id()));
    if is_of_another(&file) {
        let why = format!("another server has {}", file.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    }
    let address = format!("unix:{}", file.display());
    super::value::address(&address).map_err(io::Error::other)
}

/// Removes the sockets of masters that were killed.
fn remove_left_behind(directory: &Path) {
    for path in sockets(directory) {
        // The master of another container is not seen, but its socket is.
        if !is_running(&path) && !has_listener(&path) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The sockets in the runtime directory, each with the name of a master.
pub(crate) fn sockets(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| master_of(path).is_some())
}

/// Whether the master of this socket runs.
pub(crate) fn is_running(socket: &Path) -> bool {
    master_of(socket).is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

/// Whether a process listens there. The one with the number of a master that was killed may be
/// another program.
pub(crate) fn has_listener(socket: &Path) -> bool {
    connect(socket) != Err(Errno::ECONNREFUSED)
}

/// Whether another process listens there: the master of another container that shares the directory
/// may have the same number. After an upgrade this process listens itself.
fn is_of_another(socket: &Path) -> bool {
    matches!(connect(socket), Ok(()) | Err(Errno::EAGAIN)) && !is_open_here(socket)
}

/// Does not wait if the queue of the listener is full: connect(2) fails with `EAGAIN`.
fn connect(path: &Path) -> nix::Result<()> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let stream = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    socket::connect(stream.as_raw_fd(), &UnixAddr::new(path)?)
}

/// Whether this process has the socket.
fn is_open_here(socket: &Path) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let mut numbers = open.filter_map(|fd| fd.ok()?.file_name().to_str()?.parse().ok());
    numbers.any(|fd| {
        let address = getsockname::<UnixAddr>(fd);
        address.is_ok_and(|address| address.path() == Some(socket))
    })
}

fn master_of(socket: &Path) -> Option<u32> {
    let name = socket.file_name()?.to_str()?;
    name.strip_suffix(".sock")?.parse().ok()
}

/// That of systemd's `RuntimeDirectory=`, of root, or of the user's session.
pub(crate) fn runtime_directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(given) = variable("RUNTIME_DIRECTORY") {
        // Several are separated by colons.
        let first = given.to_str()?.split(':').next()?;
        return Some(first.into());
    }
    if geteuid().is_root() {
        return Some(OF_ROOT.into());
    }
    let session = PathBuf::from(variable("XDG_RUNTIME_DIR")?);
    Some(session.join("prefork-server"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use nix::sys::socket::Backlog;
    use prefork_server::Prefork;

    use super::*;

    #[test]
    fn a_socket_is_left_behind_if_nobody_listens_there() {
        let dir = tempfile::tempdir().unwrap();
        // No process has these numbers here (proc_sys_kernel(5), pid_max).
        let [left, of_container] = ["4194305.sock", "4194306.sock"].map(|it| dir.path().join(it));
        drop(UnixListener::bind(&left).unwrap());
        let _listener = UnixListener::bind(&of_container).unwrap();
        remove_left_behind(dir.path());
        assert!(!left.exists());
        assert!(of_container.exists());
    }

    #[test]
    fn a_socket_whose_queue_is_full_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        socket::bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        socket::listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let _first = UnixStream::connect(&path).unwrap();
        assert_eq!(connect(&path), Err(Errno::EAGAIN));
        assert!(has_listener(&path));
        assert!(!is_of_another(&path), "this process has it");
    }

    #[test]
    fn a_server_takes_as_many_addresses_as_the_command_line() {
        let with = |addresses: usize| {
            let server = Prefork::bind("127.0.0.1:0");
            let server = (0..addresses).fold(server, |server, _| server.admin("127.0.0.1:0"));
            server.check()
        };
        with(ADDRESSES_MAX).expect("ports are free");
        with(ADDRESSES_MAX + 1).expect_err("too many");
    }

    #[test]
    fn a_port_comes_with_the_automatic_socket_and_another_socket_replaces_it() {
        for (text, automatic) in [
            ("auto", true),
            ("127.0.0.1:1", true),
            ("127.0.0.1:1,[::1]:1", true),
            ("127.0.0.1:1,auto", true),
            ("unix:/a,auto", true),
            ("unix:/a", false),
            ("127.0.0.1:1,unix:/a", false),
            ("off", false),
        ] {
            let given: Result<Vec<_>, _> = text.split(',').map(admin).collect();
            assert_eq!(has_automatic(&given.unwrap()), automatic, "{text}");
        }
    }
}
