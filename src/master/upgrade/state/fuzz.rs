//! Any bytes as what a master leaves to its next image, less what is held in descriptors and files:
//! those would be taken over and given up again in the tests' own process.

use super::*;
use crate::codec::Reader;
use crate::fuzz;
use crate::protocol::state::Unreadable;

/// The fields of [`MasterState`] in its order.
type Parts = (
    ((Program, u8), (Option<Credentials>, Snapshot)),
    (
        (BTreeMap<Slot, (WorkerInfo, WorkerExit)>, VecDeque<String>),
        Vec<Command>,
    ),
);

#[test]
fn parts() {
    fuzz::check("master-upgrade-state-parts", |bytes| {
        let mut reader = Reader::new(bytes);
        let Ok(parts) = Parts::take(&mut reader) else {
            return;
        };
        let again = written(&parts);
        let mut reader = Reader::new(&again);
        let read = Parts::take(&mut reader).expect("it was written by us");
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(format!("{read:?}"), format!("{parts:?}"));
        // What is written has one form for each value.
        assert_eq!(written(&read), again);
    });
}

fn written(parts: &Parts) -> Vec<u8> {
    let mut writer = Writer::default();
    parts.put(&mut writer);
    writer.finish().0
}

#[test]
fn envelopes() {
    fuzz::check("master-upgrade-state-envelopes", |bytes| {
        let owner = Pid::from_raw(100);
        let sealed = state::seal(bytes, owner);
        assert_eq!(state::open(&sealed, owner), Ok(bytes));
        assert_eq!(
            state::open(&sealed, Pid::from_raw(101)),
            Err(Unreadable::Owner(owner))
        );
        // The bytes themselves as an envelope.
        if let Ok(inside) = state::open(bytes, owner) {
            assert_eq!(state::seal(inside, owner), bytes);
        }
        let read = |head: &mut [u8]| {
            let length = head.len().min(bytes.len());
            head[..length].copy_from_slice(&bytes[..length]);
            Some(length)
        };
        if let Some(owner) = state::owner(read) {
            let open = state::open(bytes, owner);
            assert!(!matches!(
                open,
                Err(Unreadable::Owner(_) | Unreadable::NoState)
            ));
        }
    });
}
