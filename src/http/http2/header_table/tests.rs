use super::*;

#[test]
fn a_block_that_copies_much_is_given_up() {
    let name = vec![b'n'; 3000];
    let mut first = vec![0x40];
    write_int(&mut first, 7, 0, name.len());
    first.extend(&name);
    first.push(0);
    // A new entry with the name of the newest one, and without a value.
    let again = [0x7e, 0];
    for (times, is_read) in [(20, true), (30, false)] {
        let block = [&first[..], &again.repeat(times)].concat();
        let read = HeaderTable::new().read(&block);
        assert_eq!(read.is_some(), is_read, "{times}");
    }
}

/// `www.example.com`, `custom-key` and a string of rare characters (RFC 7541 C.4).
#[test]
fn huffman_codes_are_counted() {
    for (codes, len) in [
        (&b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..], 15),
        (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", 10),
        (b"\xa8\xeb\x10\x64\x9c\xbf", 8),
        (b"\xff\xfe\xff\xfe\x7f", 2),
        (b"", 0),
    ] {
        assert_eq!(count_codes(codes), len, "{codes:x?}");
    }
    assert_eq!(CODE_ENDS[20], (30, 1 << 32), "no bits are left");
}

/// The requests of RFC 7541 C.3. Its authors give the sizes.
#[test]
fn the_entries_are_those_of_the_standard() {
    let mut table = HeaderTable::new();
    for (block, size, entries) in [
        (&b"\x82\x86\x84\x41\x0fwww.example.com"[..], 57, 1),
        (b"\x82\x86\x84\xbe\x58\x08no-cache", 110, 2),
        (
            b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
            164,
            3,
        ),
    ] {
        table.read(block).expect("a header block");
        assert_eq!((table.size(), table.entries.len()), (size, entries));
    }
    let replay = table.replay().expect("entries");
    let mut other = HeaderTable::new();
    other.read(&replay).expect("a header block");
    assert_eq!(other.replay(), Some(replay));
}

/// The name of an entry that is evicted for the new one (RFC 7541 4.4).
#[test]
fn names_are_taken_from_the_table() {
    let mut table = HeaderTable::new();
    table.read(b"\x3f\x0a").expect("a size of 41");
    assert_eq!(table.replay().as_deref(), Some(&b"\x3f\x0a"[..]));
    for value in [b'a', b'b'] {
        let begin = if value == b'a' {
            &b"\x40\x04name"[..]
        } else {
            b"\x7e"
        };
        let block = [begin, &[1, value]].concat();
        table.read(&block).expect("a header block");
        let entry = [&b"\x3f\x0a\x40\x04name\x01"[..], &[value]].concat();
        assert_eq!(table.replay(), Some(entry));
        assert_eq!((table.size(), table.entries.len()), (37, 1));
    }
    table.read(b"\x7e\x06longer").expect("a header block");
    assert_eq!((table.size(), table.entries.len()), (0, 0));
    table.read(b"\x20\x3f\xe1\x1f").expect("sizes");
    assert_eq!(table.replay(), None);
}

#[test]
fn malformed_blocks_are_found() {
    for block in [
        &b"\x7e\x01a"[..],
        b"\x41",
        b"\x41\x02a",
        b"\x00\x01",
        b"\xff",
        b"\xff\x80\x80\x80\x80\x01",
        b"\x3f\xe2\x1f",
    ] {
        assert_eq!(HeaderTable::new().read(block), None, "{block:x?}");
    }
}
