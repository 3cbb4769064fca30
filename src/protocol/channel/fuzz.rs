//! Any bytes as a message, in either direction.

use super::*;
use crate::fuzz;

#[test]
fn from_masters() {
    fuzz::check("protocol-channel-from_masters", |bytes| {
        let Some(message) = ToWorker::decode(bytes, Vec::new()) else {
            return;
        };
        let sent = match message {
            ToWorker::Drain(idle) => ToWorkerRef::Drain(idle),
            ToWorker::Stopping => ToWorkerRef::Stopping,
            ToWorker::Release(slot) => ToWorkerRef::Release(slot),
            ToWorker::ReopenLogs => ToWorkerRef::ReopenLogs,
            ToWorker::Beat => ToWorkerRef::Beat,
            ToWorker::NotReceived(_) | ToWorker::Siblings(_) => return,
            ToWorker::Adopt { .. } | ToWorker::Share { .. } => {
                unreachable!("it comes with descriptors")
            }
        };
        assert_eq!(sent.encode(), bytes);
    });
}

#[test]
fn from_workers() {
    fuzz::check("protocol-channel-from_workers", |bytes| {
        let Some(message) = ToMaster::decode(bytes) else {
            return;
        };
        let sent = message.encode();
        assert!(sent.len() <= LEN_MAX);
        let received = ToMaster::decode(&sent).expect("it is one of ours");
        match (&received, &message) {
            // A reason is text, and no longer than a message.
            (ToMaster::Failed(received), ToMaster::Failed(why)) => {
                assert!(why.starts_with(received), "{why}");
                assert!(received.len() == why.len() || sent.len() > LEN_MAX - 4);
            }
            (received, message) => assert_eq!(received, message),
        }
        assert_eq!(received.encode(), sent);
    });
}

#[test]
fn commands() {
    fuzz::check("protocol-channel-commands", |bytes| {
        if let Some(command) = Command::decode(bytes) {
            assert_eq!(command.encode(), bytes);
        }
    });
}
