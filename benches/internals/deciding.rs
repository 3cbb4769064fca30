//! For `benches/supervisor.rs`.

use std::hint::black_box;
use std::num::NonZeroU16;
use std::time::Duration;

use crate::id::WorkerId;
use crate::supervisor::{Action, Event, Exit, Policy, Supervisor, Time};

/// A supervisor, with processes that do at once what the supervisor asks of them.
#[derive(Debug)]
pub struct Deciding {
    supervisor: Supervisor,
    now: Time,
    /// The worker that was spawned last.
    latest: WorkerId,
    /// The events that the supervisor gets next. Kept, so that nothing is allocated.
    events: Vec<Event>,
}

impl Deciding {
    /// All workers serve.
    ///
    /// # Panics
    ///
    /// If `workers` is 0.
    pub fn serving(workers: u16) -> Self {
        let policy = Policy {
            workers: NonZeroU16::new(workers).expect("there are some"),
            ..Policy::default()
        };
        let mut deciding = Self {
            supervisor: Supervisor::new(policy, Time::ZERO),
            now: Time::ZERO,
            latest: WorkerId(0),
            events: Vec::new(),
        };
        deciding.act();
        deciding
    }

    /// An event that changes nothing.
    pub fn spawned(&mut self) {
        self.handle(black_box(Event::Spawned(self.latest)));
    }

    /// A worker exits, its successor is spawned and becomes ready.
    pub fn respawn(&mut self) {
        self.handle(Event::Exited(self.latest, Exit::Clean));
    }

    /// A reload of all workers.
    pub fn reload(&mut self) {
        self.handle(Event::Reload);
    }

    /// Handles the event and all that follows from it.
    fn handle(&mut self, event: Event) {
        // Long enough for a slot to have proven itself: no respawn has to wait.
        self.now = self.now + Duration::from_secs(100);
        self.supervisor.handle(event, self.now);
        self.act();
    }

    fn act(&mut self) {
        loop {
            while let Some(action) = self.supervisor.next_action() {
                self.carry_out(black_box(action));
            }
            let Some(event) = self.events.pop() else {
                return;
            };
            self.supervisor.handle(event, self.now);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Spawn { worker, .. } => {
                self.latest = worker;
                self.events.push(Event::Ready(worker));
            }
            Action::Drain(worker, _) => self.events.push(Event::Exited(worker, Exit::Clean)),
            Action::Kill(worker) | Action::Abort(worker) => panic!("{worker} has done nothing"),
            _ => {}
        }
    }
}
