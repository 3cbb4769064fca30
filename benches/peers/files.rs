//! Files: small and large ones, many and few, within TLS and over HTTP/2, and some that must be
//! read from the disk.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use tempfile::TempDir;

use crate::http2;
use crate::load::{Ask, Driver, Extent, Handshakes, Plan, Tls};
use crate::options::Scale;
use crate::peer::{Peer, Running};
use crate::process::Trouble;
use crate::programs::target;
use crate::question::Shown;
use crate::report::written;
use crate::session::{Session, Setup};
use crate::support::turns::Turn;
use crate::turns::cpu_of_load;

/// Fewer than for small responses: what waits to be sent should fit a CPU's cache as it would with
/// clients that are apart.
const CONNECTIONS: usize = 16;

/// The lengths that have a file each, in KiB.
const LENGTHS: [usize; 4] = [1, 16, 64, 1024];

/// Over HTTP/2.
const HTTP2_CONNECTIONS: usize = 8;

/// The length in KiB of what is served within TLS.
const PRIVATE: usize = 64;

/// The length in KiB of each of many files.
const ONE_OF_MANY: usize = 4;

/// The length in KiB of a file that is read from the disk, and how many there are.
const COLD: usize = 1024;
const COLD_FILES: usize = 64;

/// The files that all servers serve.
pub(crate) struct Files {
    dir: TempDir,
    /// The contents of each are the first of these bytes.
    contents: Vec<u8>,
}

impl Files {
    fn new(scale: &Scale) -> Result<Self, Trouble> {
        fs::create_dir_all(target())?;
        let dir = tempfile::tempdir_in(target())?;
        let mut contents = vec![0; COLD.max(LENGTHS[LENGTHS.len() - 1]) * 1024];
        Rng::with_seed(0).fill(&mut contents);
        let files = Self { dir, contents };
        for kib in LENGTHS {
            files.write(&format!("{kib}.bin"), kib)?;
        }
        for dir in ["many", "cold"] {
            fs::create_dir(files.dir.path().join(dir))?;
        }
        for path in many(scale) {
            files.write(&path, ONE_OF_MANY)?;
        }
        for path in cold() {
            // The kernel forgets only what is on the disk.
            files.write(&path, COLD)?.sync_all()?;
        }
        Ok(files)
    }

    fn write(&self, path: &str, kib: usize) -> Result<File, Trouble> {
        let path = self.dir.path().join(path.trim_start_matches('/'));
        let mut file = File::create(path)?;
        file.write_all(self.of(kib))?;
        // Ours copies what was written less than a minute ago.
        file.set_modified(SystemTime::now() - Duration::from_secs(3600))?;
        Ok(file)
    }

    fn of(&self, kib: usize) -> &[u8] {
        &self.contents[..kib * 1024]
    }

    /// The kernel no longer has the contents of the cold ones in memory.
    fn cool(&self) -> Result<(), Trouble> {
        for path in cold() {
            let file = File::open(self.dir.path().join(path.trim_start_matches('/')))?;
            posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
        Ok(())
    }
}

fn many(scale: &Scale) -> impl Iterator<Item = String> {
    (0..scale.files).map(|number| format!("/many/{number:05}.bin"))
}

fn cold() -> impl Iterator<Item = String> {
    (0..COLD_FILES).map(|number| format!("/cold/{number:05}.bin"))
}

fn length(kib: usize) -> String {
    match kib {
        1024 => "1 MiB".into(),
        _ => format!("{kib} KiB"),
    }
}

fn key(kib: usize) -> String {
    format!("files_{kib}")
}

const MANY: &str = "files_many";
const TLS: &str = "files_tls";
const HTTP2: &str = "files_http2";

pub(crate) fn tables(scale: &Scale) -> Vec<Shown> {
    let table =
        |key: &str, what: String| Shown::compared(key, format!("CPU per request, {what}"), "us");
    let mut tables = Vec::from(LENGTHS.map(|kib| {
        let what = format!("a file of {}", length(kib));
        table(&key(kib), what)
    }));
    let files = written(scale.files as f64);
    let (each, private) = (length(ONE_OF_MANY), length(PRIVATE));
    tables.extend([
        table(MANY, format!("{files} files of {each}")),
        table(TLS, format!("a file of {private} within TLS")),
        table(HTTP2, format!("a file of {private} within TLS over HTTP/2")),
        Shown {
            title: format!("{COLD_FILES} files of {} from the disk", length(COLD)),
            columns: [("time in ms", "cold_time"), ("CPU in us", "cold_cpu")]
                .map(|(head, figure)| (head.to_owned(), figure.to_owned()))
                .into(),
            main: 1,
            is_compared: false,
        },
    ]);
    tables
}

pub(crate) fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    if session.files.get().is_none() {
        let files = Files::new(&session.scale)?;
        assert!(session.files.set(files).is_ok(), "it was not there");
    }
    let files = session.files.get().expect("it is there now");
    let mut turn = Turn::default();
    let setup = |pem| Setup {
        files: Some(files.dir.path()),
        pem,
        ..Setup::default()
    };
    let server = session.start_with(peer, &setup(None))?;
    open(session, &server, files, &mut turn)?;
    // One at a time has the CPU.
    drop(server);
    let private = session.start_with(peer, &setup(Some(&session.pem)))?;
    within_tls(session, &private, files, &mut turn)?;
    Ok(turn)
}

fn open(
    session: &Session,
    server: &Running,
    files: &Files,
    turn: &mut Turn,
) -> Result<(), Trouble> {
    let time = session.scale.turn;
    for kib in LENGTHS {
        let plan = Plan::new(CONNECTIONS, one(files, kib));
        cpu_of_load(server, plan, time, (&key(kib), turn))?;
    }
    let plan = Plan::new(
        CONNECTIONS,
        Ask::each(many(&session.scale)).expecting(files.of(ONE_OF_MANY)),
    );
    // Each was asked for before.
    let all = Extent::Requests(2 * session.scale.files as u64);
    Driver::new(server.address, plan.clone()).closed(all);
    cpu_of_load(server, plan, time, (MANY, turn))?;

    let plan = Plan::new(1, Ask::each(cold()).expecting(files.of(COLD)));
    let mut driver = Driver::new(server.address, plan);
    files.cool()?;
    let all = Extent::Requests(COLD_FILES as u64);
    let (used, outcome) = server.cpu_of(|| driver.closed(all));
    turn.failures.merge(&outcome.failures);
    let per_file = |seconds: f64| seconds / COLD_FILES as f64;
    turn.set("cold_time", per_file(outcome.elapsed.as_secs_f64()) * 1e3);
    turn.set("cold_cpu", per_file(used.as_secs_f64()) * 1e6);
    Ok(())
}

fn within_tls(
    session: &Session,
    server: &Running,
    files: &Files,
    turn: &mut Turn,
) -> Result<(), Trouble> {
    let time = session.scale.turn;
    let tls = Tls::trusting(session.pem.trusted.clone(), Handshakes::Full);
    let streams = (0..HTTP2_CONNECTIONS).map(|_| TcpStream::connect(server.address));
    let clients = http2::Clients::new(streams, Some(&tls), files.of(PRIVATE))?;
    let mut plan = Plan::new(CONNECTIONS, one(files, PRIVATE));
    plan.tls = Some(tls);
    cpu_of_load(server, plan, time, (TLS, turn))?;
    clients.ask(&path(PRIVATE), time / 5)?;
    let (used, responses) = server.cpu_of(|| clients.ask(&path(PRIVATE), time));
    turn.set(HTTP2, used.as_secs_f64() * 1e6 / responses? as f64);
    Ok(())
}

fn one(files: &Files, kib: usize) -> Ask {
    Ask::get(&path(kib)).expecting(files.of(kib))
}

fn path(kib: usize) -> String {
    format!("/{kib}.bin")
}
