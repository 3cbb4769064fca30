//! Turns values into bytes and back: for the state that a master leaves to its next image, and for
//! messages between processes.
//!
//! Each such type is a [`Record`]. The macro `record!` makes both directions from one list of
//! fields or variants, so that they cannot disagree. Reading trusts no byte: a length beyond the
//! end, an unknown tag and a byte too many are [`Malformed`].

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use crate::address::Address;
use crate::id::{Generation, Slot, WorkerId};

/// A value that can be written as bytes and read again, by this image or another one.
pub(crate) trait Record: Sized {
    fn put(&self, to: &mut Writer);
    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Collects the bytes of records.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    kept: Vec<RawFd>,
}

/// Reads records from bytes.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

/// The bytes are not such a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A descriptor, by its number. To write it means that it stays open in the next image; the code
/// that reads it must take it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept(pub(crate) RawFd);

/// `record!(Type { field, field })`: the struct as its fields in this order.
/// `record!(Type { field, field } if is_sound)`: the same, but the bytes are [`Malformed`] if
/// `is_sound(&value)` is false.
/// `record!(enum Type { 0 = Unit, 1 = Tuple(item), 2 = Struct { field } })`: the variant's tag,
/// then what is in it.
macro_rules! record {
    (enum $type:ident { $(
        $tag:literal = $variant:ident $(($($item:ident),+))? $({ $($field:ident),+ })?
    ),+ $(,)? }) => {
        impl $crate::codec::Record for $type {
            fn put(&self, to: &mut $crate::codec::Writer) {
                match self {$(
                    Self::$variant $(($($item),+))? $({ $($field),+ })? => {
                        let tag: u8 = $tag;
                        $crate::codec::Record::put(&tag, to);
                        $($($crate::codec::Record::put($item, to);)+)?
                        $($($crate::codec::Record::put($field, to);)+)?
                    }
                )+}
            }

            fn take(
                from: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::Malformed> {
                match <u8 as $crate::codec::Record>::take(from)? {
                    $($tag => {
                        $($(let $item = $crate::codec::Record::take(from)?;)+)?
                        $($(let $field = $crate::codec::Record::take(from)?;)+)?
                        Ok(Self::$variant $(($($item),+))? $({ $($field),+ })?)
                    })+
                    _ => Err($crate::codec::Malformed),
                }
            }
        }
    };
    ($type:ident { $($field:tt),+ $(,)? } $(if $is_sound:path)?) => {
        impl $crate::codec::Record for $type {
            fn put(&self, to: &mut $crate::codec::Writer) {
                $($crate::codec::Record::put(&self.$field, to);)+
            }

            fn take(
                from: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::Malformed> {
                let record = Self { $($field: $crate::codec::Record::take(from)?),+ };
                $(if !$is_sound(&record) {
                    return Err($crate::codec::Malformed);
                })?
                Ok(record)
            }
        }
    };
}
pub(crate) use record;

/// The bytes of a record that names no descriptor.
pub(crate) fn to_bytes(record: &impl Record) -> Vec<u8> {
    let mut writer = Writer::default();
    record.put(&mut writer);
    writer.finish().0
}

/// The record that all of these bytes are.
pub(crate) fn from_bytes<T: Record>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut reader = Reader::new(bytes);
    let record = T::take(&mut reader)?;
    reader.finish().map(|()| record)
}

impl Writer {
    /// A writer that moves nothing in memory until it has so many bytes.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity),
            kept: Vec::new(),
        }
    }

    /// The bytes, and the descriptors that were written.
    pub(crate) fn finish(self) -> (Vec<u8>, Vec<RawFd>) {
        (self.bytes, self.kept)
    }

    fn length(&mut self, length: usize) {
        let length = u32::try_from(length).expect("no list of a master has 4 billion items");
        length.put(self);
    }

    /// Bytes with their number before them.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The rest of the bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.bytes
    }

    /// Checks that no bytes are left. Call it after the last record.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        self.bytes.is_empty().then_some(()).ok_or(Malformed)
    }

    fn split(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.bytes.split_at_checked(length).ok_or(Malformed)?;
        self.bytes = rest;
        Ok(bytes)
    }

    /// What [`Writer::bytes`] has written.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.split(length)
    }

    /// The length of a list whose items have at least one byte each.
    fn length(&mut self) -> Result<usize, Malformed> {
        let length = usize::try_from(u32::take(self)?).map_err(|_| Malformed)?;
        (length <= self.bytes.len())
            .then_some(length)
            .ok_or(Malformed)
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl Record for $number {
            fn put(&self, to: &mut Writer) {
                to.bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                let bytes = from.split(size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().expect("as many as were split off")))
            }
        })+
    };
}

numbers!(u8, u16, u32, u64, i32, i64);
record!(Slot { 0 });
record!(Generation { 0 });
record!(WorkerId { 0 });

impl Record for Kept {
    fn put(&self, to: &mut Writer) {
        to.kept.push(self.0);
        self.0.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let fd = i32::take(from)?;
        (fd > 2).then_some(Self(fd)).ok_or(Malformed)
    }
}

impl Record for bool {
    fn put(&self, to: &mut Writer) {
        u8::from(*self).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

impl Record for NonZeroU16 {
    fn put(&self, to: &mut Writer) {
        self.get().put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::new(u16::take(from)?).ok_or(Malformed)
    }
}

impl Record for Duration {
    fn put(&self, to: &mut Writer) {
        self.as_secs().put(to);
        self.subsec_nanos().put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (seconds, nanos) = Record::take(from)?;
        if nanos < 1_000_000_000 {
            Ok(Self::new(seconds, nanos))
        } else {
            Err(Malformed)
        }
    }
}

impl<T: Record> Record for Option<T> {
    fn put(&self, to: &mut Writer) {
        match self {
            None => 0_u8.put(to),
            Some(value) => {
                1_u8.put(to);
                value.put(to);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(None),
            1 => T::take(from).map(Some),
            _ => Err(Malformed),
        }
    }
}

impl<A: Record, B: Record> Record for (A, B) {
    fn put(&self, to: &mut Writer) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl<T: Record> Record for Vec<T> {
    fn put(&self, to: &mut Writer) {
        to.length(self.len());
        self.iter().for_each(|item| item.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        (0..from.length()?).map(|_| T::take(from)).collect()
    }
}

impl<T: Record> Record for VecDeque<T> {
    fn put(&self, to: &mut Writer) {
        to.length(self.len());
        self.iter().for_each(|item| item.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Vec::take(from).map(Self::from)
    }
}

impl<K: Record + Ord, V: Record> Record for BTreeMap<K, V> {
    fn put(&self, to: &mut Writer) {
        to.length(self.len());
        for (key, value) in self {
            key.put(to);
            value.put(to);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        (0..from.length()?).map(|_| <(K, V)>::take(from)).collect()
    }
}

impl Record for Bytes {
    fn put(&self, to: &mut Writer) {
        to.bytes(self);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.bytes().map(Self::copy_from_slice)
    }
}

impl Record for String {
    fn put(&self, to: &mut Writer) {
        to.bytes(self.as_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::from_utf8(from.bytes()?.to_vec()).map_err(|_| Malformed)
    }
}

impl Record for PathBuf {
    fn put(&self, to: &mut Writer) {
        to.bytes(self.as_os_str().as_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(OsString::from_vec(from.bytes()?.to_vec()).into())
    }
}

impl Record for SocketAddr {
    fn put(&self, to: &mut Writer) {
        self.to_string().put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        String::take(from)?.parse().map_err(|_| Malformed)
    }
}

record!(enum Address { 0 = Tcp(address), 1 = Unix(path) });

#[cfg(test)]
mod tests {
    use super::*;

    type Everything = (
        (BTreeMap<Slot, Vec<String>>, VecDeque<Option<Duration>>),
        ((Vec<Address>, Option<Kept>), (NonZeroU16, i64)),
    );

    fn everything() -> Everything {
        let map = BTreeMap::from([(Slot(3), vec!["é".to_owned(), String::new()])]);
        let times = VecDeque::from([None, Some(Duration::new(u64::MAX, 999_999_999))]);
        let addresses = vec![
            Address::Tcp("[::1]:80".parse().expect("valid")),
            Address::Unix(OsString::from_vec(vec![b'/', 0xff]).into()),
        ];
        let number = NonZeroU16::new(300).expect("not zero");
        (
            (map, times),
            ((addresses, Some(Kept(7))), (number, i64::MIN)),
        )
    }

    fn written() -> (Vec<u8>, Vec<RawFd>) {
        let mut writer = Writer::default();
        everything().put(&mut writer);
        writer.finish()
    }

    #[test]
    fn a_record_is_read_as_it_was_written_with_its_descriptors() {
        let (bytes, kept) = written();
        let mut reader = Reader::new(&bytes);
        assert_eq!(Everything::take(&mut reader), Ok(everything()));
        assert_eq!((reader.finish(), kept), (Ok(()), vec![7]));
    }

    #[test]
    fn bytes_that_are_cut_or_too_long_are_malformed() {
        let (mut bytes, _) = written();
        for length in 0..bytes.len() {
            let cut = Everything::take(&mut Reader::new(&bytes[..length]));
            assert_eq!(cut, Err(Malformed), "{length} bytes");
        }
        bytes.push(0);
        let mut reader = Reader::new(&bytes);
        Everything::take(&mut reader).expect("the record is whole");
        assert_eq!(reader.finish(), Err(Malformed));
    }

    #[test]
    fn a_length_beyond_the_end_reserves_no_memory() {
        let bytes = u32::MAX.to_le_bytes();
        assert_eq!(Vec::<u64>::take(&mut Reader::new(&bytes)), Err(Malformed));
        assert_eq!(
            <Option<u8> as Record>::take(&mut Reader::new(&[2, 0])),
            Err(Malformed)
        );
        assert_eq!(Kept::take(&mut Reader::new(&[2, 0, 0, 0])), Err(Malformed));
    }
}
