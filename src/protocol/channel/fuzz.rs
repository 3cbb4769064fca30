//! Any bytes as a message, in either direction.

use super::*;
use crate::fuzz;

#[test]
fn from_masters() {
    fuzz::check("protocol-channel-from_masters", |bytes| {
        let Some(message) = ToWorker::decode(bytes, Vec::new()) else {
            return;
        };
        let said = match message {
            ToWorker::Drain(idle) => Order::Drain(idle),
            ToWorker::Release(slot) => Order::Release(slot),
            ToWorker::ReopenLogs => Order::ReopenLogs,
            ToWorker::Beat => Order::Beat,
            ToWorker::NotReceived(_) => return,
            ToWorker::Adopt { .. } | ToWorker::Share { .. } => {
                unreachable!("it comes with descriptors")
            }
        };
        assert_eq!(said.encode(), bytes);
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
        let heard = ToMaster::decode(&sent).expect("it is one of ours");
        match (&heard, &message) {
            // A reason is text, and no longer than a message.
            (ToMaster::Failed(heard), ToMaster::Failed(why)) => {
                assert!(why.starts_with(heard), "{why}");
                assert!(heard.len() == why.len() || sent.len() > LEN_MAX - 4);
            }
            (heard, message) => assert_eq!(heard, message),
        }
        assert_eq!(heard.encode(), sent);
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
