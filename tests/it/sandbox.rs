//! A handler that an attacker controls tries to leave the sandbox of its worker. On a kernel whose
//! Landlock is older than its version 6 most of these tests say so and test nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use nix::errno::Errno;
use nix::libc::SYS_landlock_create_ruleset;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, truncate};
use prefork_server::{BoxError, Error, Request, Response, Sandbox, service_fn};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::apps;
use crate::client::get;
use crate::confined::refusing;
use crate::support::{BINARY, Server, program, status_field, this, until, words};
use crate::upgrade::Installed;

tests! {
    a_hostile_handler_does_not_get_out,
    what_the_sandbox_allows_is_done_as_without_it,
    an_app_of_run_is_in_the_sandbox_too,
    a_path_of_the_sandbox_that_is_missing_is_named,
    the_files_of_the_binary_are_served_in_the_sandbox,
    workers_of_the_binary_cannot_open_another_folder,
    links_that_lead_anywhere_widen_the_sandbox,
    a_kernel_without_landlock_is_named_once,
}

/// The folder that the app works in. Without it, the app's sandbox has a path that is missing.
const PLACE: &str = "PREFORK_TEST_PLACE";

/// If it is set, the app has no sandbox.
const OPEN: &str = "PREFORK_TEST_OPEN";

/// If it is set, the app is one of `run`, and tries one escape at its start.
const RUNS: &str = "PREFORK_TEST_RUNS";

/// What a handler tries, with the app's folder and the rest of the path.
type Try = (&'static str, fn(&Path, &str) -> io::Result<()>);

/// Each works without a sandbox, and is refused in one.
const ESCAPES: &[Try] = &[
    ("read_users", |_, _| done(File::open("/etc/passwd"))),
    ("read_program", |_, _| {
        std::env::current_exe().and_then(File::open).map(drop)
    }),
    ("read_configuration", |place, _| {
        done(File::open(place.join("config")))
    }),
    ("read_by_a_link", |place, _| {
        done(File::open(place.join("public/link")))
    }),
    ("list_the_root", |_, _| done(fs::read_dir("/"))),
    ("list_the_folder_above", |place, _| {
        done(fs::read_dir(place))
    }),
    ("read_of_another_process", |_, _| {
        done(File::open("/proc/1/status"))
    }),
    ("read_the_masters_environment", |_, _| {
        done(File::open(format!("/proc/{}/environ", parent_id())))
    }),
    ("make_a_file_outside", |place, _| {
        done(File::create(place.join("new")))
    }),
    ("make_a_file_in_public", |place, _| {
        done(File::create(place.join("public/new")))
    }),
    ("make_a_folder_in_public", |place, _| {
        fs::create_dir(place.join("public/folder"))
    }),
    ("change_a_file", |place, _| {
        done(OpenOptions::new().write(true).open(page(place)))
    }),
    ("cut_a_file", |place, _| Ok(truncate(&page(place), 5)?)),
    ("rename_a_file", |place, _| {
        fs::rename(page(place), place.join("public/renamed"))?;
        fs::rename(place.join("public/renamed"), page(place))
    }),
    ("take_a_file_in", |place, _| {
        fs::rename(place.join("secret"), place.join("uploads/secret"))
    }),
    ("remove_a_file", |place, _| {
        fs::remove_file(place.join("public/old"))
    }),
    ("read_a_log", |place, _| {
        done(File::open(place.join("logs/log")))
    }),
    ("cut_a_log", |place, _| {
        Ok(truncate(&place.join("logs/log"), 0)?)
    }),
    ("remove_a_log", |place, _| {
        fs::remove_file(place.join("logs/log"))
    }),
    ("execute", |_, _| done(Command::new("/bin/true").status())),
    ("execute_an_upload", |place, _| {
        let copy = place.join("uploads/program");
        done(Command::new(copy).status())
    }),
    ("bind", |_, _| done(TcpListener::bind("127.0.0.1:0"))),
    ("connect/", |_, address| done(TcpStream::connect(address))),
    ("connect_abstract", |place, _| {
        done(UnixStream::connect_addr(&abstract_address(place)))
    }),
    ("signal_the_master", |_, _| {
        let master = i32::try_from(parent_id()).expect("a pid");
        Ok(kill(Pid::from_raw(master), None)?)
    }),
    ("signal/", |_, workers| {
        let mut workers = workers.split(',').map(|pid| pid.parse().expect("a pid"));
        let sibling = workers.find(|&pid| Pid::from_raw(pid) != Pid::this());
        Ok(kill(Pid::from_raw(sibling.expect("there are two")), None)?)
    }),
];

/// Each works with and without a sandbox.
const WORK: &[Try] = &[
    ("read", |place, _| done(fs::read_to_string(page(place)))),
    ("list", |place, _| done(fs::read_dir(place.join("public")))),
    ("upload", |place, _| {
        let uploads = place.join("uploads");
        fs::write(uploads.join("a"), "long")?;
        fs::write(uploads.join("a"), "new")?;
        fs::create_dir_all(uploads.join("folder"))?;
        fs::rename(uploads.join("a"), uploads.join("folder/b"))?;
        fs::read_to_string(uploads.join("folder/b"))?;
        fs::remove_file(uploads.join("folder/b"))
    }),
    ("log", |place, _| {
        let log = place.join("logs/new");
        let mut log = OpenOptions::new().append(true).create(true).open(log)?;
        log.write_all(b"line\n")
    }),
    ("signal_itself", |_, _| Ok(kill(Pid::this(), None)?)),
    ("pair", |_, _| done(UnixStream::pair())),
];

fn done<T>(result: io::Result<T>) -> io::Result<()> {
    result.map(drop)
}

fn page(place: &Path) -> PathBuf {
    place.join("public/page")
}

fn abstract_address(place: &Path) -> SocketAddr {
    SocketAddr::from_abstract_name(place.as_os_str().as_bytes()).expect("it is short")
}

/// The path says what the handler tries, and where: on the worker's thread, or on another one.
pub(crate) fn app() -> Result<(), Error> {
    let place = std::env::var_os(PLACE).map_or("/no/such/place".into(), PathBuf::from);
    let sandbox = Sandbox::new()
        .read(place.join("public"))
        .write(place.join("uploads"))
        .append(place.join("logs"))
        .no_network();
    let sandbox = std::env::var_os(OPEN).is_none().then_some(sandbox);
    let server = apps::server().sandbox(sandbox);
    if std::env::var_os(RUNS).is_some() {
        return server.run(async |_worker, mut incoming| {
            File::open("/etc/passwd")?;
            while incoming.accept().await.is_some() {}
            Ok(())
        });
    }
    server.serve(async |_worker| {
        Ok(service_fn(move |request: Request| {
            let path = request.uri().path().to_owned();
            let place = place.clone();
            async move {
                let outcome = match path.strip_prefix("/thread/") {
                    Some(rest) => {
                        let rest = rest.to_owned();
                        spawn_blocking(move || attempt(&place, &rest)).await?
                    }
                    None => attempt(&place, path.trim_start_matches('/')),
                };
                let told = match outcome {
                    Ok(()) => "done".to_owned(),
                    Err(error) => format!("{:?}", error.kind()),
                };
                Ok::<Response, BoxError>(Response::new(told.into()))
            }
        }))
    })
}

fn attempt(place: &Path, path: &str) -> io::Result<()> {
    let mut all = ESCAPES.iter().chain(WORK);
    let found = all.find_map(|(name, attempt)| Some((attempt, path.strip_prefix(name)?)));
    let (attempt, rest) = found.expect("it is in a list");
    attempt(place, rest)
}

/// What the app works with.
fn place() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path();
    for folder in ["public", "uploads", "logs"] {
        fs::create_dir(place.join(folder)).expect("a new name");
    }
    for file in ["config", "secret", "public/page", "public/old", "logs/log"] {
        fs::write(place.join(file), "hello world").expect("writable");
    }
    symlink("../config", place.join("public/link")).expect("a new name");
    // Not by this process, which may fork another one meanwhile (execve(2), `ETXTBSY`).
    let copied = Command::new("cp")
        .arg("/bin/true")
        .arg(place.join("uploads/program"))
        .status();
    assert!(copied.expect("there is cp").success());
    dir
}

fn spawn(place: &Path) -> Command {
    let mut command = program(this());
    command.env(apps::VARIABLE, "sandbox").env(PLACE, place);
    command
}

/// Whether the kernel knows all that these tests try.
fn is_new_kernel() -> bool {
    let hard = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let is_new = hard.scope(Scope::Signal).is_ok();
    if !is_new {
        println!("not tested: it needs version 6 of Landlock");
    }
    is_new
}

/// Lets the handler try all, and returns what did not end so.
fn others(server: &mut Server, place: &Path, tries: &[Try], expected: &str) -> Vec<String> {
    let _listener = UnixListener::bind_addr(&abstract_address(place)).expect("a new name");
    let address = server.address();
    let workers: Vec<_> = server.workers().iter().map(Pid::to_string).collect();
    let mut others = Vec::new();
    for (name, _) in tries {
        let rest = match *name {
            "connect/" => address.to_string(),
            "signal/" => workers.join(","),
            _ => String::new(),
        };
        for thread in ["", "thread/"] {
            // Without a sandbox the first of both has done it already.
            if thread.is_empty() || expected != "done" || WORK.iter().any(|it| it.0 == *name) {
                let outcome = get(address, &format!("/{thread}{name}{rest}")).body;
                if outcome != expected {
                    others.push(format!("{thread}{name}: {outcome}"));
                }
            }
        }
    }
    others
}

fn a_hostile_handler_does_not_get_out() {
    if !is_new_kernel() {
        return;
    }
    let open = place();
    let mut server = Server::spawn(spawn(open.path()).env(OPEN, "1"));
    let failed = others(&mut server, open.path(), ESCAPES, "done");
    assert!(failed.is_empty(), "without a sandbox: {failed:?}");
    drop(server);
    let place = place();
    let mut server = Server::spawn(&mut spawn(place.path()));
    let escaped = others(&mut server, place.path(), ESCAPES, "PermissionDenied");
    assert!(escaped.is_empty(), "{escaped:?}");
    for worker in server.workers() {
        assert_eq!(status_field(worker, "NoNewPrivs"), "1");
    }
}

fn what_the_sandbox_allows_is_done_as_without_it() {
    let place = place();
    let mut server = Server::spawn(&mut spawn(place.path()));
    let failed = others(&mut server, place.path(), WORK, "done");
    assert!(failed.is_empty(), "{failed:?}");
    server.stop();
}

fn an_app_of_run_is_in_the_sandbox_too() {
    if !is_new_kernel() {
        return;
    }
    let place = place();
    let mut server = Server::spawn(spawn(place.path()).env(RUNS, "1").env(OPEN, "1"));
    server.address();
    let ended = Server::spawn(spawn(place.path()).env(RUNS, "1")).end();
    assert_eq!(ended.code, Some(3));
    assert!(ended.log.contains("Permission denied"), "{}", ended.log);
}

fn a_path_of_the_sandbox_that_is_missing_is_named() {
    if !is_new_kernel() {
        return;
    }
    let server = Server::spawn(spawn(Path::new("")).env_remove(PLACE));
    let ended = server.end();
    assert_eq!(ended.code, Some(3));
    assert!(ended.log.contains("/no/such/place/public"), "{}", ended.log);
}

/// What the binary serves and writes.
struct Site {
    dir: TempDir,
    /// Where the link leads that is the access log.
    log: PathBuf,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for folder in ["a", "a/sub", "b", "logs"] {
            fs::create_dir(dir.path().join(folder)).expect("a new name");
        }
        for file in ["a/page", "a/sub/page", "b/page", "a/404.html"] {
            fs::write(dir.path().join(file), file).expect("writable");
        }
        symlink("sub/page", dir.path().join("a/link")).expect("a new name");
        symlink("a", dir.path().join("site")).expect("a new name");
        symlink("../logs/log", dir.path().join("b/log")).expect("a new name");
        let log = dir.path().join("logs/log");
        Self { dir, log }
    }

    fn options(&self) -> Vec<String> {
        let options = words("--listing --not-found-page 404.html --workers 2 --access-log");
        let paths = ["b/log", "site"].map(|path| self.dir.path().join(path).display().to_string());
        options
            .into_iter()
            .map(str::to_owned)
            .chain(paths)
            .collect()
    }

    /// Points the link to another directory, in one step.
    fn point(&self, target: &str) {
        let (new, site) = (self.dir.path().join("new"), self.dir.path().join("site"));
        symlink(target, &new).expect("a new name");
        fs::rename(new, site).expect("the same directory");
    }
}

fn strs(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

/// Over a rotation of the log, a reload and an upgrade.
fn the_files_of_the_binary_are_served_in_the_sandbox() {
    let (site, installed) = (Site::new(), Installed::new(BINARY));
    let mut server = installed.start(&strs(&site.options()));
    let address = server.address();
    let body = |path| get(address, path).body;
    assert_eq!(body("/page"), "a/page");
    assert_eq!(body("/link"), "a/sub/page");
    assert_eq!(body("/none"), "a/404.html");
    assert!(body("/").contains("sub"));
    fs::rename(&site.log, site.dir.path().join("logs/old")).expect("it is ours");
    server.signal(Signal::SIGUSR1);
    until(|| site.log.exists());
    site.point("b");
    server.reload();
    // Until the old workers have left.
    until(|| body("/page") == "b/page");
    site.point("a");
    installed.replace(BINARY);
    server.upgrade();
    until(|| body("/page") == "a/page");
    let ended = server.stop();
    let log = fs::read_to_string(&site.log).expect("it was made again");
    assert!(log.matches("GET /page").count() >= 2, "{log}");
    assert!(!ended.log.contains("keeps its old file"), "{}", ended.log);
    assert!(!is_new_kernel() || !ended.log.contains("sandbox"));
}

/// The log's folder is another one: the new file cannot be made before a reload.
fn workers_of_the_binary_cannot_open_another_folder() {
    if !is_new_kernel() {
        return;
    }
    for (mode, is_made) in [("off", true), ("on", false)] {
        let site = Site::new();
        let options = site.options();
        let mut server = Server::start(&[&strs(&options), &["--sandbox", mode][..]].concat());
        let address = server.address();
        let logs = site.dir.path().join("logs");
        fs::rename(&logs, site.dir.path().join("away")).expect("it is ours");
        fs::create_dir(&logs).expect("a new name");
        server.signal(Signal::SIGUSR1);
        until(|| site.log.exists() || server.log().contains("keeps its old file"));
        assert_eq!(site.log.exists(), is_made, "{}", server.log());
        server.reload();
        until(|| site.log.exists());
        assert_eq!(get(address, "/page").body, "a/page");
    }
}

fn links_that_lead_anywhere_widen_the_sandbox() {
    let site = Site::new();
    symlink("../b/page", site.dir.path().join("a/out")).expect("a new name");
    let options = site.options();
    let anywhere = &["--symlinks", "anywhere"][..];
    let mut server = Server::start(&[&strs(&options), anywhere].concat());
    assert_eq!(get(server.address(), "/out").body, "b/page");
    let log = server.log();
    assert_eq!(log.matches("lets workers read all files").count(), 1);
}

fn a_kernel_without_landlock_is_named_once() {
    let Some(mut python) = refusing(SYS_landlock_create_ruleset, Errno::ENOSYS) else {
        return;
    };
    let site = Site::new();
    python.args([BINARY, "--listen", "127.0.0.1:0", "--announce-fd", "1"]);
    let mut server = Server::spawn(python.args(site.options()));
    let address = server.address();
    server.reload();
    assert_eq!(get(address, "/page").body, "a/page");
    let ended = server.stop();
    let line = "workers have no sandbox: this kernel has no Landlock";
    assert_eq!(ended.log.matches(line).count(), 1, "{}", ended.log);
}
