//! The tests that need processes: the real binary and small apps on the library, driven from
//! outside. `tests/README.md` has the rules.
//!
//! This binary has a `main` of its own because the library runs its program again in every
//! worker: a re-executed test binary must become the app it is a worker of.

/// A test by its path.
type Test = (&'static str, fn());

/// The tests of the module that this stands in. A test that is in no list is dead code.
macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        pub(crate) const TESTS: &[crate::Test] = &[$((
            concat!(module_path!(), "::", stringify!($name)),
            $name,
        )),+];
    };
}

mod access_log;
mod admin;
mod admin_addresses;
mod admin_page;
mod adoption;
mod api;
mod apps;
mod at_exit;
mod balance;
mod balancer;
mod cap;
#[cfg(feature = "tls")]
mod certificates;
mod client;
#[cfg(all(feature = "http2", feature = "tls"))]
mod clients;
mod config;
mod confined;
mod control;
mod crash;
mod discard;
mod drain;
mod events;
mod exit_codes;
mod files;
mod first_byte;
mod frameworks;
mod handover;
mod hang;
mod hostile;
#[cfg(feature = "http2")]
mod http2;
#[cfg(feature = "tls")]
mod https;
mod init;
mod lifecycle;
mod log;
mod master_death;
mod own_metrics;
mod placing;
mod presence;
mod privileges;
mod recycle;
#[cfg(feature = "tls")]
mod redirect;
mod resize;
mod sandbox;
mod scoreboard;
mod signals;
mod startup;
mod status;
mod store;
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_handover;
mod upgrade;
mod upgraded;
mod variables;
mod verbs;
mod websocket;
mod wire;

use std::num::NonZero;
use std::thread::available_parallelism;

use libtest_mimic::{Arguments, Trial};
use prefork_server::Exit;

/// The tests of each module.
const MODULES: &[&[Test]] = &[
    access_log::TESTS,
    admin::TESTS,
    admin_addresses::TESTS,
    admin_page::TESTS,
    adoption::TESTS,
    api::TESTS,
    at_exit::TESTS,
    balance::TESTS,
    balancer::TESTS,
    cap::TESTS,
    #[cfg(feature = "tls")]
    certificates::TESTS,
    #[cfg(all(feature = "http2", feature = "tls"))]
    clients::TESTS,
    control::TESTS,
    config::TESTS,
    crash::TESTS,
    discard::TESTS,
    drain::TESTS,
    events::TESTS,
    exit_codes::TESTS,
    files::TESTS,
    first_byte::TESTS,
    files::conditions::TESTS,
    #[cfg(feature = "http2")]
    files::windowless::TESTS,
    frameworks::TESTS,
    frameworks::axum::TESTS,
    #[cfg(all(feature = "http2", feature = "tls"))]
    frameworks::grpc::TESTS,
    handover::TESTS,
    hang::TESTS,
    hostile::TESTS,
    #[cfg(feature = "http2")]
    http2::TESTS,
    init::TESTS,
    lifecycle::TESTS,
    log::TESTS,
    master_death::TESTS,
    own_metrics::TESTS,
    placing::TESTS,
    presence::TESTS,
    privileges::TESTS,
    recycle::TESTS,
    #[cfg(feature = "tls")]
    redirect::TESTS,
    resize::TESTS,
    sandbox::TESTS,
    scoreboard::TESTS,
    signals::TESTS,
    startup::TESTS,
    status::TESTS,
    store::TESTS,
    terminal::TESTS,
    #[cfg(feature = "tls")]
    tls::TESTS,
    #[cfg(feature = "tls")]
    tls_handover::TESTS,
    upgrade::TESTS,
    upgraded::TESTS,
    variables::TESTS,
    verbs::TESTS,
    websocket::TESTS,
    wire::TESTS,
];

fn main() -> Exit {
    if let Some(app) = std::env::var_os(apps::VARIABLE) {
        return apps::run(&app);
    }
    let tests = MODULES.iter().copied().flatten();
    let trials = tests.map(|&(path, test)| {
        let name = path.split_once("::").map_or(path, |(_crate, name)| name);
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    let mut arguments = Arguments::from_args();
    let cpus = available_parallelism().map_or(1, NonZero::get);
    // Most of the time a test waits for what other processes do.
    arguments.test_threads.get_or_insert(3 * cpus);
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
