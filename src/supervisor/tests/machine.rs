//! A trait with the four methods of the supervisor, and the checks around them.

use crate::codec::{Reader, Record, Writer};
use crate::supervisor::tests::watch::{Breach, Watch, rule};
use crate::supervisor::*;

/// If one event gives more actions than this, the machine does not come to rest.
const ACTIONS_MAX: usize = 10_000;

/// The four methods of the supervisor.
pub(super) trait Machine: Clone {
    fn handle(&mut self, event: Event, now: Time);
    fn handle_timeout(&mut self, now: Time);
    fn next_action(&mut self) -> Option<Action>;
    fn next_deadline(&self) -> Option<Time>;

    /// The machine in the next image, after `ExecInPlace`.
    fn resume(&self, policy: &Policy, now: Time) -> Self;
}

impl Machine for Supervisor {
    fn handle(&mut self, event: Event, now: Time) {
        self.handle(event, now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn next_action(&mut self) -> Option<Action> {
        self.next_action()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next_deadline()
    }

    /// By way of the bytes, as in a real upgrade.
    fn resume(&self, policy: &Policy, now: Time) -> Self {
        let snapshot = self.snapshot();
        let mut writer = Writer::default();
        snapshot.put(&mut writer);
        let (bytes, _) = writer.finish();
        let read = Snapshot::take(&mut Reader::new(&bytes)).expect("it was just written");
        assert_eq!(read, snapshot);
        Self::resume(read, policy.clone(), now)
    }
}

/// A machine and its watch.
#[derive(Clone, Hash)]
pub(super) struct Watched<M> {
    pub(super) machine: M,
    pub(super) watch: Watch,
}

impl<M: Machine> Watched<M> {
    pub(super) fn new(machine: M, policy: &Policy) -> Self {
        Self {
            machine,
            watch: Watch::new(policy.clone()),
        }
    }

    /// Returns the actions of `new`. Call it once, first.
    pub(super) fn start(&mut self) -> Result<Vec<Action>, Breach> {
        self.drain_actions()
    }

    pub(super) fn handle(&mut self, event: Event, now: Time) -> Result<Vec<Action>, Breach> {
        self.watch.event(event, now);
        self.machine.handle(event, now);
        self.drain_actions()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) -> Result<Vec<Action>, Breach> {
        self.watch.waited(now);
        self.machine.handle_timeout(now);
        self.drain_actions()
    }

    /// Replaces the machine by that of the next image.
    pub(super) fn resume(&mut self, policy: &Policy, now: Time) -> Result<Vec<Action>, Breach> {
        self.watch.resumed(policy, now);
        self.machine = self.machine.resume(policy, now);
        self.drain_actions()
    }

    fn drain_actions(&mut self) -> Result<Vec<Action>, Breach> {
        let mut actions = Vec::new();
        while let Some(action) = self.machine.next_action() {
            let last = actions.last() != Some(&Action::ExecInPlace);
            rule(last, || format!("{action:?} after ExecInPlace"))?;
            self.watch.action(action)?;
            actions.push(action);
            rule(actions.len() < ACTIONS_MAX, || {
                "it does not come to rest".into()
            })?;
        }
        self.watch.settled(self.machine.next_deadline())?;
        Ok(actions)
    }
}
