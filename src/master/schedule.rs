//! The tasks that the master does at set times. Only this file decides when the loop wakes if
//! nothing happens. All times are of the monotonic clock.

use std::time::Duration;

use crate::master::Master;
use crate::master::admin::Admin;
use crate::sys::clock;

/// A task of the master, which is done when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Reports to the service manager's watchdog.
    Watchdog,
    /// Looks for listeners that were shut down, after a pause.
    Listeners,
    /// Looks for workers that hang.
    Hangs,
    /// Looks at the loads of the workers.
    Balance,
    /// Tells the workers their siblings, after a pause.
    Siblings,
    /// Replaces the key of session tickets.
    TicketKeys,
    /// Tells the admin process the state of the server.
    AdminView,
    /// Asks the admin process if it responds.
    AdminPing,
    /// Acts on the deadlines of admin processes.
    AdminDeadlines,
    /// Begins the drain after the pause before it.
    PreStop,
    /// Acts on the deadlines of the supervisor.
    Deadlines,
}

impl Master {
    /// When each task is due, in the order in which they are done; `None` if it is not.
    fn schedule(&self, now: Duration) -> [(Task, Option<Duration>); 11] {
        let at = |deadline| self.clock.monotonic_at(deadline);
        let admin = self.observers.admin.as_ref();
        [
            (Task::Watchdog, self.observers.init.next_report()),
            (Task::Listeners, self.listener_watch.paused_until()),
            (Task::Hangs, self.next_hang_check()),
            (Task::Balance, self.next_balance()),
            (Task::Siblings, self.next_telling()),
            (Task::TicketKeys, self.next_rotation(now)),
            (Task::AdminView, admin.and_then(Admin::next_view)),
            (Task::AdminPing, admin.map(Admin::next_ping)),
            (
                Task::AdminDeadlines,
                admin.and_then(Admin::next_deadline).map(at),
            ),
            (Task::PreStop, self.pre_stop.next_deadline().map(at)),
            (Task::Deadlines, self.supervisor.next_deadline().map(at)),
        ]
    }

    /// How long the loop may sleep; `None` if no task waits.
    pub(super) fn fall_asleep(&mut self) -> Option<Duration> {
        let now = clock::monotonic();
        let latest = self.clock.latest_wake();
        let wake = |(task, due): (Task, Option<Duration>)| match task {
            Task::AdminDeadlines | Task::PreStop | Task::Deadlines => Some(due?.min(latest)),
            _ => due,
        };
        let wakes = self.schedule(now).into_iter().filter_map(wake).min();
        self.clock.sleeps_until(wakes);
        wakes.map(|wakes| wakes.saturating_sub(now))
    }

    /// The loop has woken.
    pub(super) fn awake(&mut self) {
        self.clock.is_awake(clock::monotonic());
    }

    /// Does each task that is due.
    pub(super) fn run_due_tasks(&mut self) {
        let now = clock::monotonic();
        self.clock.is_awake(now);
        for (task, due) in self.schedule(now) {
            if due.is_none_or(|due| due > now) {
                continue;
            }
            match task {
                Task::Watchdog => self.observers.init.report_alive(now),
                Task::Listeners => self.watch_listeners_again(),
                Task::Hangs => self.check_hangs(now),
                Task::Balance => self.balance(now),
                Task::Siblings => self.tell_siblings(),
                Task::TicketKeys => self.rotate_ticket_keys(now),
                Task::AdminView => self.tell_view(now),
                Task::AdminPing => self.ping_admin(now),
                Task::AdminDeadlines => self.on_admin_deadline(),
                Task::PreStop => self.on_pre_stop_deadline(),
                Task::Deadlines => self.supervisor.handle_timeout(self.clock.now()),
            }
        }
    }

    /// Reports to the watchdog if that is due, within a turn that takes long.
    pub(super) fn tell_watchdog(&mut self) {
        self.observers.init.report_alive(clock::monotonic());
    }
}
