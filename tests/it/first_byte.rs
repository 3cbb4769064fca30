//! Connections that the kernel keeps until their first byte comes.

use nix::sys::signal::Signal;

use crate::client::Client;
use crate::handover::settled;
use crate::support::BINARY;
use crate::upgrade::Installed;

tests! {
    connections_without_a_first_byte_outlive_reloads_and_upgrades,
}

/// No worker has these connections: they wait in the kernel.
fn connections_without_a_first_byte_outlive_reloads_and_upgrades() {
    let installed = Installed::new(BINARY);
    let arguments = [
        "--workers",
        "2",
        "--respond",
        "hi",
        "--worker-header",
        "--defer-accept",
    ];
    let mut server = installed.start(&arguments);
    let address = server.address();
    for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
        let mut clients: Vec<_> = (0..20).map(|_| Client::connect(address)).collect();
        server.signal(signal);
        server.wait("reload_finished");
        let workers = settled(&server, 2);
        for client in &mut clients {
            let response = client.get("/");
            assert_eq!(response.body, "hi");
            assert!(workers.contains(&response.worker("pid")));
        }
    }
    server.signal(Signal::SIGTERM);
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let finished = ended.notices.last().expect("some");
    assert_eq!(finished["connections"], 2 * 20, "each was accepted once");
}
