//! Which listeners a slot has, and which of two masters gets an address.

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use socket2::SockRef;

use super::*;
use crate::master::init::inherited::{Activated, Stored};
use crate::sys::apart::tests::while_locked;
use crate::sys::listener::tests::until_closed;

const ROUNDS: usize = 2000;

const APP: ListenerUse = ListenerUse::App;
const REDIRECT: ListenerUse = ListenerUse::Redirect;

/// The listeners of one slot.
fn on_two_ports() -> Listeners {
    let any = || "127.0.0.1:0".parse().expect("an address");
    let config = Config {
        addresses: vec![any(), any()],
        ..Config::default()
    };
    let opened = Listeners::open(&config, NonZeroU16::MIN, Inherited::default());
    opened.expect("free ports")
}

/// The kernel would send connections to a listener that no worker has.
#[test]
fn a_slot_has_all_its_listeners_or_none() {
    let mut listeners = on_two_ports();
    assert_eq!(
        listeners.ensure(Slot(0)).expect("they are there"),
        Ensured::Existing
    );
    let second = listeners.bound[1].address.clone();
    let another = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listeners.bound[1].address = another.local_addr().expect("bound").into();
    listeners
        .ensure(Slot(1))
        .expect_err("another server has the port");
    assert_eq!(listeners.numbers(Slot(1)).len(), 0);
    listeners.bound[1].address = second;
    assert_eq!(
        listeners.ensure(Slot(1)).expect("free ports"),
        Ensured::New { from: Slot(1) }
    );
    assert_eq!(listeners.numbers(Slot(1)).len(), 2);
}

/// The other addresses need the slot, and a reload or an upgrade needs it too.
#[test]
fn a_slot_goes_without_an_address_that_the_machine_has_lost() {
    let mut listeners = on_two_ports();
    // RFC 5737: no machine has this address.
    let lost = "192.0.2.1:80".parse().expect("an address");
    let first = std::mem::replace(&mut listeners.bound[0].address, lost);
    let mut ensure = |slot| listeners.ensure(Slot(slot)).expect("a port");
    assert_eq!(ensure(2), Ensured::New { from: Slot(1) });
    assert_eq!(listeners.numbers(Slot(0)).len(), 2);
    assert_eq!(listeners.numbers(Slot(2)).len(), 1);
    listeners.bound[0].address = first;
    // The workers of the slots before it do not have their new listener.
    let ensured = listeners.ensure(Slot(3)).expect("a port");
    assert_eq!(ensured, Ensured::New { from: Slot(1) });
    for slot in 0..4 {
        assert_eq!(listeners.numbers(Slot(slot)).len(), 2);
    }
}

#[test]
fn addresses_are_matched_as_they_were_asked_for_or_bound() {
    let address = |text: &str| text.parse().expect("an address");
    let mut config = Config {
        addresses: vec![address("127.0.0.1:0"), address("[::1]:0")],
        ..Config::default()
    };
    let mut former =
        Listeners::open(&config, NonZeroU16::MIN, Inherited::default()).expect("free ports");
    let bound = former.addresses();
    let first = former.numbers(Slot(0))[0];
    config.addresses = vec![bound[1].clone(), address("127.0.0.1:0")];
    let (mut listeners, news) = Listeners::resume(former.detach(), &config);
    assert_eq!(listeners.addresses(), [bound[1].clone(), bound[0].clone()]);
    assert_eq!(listeners.numbers(Slot(0))[1], first);
    assert_eq!(news, NewAddresses::None);
    // One address is new. One that is not asked for any more stays.
    config.addresses = vec![bound[0].clone(), address("127.0.0.1:0")];
    let (listeners, news) = Listeners::resume(listeners.detach(), &config);
    let served: BTreeSet<_> = listeners
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!((served.len(), news), (3, NewAddresses::Some));
    assert!(
        bound
            .iter()
            .all(|address| served.contains(&address.to_string()))
    );
}

/// What the listeners of the first slot are for.
fn uses(listeners: &Listeners) -> Vec<ListenerUse> {
    let own = listeners.numbers(Slot(0)).into_iter();
    own.map(|(_, used_for)| used_for).collect()
}

#[test]
fn what_a_listener_is_for_changes_only_if_the_settings_name_it() {
    let mut config = Config {
        addresses: vec!["127.0.0.1:0".parse().expect("an address")],
        redirects: vec!["127.0.0.1:0".parse().expect("an address")],
        ..Config::default()
    };
    let opened = Listeners::open(&config, NonZeroU16::MIN, Inherited::default());
    let mut listeners = opened.expect("free ports");
    let bound = listeners.addresses();
    assert_eq!(uses(&listeners), [APP, REDIRECT]);
    config.redirects.clear();
    let (mut listeners, news) = Listeners::resume(listeners.detach(), &config);
    assert_eq!(uses(&listeners), [APP, REDIRECT]);
    assert_eq!(news, NewAddresses::None);
    config.addresses = bound;
    let (listeners, news) = Listeners::resume(listeners.detach(), &config);
    assert_eq!(uses(&listeners), [APP, APP]);
    assert_eq!(news, NewAddresses::Some, "the canary redirects there");
}

#[test]
fn what_a_passed_listener_is_for_is_known_by_its_address() {
    let passed = ["127.0.0.1:0", "[::]:0", "127.0.0.1:0"].map(|address| {
        let listener = std::net::TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        (address, OwnedFd::from(listener))
    });
    let [exact, alike, _] = passed.each_ref().map(|(address, _)| *address);
    let alike = format!(":{}", alike.port()).parse().expect("an address");
    let mut config = Config {
        redirects: vec![exact.into(), alike],
        ..Config::default()
    };
    let activated = passed.map(|(address, listener)| Activated {
        address: address.into(),
        listener,
    });
    let inherited = Inherited {
        activated: activated.into(),
        ..Inherited::default()
    };
    let opened = Listeners::open(&config, NonZeroU16::MIN, inherited);
    let mut listeners = opened.expect("they listen");
    assert_eq!(uses(&listeners), [REDIRECT, REDIRECT, APP]);
    config.redirects.clear();
    let (mut listeners, news) = Listeners::resume(listeners.detach(), &config);
    assert_eq!(uses(&listeners), [REDIRECT, REDIRECT, APP]);
    assert_eq!(news, NewAddresses::None);
    config.addresses = vec![exact.into()];
    let (listeners, news) = Listeners::resume(listeners.detach(), &config);
    assert_eq!(uses(&listeners), [APP, REDIRECT, APP]);
    assert_eq!(news, NewAddresses::Some);
}

/// Also those of the image before, and those of a slot that comes later.
#[test]
fn all_tcp_listeners_are_deferred_or_none() {
    let mut config = Config {
        addresses: vec!["127.0.0.1:0".parse().expect("an address")],
        ..Config::default()
    };
    let opened = Listeners::open(&config, NonZeroU16::MIN, Inherited::default());
    let mut listeners = opened.expect("a free port");
    for when in [DeferAccept::On, DeferAccept::Off, DeferAccept::Auto] {
        config.defer_accept = when;
        (listeners, _) = Listeners::resume(listeners.detach(), &config);
        listeners
            .ensure(Slot(listeners.slots()))
            .expect("a free port");
        assert!(
            listeners
                .all()
                .all(|it| listener::is_deferred(it) == (when == DeferAccept::On))
        );
    }
    assert_eq!(listeners.slots(), 4);
}

/// A Unix listener has no such option.
#[test]
fn inherited_listeners_are_deferred_too_or_left_as_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let unix = UnixListener::bind(&path).expect("a new path");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let local = tcp.local_addr().expect("bound");
    let tcp = OwnedFd::from(tcp);
    let copy = tcp.try_clone().expect("a descriptor");
    let mut config = Config::default();
    let activated = [
        (local.into(), tcp),
        (Address::Unix(path), OwnedFd::from(unix)),
    ]
    .map(|(address, listener)| Activated { address, listener })
    .into();
    let inherited = Inherited {
        activated,
        ..Inherited::default()
    };
    let opened = Listeners::open(&config, NonZeroU16::MIN, inherited);
    let mut listeners = opened.expect("they listen");
    for (before, wanted, deferred) in [
        (false, DeferAccept::Auto, false),
        (false, DeferAccept::Off, false),
        (true, DeferAccept::Auto, true),
        (true, DeferAccept::Off, true),
        (false, DeferAccept::On, true),
    ] {
        listener::defer_accept(&copy, before).expect("it listens");
        config.defer_accept = wanted;
        (listeners, _) = Listeners::resume(listeners.detach(), &config);
        assert_eq!(listener::is_deferred(&copy), deferred);
    }
}

/// A shared listener stays as it is.
#[test]
fn a_slot_may_defer_alone_until_the_end_or_the_next_image() {
    let any = || "127.0.0.1:0".parse().expect("an address");
    let mut config = Config {
        addresses: vec![any(), any()],
        ..Config::default()
    };
    let two = NonZeroU16::new(2).expect("two");
    let opened = Listeners::open(&config, two, Inherited::default());
    let mut listeners = opened.expect("free ports");
    let copy = |listeners: &Listeners, slot| {
        let own = listeners.of(Slot(slot)).into_iter();
        own.map(|it| it.try_clone_to_owned().expect("a descriptor"))
            .collect::<Vec<_>>()
    };
    let copies = [0, 1].map(|slot| copy(&listeners, slot));
    let deferred = || {
        copies
            .each_ref()
            .map(|own| own.iter().all(listener::is_deferred))
    };
    listeners.defer(|slot| slot == Slot(1));
    assert!(listeners.keeps_for(Duration::ZERO).is_zero());
    assert_eq!((deferred(), copies[1].len()), ([false, true], 2));
    listeners.defer(|slot| slot == Slot(0));
    assert_eq!(deferred(), [true, false]);
    assert!(!listeners.keeps_for(Duration::ZERO).is_zero());
    // The next image does not know of it.
    (listeners, _) = Listeners::resume(listeners.detach(), &config);
    assert_eq!(deferred(), [false, false]);
    listeners.defer(|_| true);
    assert_eq!(deferred(), [true, true]);
    listeners.close(&BTreeSet::new());
    assert_eq!(deferred(), [false, false]);
    config.listeners = crate::config::Listeners::Shared;
    let opened = Listeners::open(&config, two, Inherited::default());
    let mut shared = opened.expect("free ports");
    shared.defer(|_| true);
    assert!(!shared.all().any(listener::is_deferred));
}

#[test]
fn what_a_killed_worker_has_is_closed_when_the_server_has_ended() {
    let mut listeners = two_slots();
    let Address::Tcp(address) = listeners.addresses()[0] else {
        panic!("a TCP address")
    };
    let of_worker = listeners.of(Slot(0))[0].try_clone_to_owned();
    let of_worker = of_worker.expect("a free descriptor");
    listeners.close(&[Slot(0)].into());
    std::net::TcpStream::connect(address).expect("what the worker has listens");
    listeners.close_rest(&[Slot(0)].into());
    let next = listener::tcp(address, Reuse::First, 8).expect("the address is free");
    std::net::TcpStream::connect(address).expect("it listens");
    assert_eq!(listener::queued(&next).expect("TCP"), 1);
    assert!(listener::is_shut_down(&of_worker));
}

fn two_slots() -> Listeners {
    let config = Config {
        addresses: vec!["127.0.0.1:0".parse().expect("an address")],
        ..Config::default()
    };
    let two = NonZeroU16::new(2).expect("two");
    Listeners::open(&config, two, Inherited::default()).expect("free ports")
}

/// Connects to the server, and returns how many connections wait in the listener of each slot.
fn queued(listeners: &Listeners, connections: usize) -> Vec<usize> {
    let Address::Tcp(address) = listeners.addresses()[0] else {
        panic!("a TCP address")
    };
    let connect = |_| std::net::TcpStream::connect(address).expect("it listens");
    let _clients: Vec<_> = (0..connections).map(connect).collect();
    let own = listeners.all().map(|it| listener::queued(it).expect("TCP"));
    own.collect()
}

/// A worker has connected it elsewhere, and leaves no room for another one beside it.
#[test]
fn a_listener_that_does_not_listen_is_replaced() {
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let elsewhere = elsewhere.local_addr().expect("bound");
    let mut listeners = two_slots();
    let [first, second] = [0, 1].map(|slot| listeners.numbers(Slot(slot)));
    let socket = SockRef::from(&listeners.of(Slot(1))[0])
        .try_clone()
        .expect("a descriptor");
    socket.shutdown(Shutdown::Both).expect("it listens");
    socket.set_reuse_port(false).expect("a socket");
    socket.set_nonblocking(false).expect("a socket");
    socket.connect(&elsewhere.into()).expect("it listens");
    assert!(!listeners.is_any_closed(Slot(0)));
    assert!(listeners.is_any_closed(Slot(1)));
    let reopened = listeners.reopen();
    let reopened: Vec<_> = reopened.iter().map(|it| (it.slot, &it.result)).collect();
    assert!(
        matches!(reopened[..], [(Some(Slot(1)), Ok(bound::Socket::New))]),
        "{reopened:?}"
    );
    assert!(!listeners.is_any_closed(Slot(1)));
    assert_eq!(listeners.numbers(Slot(0)), first);
    assert_ne!(listeners.numbers(Slot(1)), second);
    let queued = queued(&listeners, 100);
    assert!(queued.iter().all(|&it| it > 0), "{queued:?}");
    assert_eq!(queued.iter().sum::<usize>(), 100);
}

/// A worker has shut its listener down, and holds the lock of the socket. The master waits for no
/// call on it.
#[test]
fn a_listener_whose_lock_is_held_is_replaced() {
    let mut listeners = two_slots();
    let held = listeners.of(Slot(1))[0].try_clone_to_owned().expect("room");
    let reopen = || {
        listeners.mend(Slot(1));
        listeners.reopen()
    };
    let Some(reopened) = while_locked(&held, reopen) else {
        println!("not tested: it needs userfaultfd(2), and root");
        return;
    };
    let reopened: Vec<_> = reopened.iter().map(|it| (it.slot, &it.result)).collect();
    assert!(
        matches!(reopened[..], [(Some(Slot(1)), Ok(bound::Socket::New))]),
        "{reopened:?}"
    );
    assert!(!listeners.is_any_closed(Slot(1)));
}

#[test]
fn a_unix_listener_of_a_unit_that_was_shut_down_needs_its_unit() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).expect("a new path");
    let socket = SockRef::from(&listener).try_clone().expect("a descriptor");
    let inherited = Inherited {
        activated: vec![Activated {
            address: Address::Unix(path),
            listener: listener.into(),
        }],
        ..Inherited::default()
    };
    let opened = Listeners::open(&Config::default(), NonZeroU16::MIN, inherited);
    let mut listeners = opened.expect("it listens");
    socket.shutdown(Shutdown::Both).expect("it listens");
    let reopened = listeners.reopen();
    let why = reopened[0].result.as_ref().expect_err("it is the unit's");
    assert!(
        why.to_string().contains("restart the .socket unit"),
        "{why}"
    );
}

#[test]
fn a_listener_that_a_worker_has_changed_is_as_before() {
    let mut listeners = two_slots();
    listeners.defer(|slot| slot == Slot(1));
    for slot in [0, 1].map(Slot) {
        let own = listeners.of(slot);
        listener::defer_accept(own[0], slot == Slot(0)).expect("it listens");
        let socket = SockRef::from(&own[0]);
        socket.set_tcp_nodelay(false).expect("a socket");
        socket.listen(0).expect("it listens");
        listeners.mend(slot);
        assert_eq!(listener::is_deferred(own[0]), slot == Slot(1));
        assert!(socket.tcp_nodelay().expect("a socket"));
    }
    listeners.defer(|_| false);
    assert_eq!(queued(&listeners, 100).iter().sum::<usize>(), 100);
}

#[test]
fn a_listener_that_an_earlier_master_has_left_is_as_a_new_one() {
    let asked = "127.0.0.1:0".parse().expect("an address");
    let listener = listener::tcp(asked, Reuse::First, 8).expect("a free port");
    let Address::Tcp(address) = listener::address(&listener).expect("bound") else {
        panic!("a TCP address")
    };
    let copy = SockRef::from(&listener).try_clone().expect("a descriptor");
    copy.set_tcp_nodelay(false).expect("a socket");
    let scope = ListenerScope::Slot(Slot(0));
    let name = Name { asked, scope };
    let stored = Stored {
        name,
        address,
        listener,
    };
    let inherited = Inherited {
        stored: vec![stored],
        ..Inherited::default()
    };
    let config = Config {
        addresses: vec![asked.into()],
        ..Config::default()
    };
    let opened = Listeners::open(&config, NonZeroU16::MIN, inherited);
    assert_eq!(opened.expect("it listens").addresses(), [address.into()]);
    assert!(copy.tcp_nodelay().expect("a socket"));
}

/// How many of two masters that open `address` at the same moment get it: the most and the least in
/// many rounds.
fn openings_at_once(address: &Address, before: impl Fn() + Sync) -> (usize, usize) {
    let config = Config {
        addresses: vec![address.clone()],
        ..Config::default()
    };
    let slots = NonZeroU16::new(2).expect("two");
    let at = AtomicUsize::new(0);
    // Both go on within nanoseconds. A `Barrier` would put one of them to sleep.
    let meet = |round: usize| {
        at.fetch_add(1, Ordering::AcqRel);
        for spins in 0_u32.. {
            if at.load(Ordering::Acquire) >= 2 * round {
                break;
            }
            // If both have only one CPU, the other one needs it.
            if spins % 4096 == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    };
    let open = |round: usize| {
        meet(3 * round + 1);
        before();
        meet(3 * round + 2);
        let opened = Listeners::open(&config, slots, Inherited::default());
        // Neither closes before both have tried.
        meet(3 * round + 3);
        usize::from(opened.is_ok())
    };
    let rounds = || (0..ROUNDS).map(open).collect::<Vec<_>>();
    let (here, there) = std::thread::scope(|scope| {
        let other = scope.spawn(rounds);
        (rounds(), other.join().expect("it does not panic"))
    });
    let masters = here.iter().zip(&there).map(|(a, b)| a + b);
    (
        masters.clone().max().expect("some"),
        masters.min().expect("some"),
    )
}

#[test]
fn of_two_masters_that_start_at_once_one_gets_the_tcp_address() {
    // An address of its own: no other test gets the port between two rounds.
    let free = std::net::TcpListener::bind("127.0.0.22:0").expect("a free port");
    let address = Address::Tcp(free.local_addr().expect("it is bound"));
    drop(free);
    assert_eq!(
        openings_at_once(&address, || until_closed(&address)),
        (1, 1)
    );
}

#[test]
fn of_two_masters_that_start_at_once_one_gets_the_unix_address() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let address = Address::Unix(path.clone());
    // The file that a killed server has left.
    let leave = || {
        drop(UnixListener::bind(&path));
        until_closed(&address);
    };
    assert_eq!(openings_at_once(&address, leave), (1, 1));
}
