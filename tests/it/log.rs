//! The log: the master keeps working when the log is not read.

use std::fs::File;
use std::io::{self, ErrorKind, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use nix::libc::O_NONBLOCK;
use nix::sys::signal::{Signal, kill};

use crate::client::get;
use crate::support::{Server, binary, pid_of};

tests! {
    the_master_keeps_working_when_the_reader_of_its_log_has_closed,
    the_master_keeps_working_when_the_reader_of_its_log_does_not_read,
}

fn command() -> Command {
    let mut command = binary();
    command
        .args(["--listen", "127.0.0.1:0", "--announce-fd", "1"])
        .args(["--workers", "1", "--respond", "hi", "--log-level", "debug"]);
    command
}

/// Checks that the master handles a signal, replaces a worker and reloads.
fn works(server: &mut Server) {
    let pid = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    assert_eq!(get(address, "/").body, "hi");
    kill(pid, Signal::SIGKILL).expect("it lives");
    server.wait("worker_ready");
    assert_eq!(get(address, "/").body, "hi");
    reloads(server);
}

fn reloads(server: &mut Server) {
    server.signal(Signal::SIGHUP);
    server.wait("reload_finished");
}

/// Writes until the pipe is full, and returns the number of bytes. The flags of `pipe` stay.
fn fill(pipe: &PipeWriter) -> usize {
    let mut own = File::options()
        .write(true)
        .custom_flags(O_NONBLOCK)
        .open(format!("/proc/self/fd/{}", pipe.as_raw_fd()))
        .expect("a pipe can be opened by its descriptor");
    let mut filled = 0;
    loop {
        match own.write(&[b'.'; 4096]) {
            Ok(written) => filled += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return filled,
            Err(error) => panic!("{error}"),
        }
    }
}

fn the_master_keeps_working_when_the_reader_of_its_log_has_closed() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let mut server = Server::spawn_with_log(&mut command(), writer);
    works(&mut server);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().code, Some(0));
}

fn the_master_keeps_working_when_the_reader_of_its_log_does_not_read() {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let filled = fill(&writer);
    let mut server = Server::spawn_with_log(&mut command(), writer);
    works(&mut server);
    let mut bytes = vec![0; filled];
    reader.read_exact(&mut bytes).expect("it was written");
    assert!(bytes.iter().all(|&byte| byte == b'.'), "it was full");
    // The number of dropped lines is written with the next line that fits.
    reloads(&mut server);
    let pid = server.pid;
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().code, Some(0));
    let log = io::read_to_string(reader).expect("no process writes any more");
    assert!(log.contains(&format!("process {pid} dropped ")), "{log}");
    assert!(log.contains("reload finished"), "{log}");
}
