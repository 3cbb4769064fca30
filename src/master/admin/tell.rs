//! What the master tells admin processes: everything to a new one, then what changes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::master::Master;
use crate::master::admin::Admin;
use crate::master::admin::process::{AdminProcess, Stage, Told};
use crate::master::tls::Secrets;
use crate::protocol::admin::{Fact, ServerView};
use crate::sys::clock;

/// After this time the master tries again to tell what it could not.
const RETRY: Duration = Duration::from_millis(100);

impl Master {
    /// Tells the processes that have just started, and those that did not read, everything.
    pub(in crate::master) fn inform_new_ones(&mut self) {
        let admin = self.observers.admin.as_ref();
        if !admin.is_some_and(|admin| admin.processes().any(is_new)) {
            return;
        }
        let everything = match self.everything() {
            Ok(everything) => everything,
            Err(error) => return self.tell_later(&error),
        };
        let admin = self.observers.admin.iter_mut();
        for process in admin.flat_map(Admin::processes_mut) {
            if is_new(process) {
                process.stage = Stage::Informed;
                process.waiting.extend(everything.iter().cloned());
                process.send_waiting();
            }
        }
    }

    fn everything(&mut self) -> io::Result<Vec<Told>> {
        let ended = self.workers.scoreboard.copy()?.read_only()?;
        let mut facts = vec![(Fact::Ended, Some(Arc::new(ended)))];
        for process in self.workers.processes.values() {
            let page = process.stats.read_only()?;
            facts.push((Fact::Worker(process.info()), Some(Arc::new(page))));
        }
        // Before the view, which completes what a process has to know before it responds.
        let admin = self.observers.admin.iter();
        let notices = admin.flat_map(|admin| admin.notices.iter().cloned());
        facts.extend(notices.map(|notice| (Fact::Notice(notice), None)));
        let view = self.view().to_memory()?;
        facts.push((Fact::View, Some(Arc::new(view))));
        Ok(facts)
    }

    /// The state of this moment.
    fn view(&mut self) -> ServerView {
        let (status, _) = self.status();
        let observers = &mut self.observers;
        observers.operations.on_status(&status);
        let admin = observers.admin.iter();
        ServerView {
            status,
            admin: admin.flat_map(Admin::listening).cloned().collect(),
            history: observers.history.clone(),
            operations: observers.operations.clone(),
            queues: self.listeners.queues(),
            certificates: self
                .secrets
                .iter()
                .flat_map(Secrets::ends)
                .cloned()
                .collect(),
        }
    }

    /// Tells the admin processes the state of the server, if it has changed.
    pub(in crate::master) fn tell_view(&mut self, now: Duration) {
        if self.observers.admin.is_none() {
            return;
        }
        let view = match self.view().to_memory() {
            Ok(view) => view,
            Err(error) => return self.tell_later(&error),
        };
        if let Some(admin) = &mut self.observers.admin {
            (admin.view_due, admin.view_told) = (None, now);
            // Else the process needs more than the view, and that may still fail.
            if !admin.processes().any(is_new) {
                admin.failures = 0;
            }
            admin.tell(&Fact::View, Some(Arc::new(view)));
        }
    }

    /// No memory or descriptor is free for what is to be told.
    fn tell_later(&mut self, error: &io::Error) {
        let Some(admin) = &mut self.observers.admin else {
            return;
        };
        admin.view_due = Some(clock::monotonic().saturating_add(RETRY));
        admin.failures += 1;
        let failures = admin.failures;
        // At 1, 2, 4, 8, ... failures in a row.
        if failures.is_power_of_two() {
            tracing::warn!(%error, failures, "the admin process cannot be told what has changed");
        }
    }
}

/// Whether the process has been told nothing yet.
fn is_new(process: &AdminProcess) -> bool {
    process.stage == Stage::New && process.waiting.is_empty()
}
