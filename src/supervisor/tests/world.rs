//! Long random worlds: an operating system with faults, random from a seed.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use crate::id::WorkerId;
use crate::supervisor::tests::crash_limit;
use crate::supervisor::tests::machine::{Machine, Watched};
use crate::supervisor::tests::watch::{Breach, Life};
use crate::supervisor::*;

/// A debug build takes seconds for so many worlds.
const SEEDS: u64 = if cfg!(debug_assertions) { 100 } else { 250 };

/// The seed of a world. Every breach names it, and it gives the same world again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed(pub(super) u64);

/// How long the operating system has faults.
#[derive(Clone, Copy)]
pub(super) struct Hours(pub(super) u64);

/// How a world went.
#[derive(Default)]
pub(super) struct Lived {
    hours: f64,
    events: u64,
    upgrades: u64,
    /// Worlds whose server ended before the faults did, for a valid reason.
    ended_early: u64,
}

pub(super) fn policy(Seed(seed): Seed) -> Policy {
    let mut chance = Chance::new(seed ^ 0xC0FFEE);
    let number = |chance: &mut Chance, below| {
        let number = u16::try_from(1 + chance.below(below)).expect("a small number");
        NonZeroU16::new(number).expect("one or more")
    };
    Policy {
        workers: number(&mut chance, 6),
        reload_batch: number(&mut chance, 3),
        // A server that ends in the first hour tests little.
        crash_limit: crash_limit(60),
        seed,
        ..Policy::default()
    }
}

/// Runs `machine` for `hours` with faults, then for a time without, in which every slot must be
/// served at last, then to an orderly end.
pub(super) fn run<M: Machine>(
    machine: M,
    policy: &Policy,
    seed: Seed,
    hours: Hours,
) -> Result<Lived, Breach> {
    let mut world = World::new(machine, policy, seed);
    let lived = world.live(policy, hours);
    lived.map_err(|breach| format!("{seed:?} at {}: {breach}", world.now))
}

/// xorshift64*, so that a seed gives the same world on every computer.
struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % limit
    }

    fn percent(&mut self) -> u64 {
        self.below(100)
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// Whether there are faults of the operating system and the programs, and commands of an operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weather {
    Rough,
    Fair,
}

struct World<M> {
    watched: Watched<M>,
    chance: Chance,
    weather: Weather,
    now: Time,
    /// The events that will come, ordered by time and then by when they were planned.
    plan: BTreeMap<(Time, u64), Event>,
    planned: u64,
    lived: Lived,
}

impl<M: Machine> World<M> {
    fn new(machine: M, policy: &Policy, Seed(seed): Seed) -> Self {
        Self {
            watched: Watched::new(machine, policy),
            chance: Chance::new(seed),
            weather: Weather::Rough,
            now: Time::ZERO,
            plan: BTreeMap::new(),
            planned: 0,
            lived: Lived::default(),
        }
    }

    fn live(&mut self, policy: &Policy, Hours(hours): Hours) -> Result<Lived, Breach> {
        let actions = self.watched.start()?;
        self.carry_out(&actions)?;
        self.plan_command();
        self.run_until(Time::ZERO + Duration::from_secs(hours * 3600))?;
        if self.watched.watch.is_ending() {
            self.lived.ended_early = 1;
        } else {
            self.weather = Weather::Fair;
            self.clear_up();
            // The longest that can still happen: a worker that is never ready, the rest of its
            // slot, a reload of all slots, and the drain of the last worker that is replaced.
            let bound = policy.ready_timeout * 4 + policy.backoff.max + policy.drain_timeout * 2;
            self.run_until(self.now + bound)?;
            if !self.watched.watch.is_calm() {
                return Err(format!(
                    "no rest in fair weather: {:#?}",
                    self.watched.watch
                ));
            }
            self.happens(Event::Stop(Stop::Drain))?;
        }
        self.weather = Weather::Fair;
        self.clear_up();
        self.run_until(self.now + policy.drain_timeout + policy.kill_grace + seconds(10))?;
        if !self.watched.watch.is_finished() {
            return Err(format!("it does not end: {:#?}", self.watched.watch));
        }
        self.lived.hours = self.now.since(Time::ZERO).as_secs_f64() / 3600.0;
        Ok(std::mem::take(&mut self.lived))
    }

    fn run_until(&mut self, end: Time) -> Result<(), Breach> {
        loop {
            if self.watched.watch.is_finished() {
                return Ok(());
            }
            let planned = self.plan.first_key_value().map(|(&(time, _), _)| time);
            let deadline = self.watched.machine.next_deadline();
            let Some(next) = planned
                .into_iter()
                .chain(deadline)
                .min()
                .filter(|&t| t <= end)
            else {
                self.now = end;
                return Ok(());
            };
            self.now = self.now.max(next);
            if deadline.is_some_and(|deadline| deadline <= self.now) {
                let actions = self.watched.handle_timeout(self.now)?;
                self.carry_out(&actions)?;
                let waits = self.watched.machine.next_deadline();
                if waits.is_some_and(|deadline| deadline <= self.now) {
                    return Err("a deadline has passed and is still there".into());
                }
            } else if let Some((_, event)) = self.plan.pop_first() {
                self.happens(event)?;
            }
        }
    }

    fn happens(&mut self, event: Event) -> Result<(), Breach> {
        if !self.is_possible(event) {
            return Ok(());
        }
        self.lived.events += 1;
        let actions = self.watched.handle(event, self.now)?;
        self.carry_out(&actions)?;
        match event {
            Event::Ready(id) => self.plan_life(id),
            Event::ReloadAsked | Event::Upgrade | Event::Resize(_) | Event::ResizeBy(_) => {
                self.plan_command();
            }
            _ => {}
        }
        Ok(())
    }

    /// A process that has ended causes no event, and one that drains is not checked for hangs.
    fn is_possible(&self, event: Event) -> bool {
        let life = |id: WorkerId| {
            self.watched
                .watch
                .live()
                .find(|&(other, _)| other == id)
                .map(|(_, seen)| seen.life)
        };
        match event {
            Event::Ready(id) | Event::SpawnFailed(id) => life(id).is_some(),
            Event::Exited(id, _) => life(id).is_some(),
            Event::Hung(id) | Event::Recycle(id, _) => life(id) == Some(Life::Serving),
            _ => true,
        }
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.planned += 1;
        self.plan.insert((self.now + after, self.planned), event);
    }

    /// Removes the planned faults, and lets each process start or end as it should.
    fn clear_up(&mut self) {
        let live: Vec<_> = self
            .watched
            .watch
            .live()
            .map(|(id, seen)| (id, seen.life))
            .collect();
        self.plan.clear();
        for (id, life) in live {
            match life {
                Life::Starting => self.plan(seconds(1), Event::Ready(id)),
                Life::Serving => {}
                Life::Draining | Life::Killed | Life::KilledLeaving | Life::Stuck => {
                    self.plan(seconds(1), Event::Exited(id, Exit::Clean));
                }
            }
        }
    }

    fn carry_out(&mut self, actions: &[Action]) -> Result<(), Breach> {
        for &action in actions {
            match action {
                Action::Spawn { worker, .. } => self.plan_start(worker),
                Action::StartCanary { worker, .. } => self.plan_canary(worker),
                Action::Drain(worker, _) => self.plan_drain(worker),
                // A process that is stopped does not end by it.
                Action::Abort(worker) if self.chance.percent() < 80 => {
                    let after = self.chance.millis(1, 1_500);
                    self.plan(after, Event::Exited(worker, Exit::Crash));
                }
                Action::Kill(worker) => {
                    // Sometimes the kernel takes long.
                    let most = if self.chance.percent() < 10 {
                        20_000
                    } else {
                        20
                    };
                    let after = self.chance.millis(1, most);
                    self.plan(after, Event::Exited(worker, Exit::Crash));
                }
                Action::Adopt { slot, by } if self.chance.percent() < 10 => {
                    let after = self.chance.millis(1, 20);
                    self.plan(after, Event::NotAdopted { slot, by });
                }
                Action::CheckReload => self.plan_check(),
                Action::ExecInPlace if self.chance.percent() < 30 => {
                    self.plan(Duration::from_millis(5), Event::UpgradeFailed);
                }
                Action::ExecInPlace => self.become_next_image()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn plan_check(&mut self) {
        let event = match self.chance.percent() {
            0..10 => Event::ReloadRefused,
            _ => Event::Reload,
        };
        self.plan(Duration::from_millis(1), event);
    }

    fn become_next_image(&mut self) -> Result<(), Breach> {
        let policy = self.watched.watch.policy.clone();
        self.lived.upgrades += 1;
        let actions = self.watched.resume(&policy, self.now)?;
        self.carry_out(&actions)
    }

    fn plan_start(&mut self, id: WorkerId) {
        let soon = self.chance.millis(20, 900);
        if self.weather == Weather::Fair {
            return self.plan(soon, Event::Ready(id));
        }
        match self.chance.percent() {
            0..80 => self.plan(soon, Event::Ready(id)),
            80..85 => {
                let slow = self.chance.millis(10_000, 90_000);
                self.plan(slow, Event::Ready(id));
            }
            85..90 => self.plan(soon, Event::Exited(id, Exit::Crash)),
            90..92 => self.plan(soon, Event::Exited(id, Exit::Clean)),
            92..96 => self.plan(Duration::from_millis(1), Event::SpawnFailed(id)),
            // It reports that it is ready, and crashes.
            96..99 => {
                self.plan(soon, Event::Ready(id));
                self.plan(soon, Event::Exited(id, Exit::Crash));
            }
            // It never reports anything.
            _ => {}
        }
    }

    /// How a worker that is ready will end by itself.
    fn plan_life(&mut self, id: WorkerId) {
        if self.weather == Weather::Fair {
            return;
        }
        let life = self.chance.millis(100, 4 * 3_600_000);
        match self.chance.percent() {
            0..30 => self.plan(life, Event::Exited(id, Exit::Clean)),
            30..60 => self.plan(life, Event::Exited(id, Exit::Crash)),
            60..70 => self.plan(life, Event::Hung(id)),
            70..74 => self.plan(life, Event::Recycle(id, Asker::Worker)),
            74 => self.plan(life, Event::Recycle(id, Asker::Operator)),
            // It crashes soon, perhaps again and again.
            75..80 => {
                let short = self.chance.millis(1, 3_000);
                self.plan(short, Event::Exited(id, Exit::Crash));
            }
            _ => {}
        }
    }

    fn plan_drain(&mut self, id: WorkerId) {
        let ignores = self.weather == Weather::Rough && self.chance.percent() < 10;
        let most = if self.weather == Weather::Rough {
            35_000
        } else {
            3_000
        };
        if !ignores {
            let after = self.chance.millis(1, most);
            self.plan(after, Event::Exited(id, Exit::Clean));
        }
    }

    fn plan_canary(&mut self, id: WorkerId) {
        let soon = self.chance.millis(20, 900);
        match self.chance.percent() {
            0..50 => self.plan(soon, Event::Ready(id)),
            50..60 => self.plan(soon, Event::SpawnFailed(id)),
            60..70 => self.plan(soon, Event::CanaryIncompatible),
            70..90 => self.plan(soon, Event::Exited(id, Exit::Crash)),
            _ => {}
        }
    }

    /// The next command, sometimes soon after the last.
    fn plan_command(&mut self) {
        if self.weather == Weather::Fair {
            return;
        }
        let most = if self.chance.percent() < 30 {
            2_000
        } else {
            3_600_000
        };
        let after = self.chance.millis(1, most);
        let event = match self.chance.percent() {
            0..45 => Event::ReloadAsked,
            45..60 => Event::Upgrade,
            60..75 => Event::ResizeBy(Step::More),
            75..90 => Event::ResizeBy(Step::Fewer),
            _ => {
                let workers = u16::try_from(1 + self.chance.below(8)).expect("a small number");
                Event::Resize(NonZeroU16::new(workers).expect("one or more"))
            }
        };
        self.plan(after, event);
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn random_worlds_keep_the_rules_and_come_to_rest() {
    let mut all = Lived::default();
    for seed in (1..=SEEDS).map(Seed) {
        let policy = policy(seed);
        let machine = Supervisor::new(policy.clone(), Time::ZERO);
        let lived =
            run(machine, &policy, seed, Hours(40)).unwrap_or_else(|breach| panic!("{breach}"));
        all.hours += lived.hours;
        all.events += lived.events;
        all.upgrades += lived.upgrades;
        all.ended_early += lived.ended_early;
    }
    let Lived {
        hours,
        events,
        upgrades,
        ended_early,
    } = all;
    println!("{hours:.0} hours, {events} events, {upgrades} upgrades, {ended_early} ended early");
    assert!(upgrades > 500, "only {upgrades} upgrades");
    assert!(hours > 2_000.0, "only {hours:.0} hours");
}

/// Any events in any order, possible or not, keep the invariants, and nothing panics.
#[test]
fn any_events_in_any_order_keep_the_invariants() {
    for seed in 1..=200 {
        let policy = Policy {
            crash_limit: crash_limit(40),
            ..policy(Seed(seed))
        };
        let mut machine = Supervisor::new(policy, Time::ZERO);
        let mut chance = Chance::new(seed);
        let mut now = Time::ZERO;
        for _ in 0..400 {
            now = now
                + chance
                    .millis(0, 2_000)
                    .saturating_sub(Duration::from_millis(1_000));
            if chance.percent() < 20 {
                machine.handle_timeout(now);
            }
            machine.handle(any_event(&mut chance), now);
            // The master may carry out actions late.
            while chance.percent() < 90 && machine.next_action().is_some() {}
        }
    }
}

fn any_event(chance: &mut Chance) -> Event {
    let id = WorkerId(chance.below(60));
    match chance.below(100) {
        0..40 => Event::Ready(id),
        40..50 => Event::Exited(id, Exit::Crash),
        50..60 => Event::Exited(id, Exit::Clean),
        60..65 => Event::SpawnFailed(id),
        65..68 => Event::Hung(id),
        68 => Event::Recycle(id, Asker::Worker),
        69 => Event::Recycle(id, Asker::Operator),
        70..72 => Event::ReloadAsked,
        72..78 => Event::Reload,
        78..82 => Event::Upgrade,
        82..86 => Event::ResizeBy(Step::More),
        86..90 => Event::ResizeBy(Step::Fewer),
        90..94 => Event::CanaryIncompatible,
        94 => Event::UpgradeFailed,
        95 => Event::UpgradeTried,
        96 => Event::Spawned(id),
        97 => Event::ReloadRefused,
        98 => Event::Resize(NonZeroU16::new(12).expect("twelve is not zero")),
        _ if chance.percent() < 10 => Event::Stop(Stop::Drain),
        _ if chance.percent() < 5 => Event::HookRefused,
        _ if chance.percent() < 5 => Event::Exited(id, Exit::Misconfigured),
        _ => Event::Resize(NonZeroU16::MIN),
    }
}
