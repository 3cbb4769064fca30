//! Turns notices into messages to the service manager (sd_notify(3)), without side effects.

use std::collections::BTreeSet;
use std::fmt;

use sd_notify::NotifyState;

use crate::address::Address;
use crate::hooks::{Notice, WorkerInfo};
use crate::id::{Generation, Slot};
use crate::policy::Outcome;
use crate::status::is_dry_run;

/// What was reported to the manager.
#[derive(Debug, Default)]
pub(super) struct Report {
    stage: Stage,
    addresses: Vec<Address>,
    workers: u16,
    /// The slots and pids of the workers that serve. In a reload or an upgrade a slot may have two.
    serving: BTreeSet<(Slot, u32)>,
    /// Why the latest reload or upgrade was abandoned.
    abandoned: Option<String>,
    /// The latest `STATUS=`, so that none is sent twice.
    status: String,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Starting,
    Serving,
    Reloading(Generation),
    Draining,
    Finished(Outcome),
}

impl Report {
    /// The message for a notice, if there is one. `now` is the time that is sent with a reload.
    pub(super) fn on_notice(
        &mut self,
        notice: &Notice,
        now: NotifyState<'static>,
    ) -> Option<String> {
        match notice {
            Notice::Serving {
                addresses, workers, ..
            } => {
                self.stage = Stage::Serving;
                self.addresses.clone_from(addresses);
                self.workers = *workers;
                Some(self.say(&[NotifyState::Ready]))
            }
            Notice::ReloadStarted { generation } if self.is_up() => {
                self.stage = Stage::Reloading(*generation);
                self.abandoned = None;
                Some(self.say(&[NotifyState::Reloading, now]))
            }
            Notice::ReloadFinished { .. } if self.is_up() => Some(self.serve_on(None)),
            Notice::ReloadAbandoned { generation, why } if self.is_up() => {
                self.reload_abandoned(*generation, why)
            }
            Notice::UpgradeStarted => {
                self.abandoned = None;
                self.say_if_new()
            }
            Notice::UpgradeAbandoned { why } => {
                self.abandoned =
                    (!is_dry_run(why)).then(|| format!("the upgrade was abandoned: {why}"));
                self.say_if_new()
            }
            Notice::Draining => {
                self.stage = Stage::Draining;
                Some(self.say(&[NotifyState::Stopping]))
            }
            Notice::Finished { outcome, .. } => {
                self.stage = Stage::Finished(*outcome);
                Some(self.say(&[NotifyState::Stopping]))
            }
            Notice::WorkerReady(worker) => {
                self.serving.insert((worker.slot, worker.pid));
                self.say_if_new()
            }
            Notice::WorkerDraining(worker) | Notice::WorkerExited { worker, .. } => {
                self.serving.remove(&(worker.slot, worker.pid));
                self.say_if_new()
            }
            Notice::Resized { workers } => {
                self.workers = *workers;
                self.say_if_new()
            }
            Notice::WorkerSpawned(_)
            | Notice::WorkerHung(_)
            | Notice::WorkerStuck(_)
            | Notice::Adopted { .. }
            | Notice::NotAdopted { .. }
            | Notice::Released { .. }
            | Notice::ListenerReopened { .. }
            | Notice::BackingOff { .. }
            | Notice::Stopping
            | Notice::UpgradeFinished
            | Notice::ReloadStarted { .. }
            | Notice::ReloadFinished { .. }
            | Notice::ReloadAbandoned { .. } => None,
        }
    }

    /// Goes on after an upgrade. The image before this one has reported that the server serves.
    pub(super) fn resume(
        &mut self,
        addresses: Vec<Address>,
        workers: u16,
        serving: impl Iterator<Item = WorkerInfo>,
    ) {
        self.stage = Stage::Serving;
        self.addresses = addresses;
        self.workers = workers;
        self.serving = serving.map(|worker| (worker.slot, worker.pid)).collect();
        self.status = self.to_string();
    }

    /// Whether the start was reported, and the end was not.
    fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Serving | Stage::Reloading(_))
    }

    fn reload_abandoned(&mut self, generation: Generation, why: &str) -> Option<String> {
        let why = format!("the reload to generation {generation} was abandoned: {why}");
        match self.stage {
            // It was refused while another one runs.
            Stage::Reloading(running) if running != generation => {
                self.abandoned = Some(why);
                self.say_if_new()
            }
            _ => Some(self.serve_on(Some(why))),
        }
    }

    /// The end of a reload, finished or abandoned, is reported as ready.
    fn serve_on(&mut self, abandoned: Option<String>) -> String {
        self.stage = Stage::Serving;
        self.abandoned = abandoned;
        self.say(&[NotifyState::Ready])
    }

    fn say(&mut self, states: &[NotifyState<'_>]) -> String {
        self.status = self.to_string();
        let mut lines = message(states);
        lines.push_str(&message(&[NotifyState::Status(&self.status)]));
        lines
    }

    fn say_if_new(&mut self) -> Option<String> {
        (self.is_up() && self.status != self.to_string()).then(|| self.say(&[]))
    }
}

/// The status, on one line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stage {
            Stage::Starting => return f.write_str("starting"),
            Stage::Draining => return f.write_str("draining"),
            Stage::Finished(outcome) => return write!(f, "ended: {outcome}"),
            Stage::Reloading(generation) => write!(f, "reloading to generation {generation}: ")?,
            Stage::Serving => {}
        }
        let slots: BTreeSet<_> = self.serving.iter().map(|(slot, _)| slot).collect();
        let (serving, workers) = (slots.len(), usize::from(self.workers));
        if serving < workers {
            write!(f, "{serving} of ")?;
        }
        let plural = if workers == 1 { "" } else { "s" };
        write!(f, "{workers} worker{plural} serving on ")?;
        for (index, address) in self.addresses.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{address}")?;
        }
        if let Some(why) = &self.abandoned {
            write!(f, "; {}", why.replace('\n', " "))?;
        }
        Ok(())
    }
}

pub(super) fn message(states: &[NotifyState<'_>]) -> String {
    states.iter().map(|state| format!("{state}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::DRY_RUN;

    const NOW: NotifyState<'static> = NotifyState::MonotonicUsec(5);

    fn worker(slot: u16, pid: u32) -> WorkerInfo {
        WorkerInfo {
            slot: Slot(slot),
            generation: Generation(1),
            pid,
        }
    }

    fn exited(slot: u16, pid: u32) -> Notice {
        Notice::WorkerExited {
            worker: worker(slot, pid),
            status: crate::WorkerExit::Code(1),
            cut: 0,
        }
    }

    /// A report with two workers that serve, and the messages until then.
    fn serving() -> (Report, Vec<String>) {
        let mut report = Report::default();
        let notices = [
            Notice::WorkerSpawned(worker(0, 10)),
            Notice::WorkerReady(worker(0, 10)),
            Notice::WorkerReady(worker(1, 11)),
            Notice::Serving {
                addresses: vec!["127.0.0.1:80".parse().unwrap(), "unix:/a".parse().unwrap()],
                workers: 2,
                pid: 1,
            },
        ];
        let said = notices
            .iter()
            .filter_map(|notice| report.on_notice(notice, NOW))
            .collect();
        (report, said)
    }

    #[test]
    fn it_is_ready_once_when_it_serves() {
        let (_, said) = serving();
        let status = "STATUS=2 workers serving on 127.0.0.1:80, unix:/a\n";
        assert_eq!(said, [format!("READY=1\n{status}")]);
    }

    #[test]
    fn the_start_and_both_ends_of_a_reload_are_reported() {
        let (mut report, _) = serving();
        let generation = Generation(2);
        let mut lines = |notice| report.on_notice(&notice, NOW).unwrap_or_default();
        let started = lines(Notice::ReloadStarted { generation });
        assert_eq!(
            started,
            "RELOADING=1\nMONOTONIC_USEC=5\nSTATUS=reloading to generation 2: 2 workers serving on \
             127.0.0.1:80, unix:/a\n"
        );
        // The new worker is ready before the old one leaves, so their number does not change.
        assert_eq!(lines(Notice::WorkerReady(worker(0, 20))), "");
        assert_eq!(lines(exited(0, 10)), "");
        let refused = lines(Notice::ReloadAbandoned {
            generation: Generation(3),
            why: "no file".to_owned(),
        });
        assert!(
            refused.starts_with("STATUS=reloading to generation 2"),
            "{refused}"
        );
        assert!(lines(Notice::ReloadFinished { generation }).starts_with("READY=1\nSTATUS=2 w"));
        lines(Notice::ReloadStarted { generation });
        let why = "no\nREADY=0".to_owned();
        let abandoned = lines(Notice::ReloadAbandoned { generation, why });
        assert!(abandoned.starts_with("READY=1\nSTATUS=2 w"), "{abandoned}");
        assert!(
            abandoned.ends_with("was abandoned: no READY=0\n"),
            "{abandoned}"
        );
        assert_eq!(abandoned.lines().count(), 2);
    }

    #[test]
    fn an_upgrade_that_was_abandoned_is_in_the_status_until_the_next_try() {
        let (mut report, _) = serving();
        let mut lines = |notice| report.on_notice(&notice, NOW).unwrap_or_default();
        assert_eq!(lines(Notice::UpgradeStarted), "");
        let why = "/bin/false: exit 1".to_owned();
        let on = "STATUS=2 workers serving on 127.0.0.1:80, unix:/a";
        assert_eq!(
            lines(Notice::UpgradeAbandoned { why }),
            format!("{on}; the upgrade was abandoned: /bin/false: exit 1\n")
        );
        assert_eq!(lines(Notice::UpgradeStarted), format!("{on}\n"));
        // The new binary's first worker was ready beside the old one.
        assert_eq!(lines(Notice::WorkerReady(worker(0, 20))), "");
        assert_eq!(lines(exited(0, 20)), "");
        let why = format!("/bin/server: {DRY_RUN}");
        assert_eq!(lines(Notice::UpgradeAbandoned { why }), "");
    }

    #[test]
    fn the_status_follows_the_workers() {
        let (mut report, _) = serving();
        let mut lines = |notice| report.on_notice(&notice, NOW).unwrap_or_default();
        let on = "serving on 127.0.0.1:80, unix:/a\n";
        assert_eq!(lines(exited(1, 11)), format!("STATUS=1 of 2 workers {on}"));
        assert_eq!(lines(Notice::WorkerSpawned(worker(1, 12))), "");
        assert_eq!(
            lines(Notice::WorkerReady(worker(1, 12))),
            format!("STATUS=2 workers {on}")
        );
        let resized = lines(Notice::Resized { workers: 1 });
        assert_eq!(resized, format!("STATUS=1 worker {on}"));
    }

    #[test]
    fn after_the_end_only_its_outcome_is_reported() {
        let (mut report, _) = serving();
        let mut lines = |notice| report.on_notice(&notice, NOW).unwrap_or_default();
        assert_eq!(lines(Notice::Draining), "STOPPING=1\nSTATUS=draining\n");
        assert_eq!(lines(exited(1, 11)), "");
        let generation = Generation(2);
        assert_eq!(lines(Notice::ReloadStarted { generation }), "");
        assert_eq!(lines(Notice::ReloadFinished { generation }), "");
        let outcome = Outcome::Drained;
        let totals = crate::stats::Totals::default();
        let finished = lines(Notice::Finished { outcome, totals });
        assert_eq!(finished, "STOPPING=1\nSTATUS=ended: drained\n");
    }
}
