//! What does the master's deciding cost?
//!
//! `fact` is one fact that changes nothing, the least that a step can be; `respawn` is a worker's
//! end, its successor and that one's readiness, with every action taken out; `reload` is all of a
//! reload, worker by worker. With 4, 64 and 1,024 workers: each step looks at every slot, so a
//! reload grows with the square of their number.
//!
//! Not measured: carrying the actions out, which takes a fork and an exec each (`processes.rs`).

#[allow(dead_code, unreachable_pub, unused_imports, reason = "as above")]
#[path = "../src/address.rs"]
mod address;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "as above")]
#[path = "../src/codec.rs"]
mod codec;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "as above")]
#[path = "../src/drain.rs"]
mod drain;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "as above")]
#[path = "../src/id.rs"]
mod id;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "as above")]
#[path = "../src/policy.rs"]
mod policy;
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the library does not show its rooms; the bench has its own copies"
)]
#[path = "../src/supervisor/mod.rs"]
mod supervisor;

use std::hint::black_box;
use std::num::NonZeroU16;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion};

use self::id::WorkerId;
use self::supervisor::{Action, Event, Exit, Policy, Supervisor, Time};

const WORKERS: [u16; 3] = [4, 64, 1024];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("supervisor");
    for workers in WORKERS {
        group.bench_function(BenchmarkId::new("fact", workers), |bencher| {
            let mut world = World::serving(workers);
            let worker = world.latest;
            bencher.iter(|| world.tell(black_box(Event::Spawned(worker))));
        });
        group.bench_function(BenchmarkId::new("respawn", workers), |bencher| {
            let mut world = World::serving(workers);
            bencher.iter(|| world.tell(Event::Exited(world.latest, Exit::Clean)));
        });
    }
    for workers in [4, 64] {
        group.bench_function(BenchmarkId::new("reload", workers), |bencher| {
            bencher.iter_batched_ref(
                || World::serving(workers),
                |world| world.tell(Event::Reload),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
    criterion.final_summary();
}

/// A supervisor, and processes that do at once what is asked of them.
struct World {
    supervisor: Supervisor,
    now: Time,
    /// The worker that was spawned last.
    latest: WorkerId,
    /// What the supervisor is to be told next. Kept, so that nothing is allocated.
    facts: Vec<Event>,
}

impl World {
    fn serving(workers: u16) -> Self {
        let policy = Policy {
            workers: NonZeroU16::new(workers).expect("there are some"),
            ..Policy::default()
        };
        let mut world = Self {
            supervisor: Supervisor::new(policy, Time::ZERO),
            now: Time::ZERO,
            latest: WorkerId(0),
            facts: Vec::new(),
        };
        world.act();
        world
    }

    /// Tells it, and goes on until all that follows from it is done.
    fn tell(&mut self, event: Event) {
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
            let Some(fact) = self.facts.pop() else { return };
            self.supervisor.handle(fact, self.now);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Spawn { worker, .. } => {
                self.latest = worker;
                self.facts.push(Event::Ready(worker));
            }
            Action::Drain(worker, _) => self.facts.push(Event::Exited(worker, Exit::Clean)),
            Action::Kill(worker) | Action::Abort(worker) => panic!("{worker} has done nothing"),
            _ => {}
        }
    }
}
