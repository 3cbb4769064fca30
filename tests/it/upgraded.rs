//! What a master does as the next image, when there is no way back.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};

use crate::admin::is_admin;
use crate::client::get;
use crate::config::{file, watched};
use crate::init::{activated, copy, input};
use crate::support::{BINARY, Server, descendants, program, until, words};
use crate::upgrade::Installed;

tests! {
    a_descriptor_that_is_not_open_does_not_end_the_server,
    a_directory_that_has_gone_since_it_was_tried_does_not_end_the_server,
    an_upgrade_after_which_workers_would_be_root_is_abandoned,
    an_admin_process_does_not_need_the_file_although_no_worker_has_started,
    a_worker_that_starts_during_the_next_upgrade_does_not_read_the_file,
}

const OPTIONS: &str = "listen = [\"127.0.0.1:0\"]\nworkers = 1\n";

fn a_descriptor_that_is_not_open_does_not_end_the_server() {
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&["--workers", "1", "--respond", "old"]);
    let address = server.address();
    let new = format!("--announce-fd 99 --workers 1 --respond new --listen {address}");
    installed.replace_by_script("/bin/sh", &format!("exec {BINARY} {new}"));
    server.signal(Signal::SIGUSR2);
    until(|| server.log().contains("cannot announce"));
    until(|| get(address, "/").body == "new");
    server.stop();
}

/// It goes when the canary serves, and before the new image of the master looks for it.
fn a_directory_that_has_gone_since_it_was_tried_does_not_end_the_server() {
    let installed = Installed::new(BINARY);
    let [files, gone] = ["files", "gone"].map(|name| installed.beside(name));
    fs::create_dir(&files).expect("a new name");
    fs::write(files.join("a"), "green").expect("a new name");
    let mut server = installed.start(&["--workers", "1", &files.display().to_string()]);
    let address = server.address();
    let go = format!("mv {} {}", files.display(), gone.display());
    let script = format!("test -z \"$PREFORK_SERVER_UPGRADE\" || {go}; exec {BINARY} \"$@\"");
    installed.replace_by_script("/bin/sh", &script);
    server.upgrade();
    assert_eq!(get(address, "/a").body, "green");
    server.stop();
}

/// The service manager passes the listener to the master alone, so the canary does not see it.
fn an_upgrade_after_which_workers_would_be_root_is_abandoned() {
    if !geteuid().is_root() {
        return;
    }
    let installed = Installed::new(BINARY);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut server = program(installed.path());
    let options = words("--listen 127.0.0.1:0 --announce-fd 1 --respond hi");
    server.env("PREFORK_USER", "root").args(options);
    let mut command: Command = activated(&server, "$$", "app.socket");
    let mut server = Server::spawn_with_input(&mut command, input(copy(&listener)));
    let address = server.address();
    let script = format!("unset PREFORK_USER; exec {BINARY} \"$@\"");
    installed.replace_by_script("/bin/sh", &script);
    server.upgrade_in_vain();
    assert!(server.log().contains("--user root"), "{}", server.log());
    assert_eq!(get(address, "/").body, "hi");
}

/// The only worker is the canary, which the image before has started.
fn an_admin_process_does_not_need_the_file_although_no_worker_has_started() {
    let (_dir, file) = file(&format!("{OPTIONS}respond = \"green\""));
    let mut watched = watched(&file);
    watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    let of_old_image = watched.admin();
    watched.server.upgrade();
    let admins = || -> Vec<_> {
        let processes = descendants(watched.server.pid).into_iter();
        processes.filter(is_admin).collect()
    };
    until(|| matches!(admins()[..], [admin] if admin != of_old_image));
    fs::remove_file(&file).expect("it is ours");
    kill(watched.admin(), Signal::SIGKILL).expect("it runs");
    assert_eq!(watched.get("/readyz").body, "ready\n");
}

fn a_worker_that_starts_during_the_next_upgrade_does_not_read_the_file() {
    let (_dir, file) = file(&format!("{OPTIONS}respond = \"green\""));
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&["--config", &file.display().to_string()]);
    let address = server.address();
    server.upgrade();
    until(|| server.workers().len() == 1);
    let worker = server.workers()[0];
    let go_on = installed.beside("go-on");
    mkfifo(&go_on, Mode::S_IRWXU).expect("a new name");
    let script = format!("read line < {}; exec {BINARY} \"$@\"", go_on.display());
    installed.replace_by_script("/bin/sh", &script);
    server.signal(Signal::SIGUSR2);
    server.wait("worker_spawned");
    fs::write(&file, format!("{OPTIONS}respond = \"black\"")).expect("it is ours");
    kill(worker, Signal::SIGKILL).expect("it lives");
    server.wait("worker_ready");
    assert_eq!(get(address, "/").body, "green");
    fs::write(&go_on, "\n").expect("the script reads it");
    server.wait("upgrade_abandoned");
    server.stop();
}
