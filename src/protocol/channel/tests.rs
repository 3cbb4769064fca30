use super::*;
use crate::policy::Stop;
use crate::sys::fds::tests::until_other_end_closed;

#[test]
fn a_last_message_arrives_though_the_worker_has_read_none() {
    let (master, worker) = Channel::pair().expect("a pair");
    let drain = ToWorkerRef::Drain(Idle::Close);
    master.send_to_worker(drain).expect("room for one");
    let last = ToMaster::Failed("no database".into());
    worker.send_to_master(&last).expect("room for one");
    drop(worker);
    until_other_end_closed(&master);
    let Ok(Received::Message(received)) = master.recv_from_worker() else {
        panic!("the last message is lost")
    };
    assert_eq!(received, last);
    assert!(matches!(master.recv_from_worker(), Ok(Received::End)));
}

#[test]
fn messages_of_a_worker_arrive() {
    let (master, worker) = Channel::pair().expect("a pair");
    let sent = [
        ToMaster::Recycle,
        ToMaster::Leaving,
        ToMaster::Ready(Versions::OURS),
        ToMaster::Drained { cut: 70_000 },
        ToMaster::Failed("no database".into()),
        ToMaster::NotAdopted(Slot(300)),
        ToMaster::Asked(Command::Stop(Stop::Now)),
    ];
    for message in &sent {
        worker.send_to_master(message).expect("room for one");
    }
    for message in sent {
        let Received::Message(received) = master.recv_from_worker().expect("received") else {
            panic!("{message:?} is missing")
        };
        assert_eq!(received, message);
    }
    assert!(matches!(master.recv_from_worker(), Ok(Received::Nothing)));
    drop(worker);
    until_other_end_closed(&master);
    assert!(matches!(master.recv_from_worker(), Ok(Received::End)));
}

#[test]
fn an_empty_message_is_not_the_end() {
    let (master, worker) = Channel::pair().expect("a pair");
    fds::send(&worker, &[], &[]).expect("room for one");
    let error = master.recv_from_worker().expect_err("no message is empty");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    worker
        .send_to_master(&ToMaster::Recycle)
        .expect("room for one");
    let next = master.recv_from_worker();
    assert!(matches!(next, Ok(Received::Message(ToMaster::Recycle))));
}

#[test]
fn a_ready_without_versions_means_that_no_state_is_read() {
    let ready = ToMaster::decode(b"R");
    assert_eq!(ready, Some(ToMaster::Ready(Versions::NONE)));
}

#[test]
fn an_adoption_carries_inbox_and_listeners() {
    let (master, worker) = Channel::pair().expect("a pair");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (inbox, _other) = fds::seqpacket_pair().expect("a pair");
    let adopt = ToWorkerRef::Adopt {
        slot: Slot(300),
        inbox: inbox.as_fd(),
        listeners: vec![listener.as_fd()],
    };
    master.send_to_worker(adopt).expect("room for one");
    let Ok(Received::Message(ToWorker::Adopt {
        slot,
        inbox,
        listeners,
    })) = worker.recv_from_master()
    else {
        panic!("an adoption")
    };
    assert_eq!((slot, listeners.len()), (Slot(300), 1));
    fds::seqpacket_maker(inbox.as_raw_fd()).expect("the inbox comes first");
}

#[test]
fn an_adoption_that_lost_descriptors_is_not_received() {
    let (inbox, other) = fds::seqpacket_pair().expect("a pair");
    let adopt = ToWorkerRef::Adopt {
        slot: Slot(300),
        inbox: inbox.as_fd(),
        listeners: vec![other.as_fd(); ADDRESSES_MAX],
    };
    let bytes = adopt.encode();
    for lost in [1, 2, ADDRESSES_MAX + 1] {
        let kept = ADDRESSES_MAX + 1 - lost;
        let fds = (0..kept).map(|_| other.try_clone().expect("a number"));
        let decoded = ToWorker::decode(&bytes, fds.collect());
        let slot = match decoded {
            Some(ToWorker::NotReceived(slot)) => slot,
            decoded => panic!("{lost} lost: {decoded:?}"),
        };
        assert_eq!(slot, Slot(300));
    }
    let (master, worker) = Channel::pair().expect("a pair");
    master.send_to_worker(adopt).expect("as many as may");
    let Ok(Received::Message(ToWorker::Adopt { listeners, .. })) = worker.recv_from_master() else {
        panic!("an adoption")
    };
    assert_eq!(listeners.len(), ADDRESSES_MAX);
}

#[test]
fn a_share_carries_the_inbox() {
    let (master, worker) = Channel::pair().expect("a pair");
    let (inbox, other) = fds::seqpacket_pair().expect("a pair");
    let share = ToWorkerRef::Share {
        connections: 300,
        inbox: inbox.as_fd(),
    };
    master.send_to_worker(share).expect("room for one");
    let Ok(Received::Message(ToWorker::Share { connections, inbox })) = worker.recv_from_master()
    else {
        panic!("a share")
    };
    assert_eq!(connections, 300);
    fds::send(&inbox, b"x", &[]).expect("room for one");
    assert!(fds::is_readable(&other));
}

#[test]
fn siblings_come_with_all_their_descriptors_or_not_at_all() {
    let (master, worker) = Channel::pair().expect("a pair");
    let (sender, receiver) = fds::seqpacket_pair().expect("a pair");
    let (page, _) = fds::seqpacket_pair().expect("a pair");
    let sibling = [page.as_fd(), sender.as_fd(), receiver.as_fd()];
    let all = ToWorkerRef::Siblings(vec![sibling; SIBLINGS_MAX]);
    master.send_to_worker(all.clone()).expect("room for one");
    let Ok(Received::Message(ToWorker::Siblings(siblings))) = worker.recv_from_master() else {
        panic!("siblings")
    };
    assert_eq!(siblings.len(), SIBLINGS_MAX);
    fds::send(&siblings[1].sender, b"x", &[]).expect("room for one");
    assert!(fds::is_readable(&siblings[2].receiver));
    for left in [0, 1, SIBLINGS_MAX * SIBLING_FDS - 1] {
        let fds = (0..left).map(|_| page.try_clone().expect("a number"));
        let decoded = ToWorker::decode(&all.encode(), fds.collect());
        assert!(matches!(decoded, Some(ToWorker::Siblings(none)) if none.is_empty()));
    }
}

#[test]
fn messages_of_the_master_without_descriptors_arrive() {
    let (master, worker) = Channel::pair().expect("a pair");
    let sent = [
        ToWorkerRef::Drain(Idle::HandOver),
        ToWorkerRef::Drain(Idle::Close),
        ToWorkerRef::Release(Slot(300)),
        ToWorkerRef::ReopenLogs,
        ToWorkerRef::Beat,
        ToWorkerRef::Siblings(Vec::new()),
    ];
    for message in sent.clone() {
        master.send_to_worker(message).expect("room for one");
    }
    for message in sent {
        let Received::Message(received) = worker.recv_from_master().expect("received") else {
            panic!("{message:?} is missing")
        };
        assert_eq!(format!("{received:?}"), format!("{message:?}"));
    }
}

#[test]
fn a_long_error_is_cut_between_characters() {
    let (master, worker) = Channel::pair().expect("a pair");
    worker
        .send_to_master(&ToMaster::Failed("é".repeat(LEN_MAX)))
        .expect("cut to fit");
    let Ok(Received::Message(ToMaster::Failed(why))) = master.recv_from_worker() else {
        panic!("a reason")
    };
    assert!(
        why.chars().all(|c| c == 'é') && why.len() > WHY_MAX - 4,
        "{}",
        why.len()
    );
}

#[test]
fn no_bytes_make_a_decoder_panic() {
    for tag in 0..=u8::MAX {
        for len in 0..8 {
            let mut bytes = vec![0xff; len];
            bytes.insert(0, tag);
            let _ = ToMaster::decode(&bytes);
            let _ = ToWorker::decode(&bytes, Vec::new());
        }
    }
    assert!(ToMaster::decode(&[]).is_none() && ToWorker::decode(&[], Vec::new()).is_none());
}

#[test]
fn a_channel_that_is_reset_again_and_again_has_ended() {
    let (channel, _other) = Channel::pair().expect("a pair");
    let reset = |_, _: &mut [u8]| Err(io::ErrorKind::ConnectionReset.into());
    let received = channel.recv(&mut [], reset, |_, ()| Some(()));
    assert!(matches!(received, Ok(Received::End)), "{received:?}");
}
