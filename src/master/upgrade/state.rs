//! The state that a master leaves to its next image, and how it is written and read.

#[cfg(test)]
mod fuzz;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::unistd::Pid;

use crate::codec::{self, Malformed, Record, Writer, record};
use crate::handle::Command;
use crate::hooks::{WorkerExit, WorkerInfo};
use crate::id::{Slot, WorkerId};
use crate::master::admin::DetachedAdmin;
use crate::master::listeners::Detached;
use crate::master::pid_file::PidFile;
use crate::master::upgrade::program::Program;
use crate::master::workers::process::Process;
use crate::protocol::inheritance::ProcessRole;
use crate::protocol::state;
use crate::status::{History, Operations};
use crate::supervisor::{Pause, Snapshot};
use crate::sys::credentials::Credentials;
use crate::sys::exec;
use crate::sys::signals::Before;

/// What a master leaves to its next image. Its descriptors stay open in that image. A change of a
/// field needs a new [`state::VERSION`].
#[derive(Debug)]
pub(super) struct MasterState {
    pub(super) program: Program,
    pub(super) nesting: u8,
    /// The user and group of the workers.
    pub(super) credentials: Option<Credentials>,
    pub(super) signals: Before,
    pub(super) supervisor: Snapshot,
    /// That between the ask to end the server and its drain.
    pub(super) pause: Pause,
    pub(super) listeners: Detached,
    pub(super) scoreboard: OwnedFd,
    /// The keys of session tickets and the files as they were read, if the server speaks TLS.
    pub(super) ticket_keys: Option<OwnedFd>,
    pub(super) tls_files: Option<OwnedFd>,
    pub(super) processes: BTreeMap<WorkerId, Process>,
    pub(super) respawning: BTreeMap<Slot, (WorkerInfo, WorkerExit)>,
    pub(super) failures: VecDeque<String>,
    pub(super) pid_file: Option<PidFile>,
    pub(super) history: History,
    pub(super) operations: Operations,
    pub(super) admin: Option<DetachedAdmin>,
    /// Commands of handles in the image before, which it has not carried out.
    pub(super) commands: Vec<Command>,
}

record!(MasterState {
    program,
    nesting,
    credentials,
    signals,
    supervisor,
    pause,
    listeners,
    scoreboard,
    ticket_keys,
    tls_files,
    processes,
    respawning,
    failures,
    pid_file,
    history,
    operations,
    admin,
    commands,
});

impl MasterState {
    /// Makes this process the image on disk, which takes this state, with these variables in its
    /// environment. Returns only if that fails.
    pub(super) fn exec(&self, mut variables: Vec<(OsString, OsString)>) -> io::Result<Infallible> {
        let mut writer = Writer::default();
        self.put(&mut writer);
        let (bytes, mut crossing) = writer.finish();
        let memory = exec::state_file(&state::seal(&bytes, Pid::this()))?;
        crossing.push(memory.as_raw_fd());
        let (name, value) = ProcessRole::upgraded(&memory);
        variables.push((name.into(), value.into()));
        exec::exec(self.program.path(), variables, &crossing)
    }

    /// Reads the state that this process has left.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let bytes = state::open(bytes, Pid::this()).map_err(|error| error.to_string())?;
        codec::from_bytes(bytes)
            .map_err(|Malformed| "it is in another form than its version says".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;
    use std::os::fd::RawFd;
    use std::time::Duration;

    use super::*;
    use crate::config::Config;
    use crate::hooks::Core;
    use crate::id::Generation;
    use crate::keyring::Keyring;
    use crate::master::init::inherited::Inherited;
    use crate::master::listeners::Listeners;
    use crate::master::workers::process::{EndRequest, MasterSide};
    use crate::policy::Stop;
    use crate::protocol::channel::{Channel, ToMaster};
    use crate::protocol::scoreboard::{Page, Scoreboard};
    use crate::protocol::state::Versions;
    use crate::protocol::ticket_keys::{self, TicketKeys};
    use crate::supervisor::{Event, Policy, Supervisor, Time};
    use crate::sys::memory;
    use crate::sys::signals::Signals;

    fn snapshot() -> Snapshot {
        let mut supervisor = Supervisor::new(Policy::default(), Time::ZERO);
        for event in [
            Event::Ready(WorkerId(1)),
            Event::Upgrade,
            Event::Ready(WorkerId(2)),
        ] {
            supervisor.handle(event, Time::ZERO);
        }
        supervisor.snapshot()
    }

    /// A state with something in each of its fields, and its worker's side of the channel.
    fn state() -> (MasterState, Channel) {
        let config = Config {
            addresses: vec!["127.0.0.1:0".parse().expect("an address")],
            ..Config::default()
        };
        let slots = NonZeroU16::new(2).expect("two");
        let mut listeners =
            Listeners::open(&config, slots, Inherited::default()).expect("a free port");
        let scoreboard = Scoreboard::new().expect("a memfd");
        let keyring = Keyring::new(ticket_keys::fresh_key().expect("random"), Duration::ZERO);
        let keys = TicketKeys::new(keyring).expect("a memfd");
        let stats = Page::new().expect("a memfd");
        let (ours, theirs) = Channel::pair().expect("a pair");
        let ours = MasterSide {
            channel: ours,
            stats,
        };
        let mut process = Process::new(Pid::from_raw(7), Slot(0), Generation::FIRST, ours);
        process.end_request = EndRequest::Abort;
        let worker = process.info();
        let status = WorkerExit::Signal {
            signal: 9,
            core: Core::Dumped,
        };
        let signals = Signals::block().expect("a signalfd");
        let state = MasterState {
            program: Program::of_this_process(),
            nesting: 1,
            credentials: None,
            signals: signals.before(),
            supervisor: snapshot(),
            pause: Pause::NotAsked,
            listeners: listeners.detach(),
            scoreboard: scoreboard.share().expect("a descriptor"),
            ticket_keys: Some(keys.share().expect("a descriptor")),
            tls_files: Some(memory::sealed(c"files", b"what was read").expect("a memfd")),
            processes: [(WorkerId(1), process)].into(),
            respawning: [(Slot(1), (worker, status))].into(),
            failures: ["it fell".to_owned()].into(),
            pid_file: None,
            history: History::default(),
            operations: Operations::default(),
            admin: None,
            commands: vec![Command::Upgrade, Command::Stop(Stop::Now)],
        };
        (state, theirs)
    }

    fn written(state: &MasterState) -> (Vec<u8>, Vec<RawFd>) {
        let mut writer = Writer::default();
        state.put(&mut writer);
        writer.finish()
    }

    #[test]
    fn a_state_is_read_as_it_was_written_with_its_descriptors() {
        let (state, worker) = state();
        let (bytes, crossing) = written(&state);
        assert_eq!(
            crossing.len(),
            11,
            "two listeners, two inboxes, a scoreboard, keys, files, a channel and a page"
        );
        let shown = format!(
            "{:?}",
            (&state.supervisor, &state.listeners, &state.respawning)
        );
        let commands = state.commands.clone();
        // As after an exec: the descriptors stay open, and their owners are gone.
        std::mem::forget(state);
        let read = MasterState::read(&state::seal(&bytes, Pid::this())).expect("it is whole");
        assert_eq!(
            format!(
                "{:?}",
                (&read.supervisor, &read.listeners, &read.respawning)
            ),
            shown
        );
        assert_eq!(
            (read.commands.clone(), read.failures[0].as_str()),
            (commands, "it fell")
        );
        let process = &read.processes[&WorkerId(1)];
        assert_eq!(process.end_request, EndRequest::Abort);
        let channel = process.channel().expect("it is open");
        let ready = ToMaster::Ready(Versions::OURS);
        worker
            .send_to_master(&ready)
            .expect("the other side is open");
        assert!(channel.recv_from_worker().is_ok());
        let (_, again) = written(&read);
        assert_eq!(again, crossing);
    }

    #[test]
    fn a_state_that_is_not_whole_is_refused() {
        for cut in [1, 2, 50, 1_000_000] {
            let (state, _worker) = state();
            let (bytes, _) = written(&state);
            std::mem::forget(state);
            let part = &bytes[..bytes.len().saturating_sub(cut)];
            let error = MasterState::read(&state::seal(part, Pid::this())).expect_err("a piece");
            assert!(error.contains("another form"), "{cut} bytes less: {error}");
        }
        let (state, _worker) = state();
        let (mut bytes, _) = written(&state);
        std::mem::forget(state);
        bytes.push(0);
        MasterState::read(&state::seal(&bytes, Pid::this())).expect_err("a byte too many");
    }

    #[test]
    fn a_state_of_another_process_or_version_takes_no_descriptor() {
        let (state, _worker) = state();
        let (bytes, _) = written(&state);
        let others = state::seal(&bytes, Pid::from_raw(1));
        let error = MasterState::read(&others).expect_err("another has left it");
        assert!(error.contains("process 1"), "{error}");
        let mut later = state::seal(&bytes, Pid::this());
        later[8] += 1;
        let error = MasterState::read(&later).expect_err("nobody reads that yet");
        let next = format!("is of version {}", state::VERSION + 1);
        assert!(error.contains(&next), "{error}");
        // If a descriptor was closed twice, the test ends here.
        drop(state);
    }
}
