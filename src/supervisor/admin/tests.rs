use std::collections::BTreeSet;

use super::*;

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn actions(keeper: &mut AdminKeeper) -> Vec<AdminAction> {
    std::iter::from_fn(|| keeper.next_action()).collect()
}

fn serving() -> AdminKeeper {
    let mut keeper = AdminKeeper::new(at(0));
    assert_eq!(actions(&mut keeper), [AdminAction::Start(AdminId(1))]);
    keeper.handle(AdminEvent::Ready(AdminId(1)), at(5));
    keeper
}

#[test]
fn the_first_exit_costs_no_pause_and_the_next_ones_do() {
    let mut keeper = serving();
    keeper.handle(AdminEvent::Gone(AdminId(1)), at(10));
    assert_eq!(actions(&mut keeper), [AdminAction::Start(AdminId(2))]);
    keeper.handle(AdminEvent::Gone(AdminId(2)), at(20));
    assert_eq!(keeper.next_deadline(), Some(at(120)));
    keeper.handle_timeout(at(119));
    assert_eq!(actions(&mut keeper), []);
    keeper.handle_timeout(at(120));
    assert_eq!(actions(&mut keeper), [AdminAction::Start(AdminId(3))]);
    keeper.handle(AdminEvent::Gone(AdminId(3)), at(130));
    assert_eq!(keeper.next_deadline(), Some(at(330)));
    for _ in 0..100 {
        let due = keeper.next_deadline().expect("one is due");
        keeper.handle_timeout(due);
        let last = keeper.last;
        assert_eq!(actions(&mut keeper), [AdminAction::Start(last)]);
        keeper.handle(AdminEvent::Gone(last), due);
        let pause = keeper.next_deadline().expect("one is due").since(due);
        assert!(pause <= PAUSE_MAX, "{pause:?}");
    }
    // One that serves for long makes the next exit cost nothing again.
    let due = keeper.next_deadline().expect("one is due");
    keeper.handle_timeout(due);
    let last = keeper.last;
    actions(&mut keeper);
    keeper.handle(AdminEvent::Ready(last), due);
    keeper.handle(AdminEvent::Gone(last), due + STEADY);
    assert_eq!(actions(&mut keeper).len(), 1);
}

#[test]
fn a_renewal_has_the_new_one_ready_before_the_old_one_leaves() {
    let mut keeper = serving();
    keeper.handle(AdminEvent::Renew, at(10));
    assert_eq!(actions(&mut keeper), [AdminAction::Start(AdminId(2))]);
    // The one that starts may run an older image.
    keeper.handle(AdminEvent::Renew, at(11));
    let again = [
        AdminAction::Leave(AdminId(2)),
        AdminAction::Start(AdminId(3)),
    ];
    assert_eq!(actions(&mut keeper), again);
    keeper.handle(AdminEvent::Ready(AdminId(2)), at(12));
    assert_eq!(actions(&mut keeper), []);
    keeper.handle(AdminEvent::Ready(AdminId(3)), at(13));
    assert_eq!(actions(&mut keeper), [AdminAction::Leave(AdminId(1))]);
}

#[test]
fn what_is_late_is_killed() {
    let mut keeper = AdminKeeper::new(at(0));
    actions(&mut keeper);
    keeper.handle_timeout(at(10_000));
    let killed = [
        AdminAction::Kill(AdminId(1)),
        AdminAction::Start(AdminId(2)),
    ];
    assert_eq!(actions(&mut keeper), killed);
    keeper.handle(AdminEvent::Ready(AdminId(2)), at(10_001));
    keeper.handle(AdminEvent::End, at(10_002));
    assert_eq!(actions(&mut keeper), [AdminAction::Leave(AdminId(2))]);
    keeper.handle_timeout(at(20_002));
    assert_eq!(actions(&mut keeper), [AdminAction::Kill(AdminId(2))]);
    assert_eq!(keeper.next_deadline(), None);
}

/// Every order of seven events: each process that was started is either known or has ended, at most
/// one process holds, and nothing starts after the end.
#[test]
fn every_order_of_events_leaves_a_process_that_serves_or_is_to_serve() {
    let mut worlds: BTreeSet<String> = BTreeSet::new();
    let mut first = AdminKeeper::new(at(0));
    actions(&mut first);
    let mut edge = vec![(first, BTreeSet::from([AdminId(1)]), at(0), false)];
    for _ in 0..7 {
        let mut next = Vec::new();
        for (keeper, living, now, ended) in edge {
            let processes = living
                .iter()
                .flat_map(|&id| [AdminEvent::Ready(id), AdminEvent::Gone(id)].map(Some));
            let commands = [AdminEvent::Renew, AdminEvent::End].map(Some);
            for event in processes.chain(commands).chain([None]).collect::<Vec<_>>() {
                let (mut keeper, mut living, mut now) = (keeper.clone(), living.clone(), now);
                if let Some(AdminEvent::Gone(id)) = event {
                    living.remove(&id);
                }
                match event {
                    Some(event) => keeper.handle(event, now),
                    None => {
                        now = keeper.next_deadline().unwrap_or(now).max(now);
                        keeper.handle_timeout(now);
                    }
                }
                let ended = ended || event == Some(AdminEvent::End);
                for action in actions(&mut keeper) {
                    match action {
                        AdminAction::Start(id) => {
                            assert!(!ended, "{id:?} starts after the end");
                            assert!(living.insert(id), "{id:?} twice");
                        }
                        AdminAction::Leave(id) | AdminAction::Kill(id) => {
                            assert!(living.contains(&id), "{id:?} is not there");
                        }
                    }
                }
                assert!(keeper.is_sound(), "{keeper:?}");
                let known = keeper.leaving.len()
                    + usize::from(keeper.holder.is_some())
                    + usize::from(matches!(keeper.successor, Successor::Starting { .. }));
                assert_eq!(known, living.len(), "{keeper:?}, {living:?}");
                if worlds.insert(format!("{keeper:?} {living:?}")) {
                    next.push((keeper, living, now, ended));
                }
            }
        }
        edge = next;
    }
    assert!(worlds.len() > 1000, "{}", worlds.len());
}
