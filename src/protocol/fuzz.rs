//! Any bytes as what values are made of that cross between processes, and any text as an address.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::address::Address;
use crate::codec::{Kept, Malformed, Reader, Record, Writer};
use crate::fuzz;
use crate::id::Slot;

/// What `sun_path` of unix(7) holds, without the NUL at its end.
const UNIX_PATH_MAX: usize = 107;

type Values = (
    (BTreeMap<Slot, Vec<String>>, VecDeque<Option<Duration>>),
    (
        (Vec<Address>, Option<Kept>),
        ((NonZeroU16, bool), (PathBuf, Vec<u64>)),
    ),
);

#[test]
fn values() {
    fuzz::check("protocol-values", |bytes| {
        let mut reader = Reader::new(bytes);
        let Ok(values) = Values::take(&mut reader) else {
            return;
        };
        let used = bytes.len() - reader.rest().len();
        let cut = Values::take(&mut Reader::new(&bytes[..used - 1]));
        assert_eq!(cut, Err(Malformed));
        assert_eq!(values.1.0.1.is_some(), !kept(&values).is_empty());

        let mut writer = Writer::default();
        values.put(&mut writer);
        let (again, _) = writer.finish();
        let mut reader = Reader::new(&again);
        assert_eq!(Values::take(&mut reader), Ok(values));
        assert_eq!(reader.finish(), Ok(()));
    });
}

fn kept(values: &Values) -> Vec<RawFd> {
    let mut writer = Writer::default();
    values.put(&mut writer);
    writer.finish().1
}

#[test]
fn lengths() {
    fuzz::check("protocol-lengths", |bytes| {
        // As a vector grows, to twice what it needs, and from four items on.
        if let Ok(list) = Vec::<u64>::take(&mut Reader::new(bytes)) {
            assert!(list.capacity() * size_of::<u64>() <= 32 + 2 * bytes.len());
        }
        if let Ok(text) = String::take(&mut Reader::new(bytes)) {
            assert!(text.capacity() <= bytes.len());
        }
        if let Ok(path) = PathBuf::take(&mut Reader::new(bytes)) {
            assert!(path.capacity() <= bytes.len());
        }
        if let Ok(map) = BTreeMap::<u8, Vec<u8>>::take(&mut Reader::new(bytes)) {
            let items: usize = map.values().map(Vec::len).sum();
            assert!(map.len() + items <= bytes.len());
        }
    });
}

#[test]
fn addresses() {
    fuzz::check("protocol-addresses", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if asks_for_a_name(&text) {
            return;
        }
        match text.parse::<Address>() {
            Ok(address) => {
                let shown = address.to_string();
                assert_eq!(shown.parse(), Ok(address.clone()), "{shown}");
                match address {
                    Address::Unix(path) => {
                        assert!((1..=UNIX_PATH_MAX).contains(&path.as_os_str().len()))
                    }
                    Address::Tcp(_) => assert!(address.url().is_some()),
                }
            }
            Err(error) => {
                assert!(!error.reason().is_empty());
                assert!(error.to_string().contains(&*text));
            }
        }
    });
}

/// Whether the host would have to be looked up: there is a number for the port, and before it
/// something that is no number.
fn asks_for_a_name(text: &str) -> bool {
    let is_known = text.starts_with("unix:") || text.parse::<SocketAddr>().is_ok();
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    !is_known && matches!(port, Some(Ok(_)))
}
