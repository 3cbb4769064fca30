//! The binary, from start to end on one screen. The library runs this program again in each worker.

mod access_log;
mod app;
mod check;
mod cli;
mod console;
mod contents;
#[cfg(test)]
#[path = "../../../tests/fuzz/target.rs"]
mod fuzz;
mod log;
#[path = "../../one_line.rs"]
mod one_line;
mod sandbox;
mod site;
mod verbs;

use std::fs;
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use nix::sys::prctl::set_thp_disable;
use nix::unistd::geteuid;
use prefork_server::{Address, BoxError, Http, Prefork, Role, role};

use self::app::{Setup, SharedLog};
use self::cli::Options;
use self::cli::config::is_upgraded;
use self::console::Console;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    forgo_huge_pages();
    let first = std::env::args_os().nth(1);
    let first = first.as_ref().and_then(|first| first.to_str());
    if role() == Role::Master && first.is_some_and(verbs::is_verb) {
        return verbs::run();
    }
    let mut options = match Options::from_process() {
        Ok(options) => options,
        Err(error) if role() == Role::Worker => return console::refuse_in_worker(&error),
        Err(error) => return console::print_of_clap(&error),
    };
    if let Some(page) = &options.printed {
        return console::print(page);
    }
    console::log(&options.logs);
    match role() {
        Role::Master => {
            console::warn_of_variables(&Options::unknown_variables());
            sandbox::tell(&options);
        }
        Role::Worker => options.serving.resolve_links(),
        _ => {}
    }
    let setup = Setup::new(&options);
    // The master checks before it binds. A worker that cannot serve the content reports it to the
    // master, and the master says why the reload or the upgrade was abandoned.
    if role() == Role::Master
        && !is_upgraded()
        && let Err(error) = setup.check()
    {
        return console::refuse(&*error, 2);
    }
    if let Err(error) = check_user(&options) {
        return console::refuse(&*error, 2);
    }
    if options.config.check {
        return check::check(&options, server(&options, setup.log()));
    }
    let console = Console::new(&options, setup.log());
    match server(&options, setup.log())
        .hooks(console)
        .serve(async move |worker| setup.app(&worker))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => console::refuse(&error, error.exit_code()),
    }
}

/// Turns huge pages off, for the workers too, which inherit it (prctl(2), `PR_SET_THP_DISABLE`).
///
/// The allocator asks for huge pages (madvise(2), `MADV_HUGEPAGE`). A worker uses little of such a
/// page, and the kernel clears all of it while requests wait: tens of milliseconds in a virtual
/// machine whose host must find the memory first. The earlier the call, the less of the master's
/// memory is in large pages: before the options are parsed, it saves 1.5 MB.
fn forgo_huge_pages() {
    // It fails on a kernel that has none. No log exists yet.
    let _ = set_thp_disable(true);
}

/// The variable by which a master tells workers that it [`is_activated`].
const ACTIVATED: &str = "PREFORK_SERVER_ACTIVATED";

/// Whether a `.socket` unit has passed a listener, whose address may be reachable. What an earlier
/// master has left (`FDSTORE`) does not count: it is used only for an address of `--listen`.
fn is_activated() -> bool {
    if role() != Role::Master {
        return std::env::var_os(ACTIVATED).is_some();
    }
    let variable = |name| std::env::var(name).ok();
    let passed = variable("LISTEN_FDS");
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let is_kept = |name: &&str| {
        name.starts_with("prefork-server/slot-") || name.starts_with("prefork-server/shared/")
    };
    let kept = names.split(':').filter(is_kept).count();
    variable("LISTEN_PID") == Some(std::process::id().to_string())
        && passed.is_some_and(|passed| passed.parse() != Ok(kept))
}

/// Refuses to run workers as root, unless `--user` says so or no other machine can reach the
/// server: most servers are started as root only to bind a port below 1024.
///
/// A worker checks it too: the canary of an upgrade then fails, before the master becomes a binary
/// that refuses to start.
fn check_user(options: &Options) -> Result<(), BoxError> {
    let unasked = options.processes.user.is_none() && is_master_root();
    let is_local = |address: &Address| match address {
        Address::Tcp(address) => address.ip().is_loopback(),
        other => matches!(other, Address::Unix(_)),
    };
    let redirects = console::redirects(options);
    let mut addresses = options.serving.listen.iter().chain(redirects);
    let reachable = is_activated() || !addresses.all(is_local);
    if unasked && reachable {
        let advice = "Workers would run as root. Pass --user NAME to drop privileges, or \
                       --user root (PREFORK_USER=root) to confirm.";
        return Err(advice.into());
    }
    Ok(())
}

fn is_master_root() -> bool {
    if role() == Role::Master {
        return geteuid().is_root();
    }
    // The number of the master in `/proc`, which may be that of another process namespace.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    // The directory of a process belongs to the user that the process runs as (proc(5)).
    let master = parent.map(|parent| fs::metadata(format!("/proc/{}", parent.trim())));
    master.is_some_and(|master| master.is_ok_and(|master| master.uid() == 0))
}

fn server(options: &Options, log: SharedLog) -> Prefork {
    let (processes, limits) = (&options.processes, &options.limits);
    let http = Http::new()
        .header_timeout(limits.header_timeout)
        .body_timeout(limits.body_timeout)
        .write_timeout(limits.write_timeout)
        .idle_timeout(limits.idle_timeout)
        .max_connection_age(limits.max_connection_age)
        .max_connection_requests(limits.max_connection_requests)
        .max_warm(limits.max_warm)
        .max_target_size(limits.max_target_size)
        .max_header_size(limits.max_header_size)
        .max_body_size(limits.max_body_size)
        .slow_request(options.logs.slow_request)
        .request_ids(options.logs.access_log.is_some());
    let http = match options.logs.access_log {
        Some(_) => http.on_refused(move |refused| {
            if let Some(log) = log.get() {
                log.refused(refused);
            }
        }),
        None => http,
    };
    #[cfg(feature = "http2")]
    let http = http.http2(limits.http2);
    let mut addresses = options.serving.listen.iter().cloned();
    let first = addresses
        .next()
        .expect("the command line has a default address");
    let mut server = addresses
        .fold(Prefork::bind(first), Prefork::also_bind)
        .http(http)
        .workers(processes.workers.count())
        .listeners(processes.listeners)
        .balance(processes.balance)
        .defer_accept(processes.defer_accept)
        .drain_timeout(processes.drain_timeout)
        .pre_stop_delay(processes.pre_stop_delay)
        .reload_batch(processes.reload_batch)
        .hang_timeout(processes.hang_timeout.0)
        .crash_limit(processes.crash_limit)
        .unix_mode(processes.unix_mode);
    #[cfg(feature = "tls")]
    if let Some(tls) = options.tls.tls() {
        server = server.tls(tls);
        let addresses = options.tls.redirect_to_https.iter().cloned();
        server = addresses.fold(server, Prefork::redirect_to_https);
    }
    if let Some(user) = &processes.user {
        server = server.user(user);
    }
    if let Some(group) = &processes.group {
        server = server.group(group);
    }
    if let Some(path) = &processes.pid_file {
        server = server.pid_file(path);
    }
    if let Some(connections) = limits.max_connections {
        server = server.max_connections(connections.get());
    }
    server = server
        .max_connections_per_client(limits.max_connections_per_client)
        .max_requests(limits.max_requests.map(NonZeroU64::get))
        .max_worker_age(limits.max_worker_age)
        .proxy_protocol(limits.proxy_protocol.iter().copied());
    observed(server, options)
}

/// Adds how the server tells what it does, and what its workers may do.
fn observed(mut server: Prefork, options: &Options) -> Prefork {
    server = server.sandbox(sandbox::of(options));
    if let Some(fd) = options.logs.announce_fd {
        server = server.announce_fd(fd);
    }
    let addresses = admin_addresses(options).into_iter();
    addresses.fold(server, Prefork::admin)
}

/// Only the master opens them.
fn admin_addresses(options: &Options) -> Vec<Address> {
    match role() {
        Role::Master => cli::admin::addresses(&options.processes.admin),
        _ => Vec::new(),
    }
}
