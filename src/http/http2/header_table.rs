//! The dynamic table of an HPACK decoder (RFC 7541 2.3.2), as the client's header blocks build it.
//!
//! Only the representations that change the table are stored, as they came: Huffman codes are not
//! decoded, only counted. So a header block that changes nothing costs a look at each of its
//! fields.

use std::collections::VecDeque;

/// The size of a table until a header block changes it (RFC 9113 6.5.2). The server announces no
/// other size, so that it is also the largest one.
pub(crate) const TABLE_SIZE: usize = 4096;

/// What an entry counts besides its name and its value (RFC 7541 4.1).
const OVERHEAD: usize = 32;

/// The most bytes of names that one header block may have copied from older entries. Two bytes of a
/// block can copy a name of eleven thousand.
const COPIED_MAX: usize = 64 * 1024;

/// First bytes of representations (RFC 7541 6).
const INDEXED: u8 = 0x80;
const WITH_INDEXING: u8 = 0x40;
const SIZE_UPDATE: u8 = 0x20;

/// First bit of a string with Huffman codes.
const HUFFMAN: u8 = 0x80;

/// The lengths of the names in the static table, from index 1 on (RFC 7541, appendix A).
pub(crate) const STATIC_NAMES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, // :authority to :status 204
    7, 7, 7, 7, 14, 15, 15, 13, 6, 27, // :status 206 to access-control-allow-origin
    3, 5, 13, 13, 19, 16, 16, 14, 16, 13, // age to content-range
    12, 6, 4, 4, 6, 7, 4, 4, 8, 17, // content-type to if-modified-since
    13, 8, 19, 13, 4, 8, 12, 18, 19, 5, // if-none-match to range
    7, 7, 11, 6, 10, 25, 17, 10, 4, 3,  // referer to via
    16, // www-authenticate
];

/// How many codes have a length in bits (RFC 7541, appendix B).
const CODES: [(u32, u64); 21] = [
    (5, 10),
    (6, 26),
    (7, 32),
    (8, 6),
    (10, 5),
    (11, 3),
    (12, 2),
    (13, 6),
    (14, 2),
    (15, 3),
    (19, 3),
    (20, 8),
    (21, 13),
    (22, 26),
    (23, 29),
    (24, 12),
    (25, 4),
    (26, 15),
    (27, 19),
    (28, 29),
    (30, 4),
];

/// For each length of codes, the first number of 32 bits that begins with no code of this length or
/// a shorter one. Longer codes are greater, because the code is canonical.
const CODE_ENDS: [(u32, u64); CODES.len()] = {
    let mut ends = CODES;
    let mut end = 0;
    let mut index = 0;
    while index < CODES.len() {
        let (bits, count) = CODES[index];
        end += count << (32 - bits);
        ends[index] = (bits, end);
        index += 1;
    }
    ends
};

/// The entries of a table, the oldest first.
#[derive(Debug)]
pub(crate) struct HeaderTable {
    /// One literal with incremental indexing for each entry. Its name is in the static table, or
    /// stands in it.
    literals: Vec<u8>,
    entries: VecDeque<Entry>,
    /// In bytes as RFC 7541 4.1 counts them.
    size: usize,
    max: usize,
}

/// The part of the literals that is one entry. All lengths are in bytes.
#[derive(Debug)]
struct Entry {
    /// The whole literal.
    literal: u16,
    /// The part of it before the value.
    name_part: u16,
    /// The name when it is decoded.
    name: u16,
    /// As RFC 7541 4.1 counts it.
    size: u16,
}

/// The name of a literal.
enum Name<'a> {
    Static(u8),
    /// From this entry, counted from the newest one.
    Dynamic(usize),
    Literal(Text<'a>),
}

/// A string as it came.
pub(crate) struct Text<'a> {
    pub(crate) raw: &'a [u8],
    /// Without the length before it.
    string: &'a [u8],
}

/// The rest of a header block.
pub(crate) struct Block<'a>(pub(crate) &'a [u8]);

impl HeaderTable {
    pub(crate) fn new() -> Self {
        Self {
            literals: Vec::new(),
            entries: VecDeque::new(),
            size: 0,
            max: TABLE_SIZE,
        }
    }

    /// In bytes as RFC 7541 4.1 counts them.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// A header block that makes an empty table equal to this one. `None` if nothing has to be
    /// done.
    pub(crate) fn replay(&self) -> Option<Vec<u8>> {
        let mut block = Vec::new();
        if self.max != TABLE_SIZE {
            write_int(&mut block, 5, SIZE_UPDATE, self.max);
        }
        block.extend_from_slice(&self.literals);
        (!block.is_empty()).then_some(block)
    }

    /// Gives memory back that the entries do not need.
    pub(crate) fn shrink(&mut self) {
        self.literals.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// Applies a header block. `None` if it is malformed, or makes more work than a client's.
    pub(crate) fn read(&mut self, block: &[u8]) -> Option<()> {
        let mut block = Block(block);
        let mut copied = 0;
        while let Some(&first) = block.0.first() {
            if first & INDEXED != 0 {
                block.int(7)?;
            } else if first & WITH_INDEXING != 0 {
                let name = match block.int(6)? {
                    0 => Name::Literal(block.text()?),
                    index => match u8::try_from(index) {
                        Ok(index) if usize::from(index) <= STATIC_NAMES.len() => {
                            Name::Static(index)
                        }
                        _ => Name::Dynamic(index - STATIC_NAMES.len() - 1),
                    },
                };
                copied += self.insert(&name, &block.text()?)?;
                if copied > COPIED_MAX {
                    return None;
                }
            } else if first & SIZE_UPDATE != 0 {
                self.max = block.int(5).filter(|max| *max <= TABLE_SIZE)?;
                self.evict(0);
            } else {
                if block.int(4)? == 0 {
                    block.text()?;
                }
                block.text()?;
            }
        }
        Some(())
    }

    /// Returns how many bytes were copied from an older entry.
    fn insert(&mut self, name: &Name<'_>, value: &Text<'_>) -> Option<usize> {
        let begin = self.literals.len();
        let name_len = match *name {
            Name::Static(index) => {
                self.literals.push(WITH_INDEXING | index);
                usize::from(STATIC_NAMES[usize::from(index) - 1])
            }
            Name::Literal(ref text) => {
                self.literals.push(WITH_INDEXING);
                self.literals.extend_from_slice(text.raw);
                text.decoded_len()
            }
            // An entry may be evicted for another one with its name.
            Name::Dynamic(index) => {
                let newer = self.entries.iter().rev().take(index + 1);
                let back = newer.map(|entry| usize::from(entry.literal)).sum::<usize>();
                let last = self.entries.len().checked_sub(index + 1)?;
                let entry = &self.entries[last];
                let at = begin - back;
                self.literals
                    .extend_from_within(at..at + usize::from(entry.name_part));
                usize::from(entry.name)
            }
        };
        let name_part = self.literals.len() - begin;
        let copied = match name {
            Name::Dynamic(_) => name_part,
            Name::Static(_) | Name::Literal(_) => 0,
        };
        let size = name_len + value.decoded_len() + OVERHEAD;
        if size > self.max {
            // RFC 7541 4.4: the table is empty afterwards. The name may have been long.
            self.literals = Vec::new();
            self.entries.clear();
            self.size = 0;
            return Some(copied);
        }
        self.evict(size);
        self.literals.extend_from_slice(value.raw);
        let narrow = |len: usize| u16::try_from(len).ok();
        self.entries.push_back(Entry {
            literal: narrow(name_part + value.raw.len())?,
            name_part: narrow(name_part)?,
            name: narrow(name_len)?,
            size: narrow(size)?,
        });
        self.size += size;
        Some(copied)
    }

    /// Evicts the oldest entries until there is room for one of this size.
    fn evict(&mut self, size: usize) {
        let mut evicted = 0;
        while self.size + size > self.max {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.size -= usize::from(oldest.size);
            evicted += usize::from(oldest.literal);
        }
        self.literals.drain(..evicted);
    }
}

impl<'a> Block<'a> {
    /// An integer that begins in the last `prefix` bits of the next byte (RFC 7541 5.1).
    pub(crate) fn int(&mut self, prefix: u32) -> Option<usize> {
        let (&first, mut rest) = self.0.split_first()?;
        let max = (1 << prefix) - 1;
        let mut value = usize::from(first) & max;
        if value == max {
            // h2 reads as many bytes.
            for shift in [0, 7, 14, 21] {
                let (&byte, after) = rest.split_first()?;
                rest = after;
                value += usize::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    self.0 = rest;
                    return Some(value);
                }
            }
            return None;
        }
        self.0 = rest;
        Some(value)
    }

    pub(crate) fn text(&mut self) -> Option<Text<'a>> {
        let all = self.0;
        let len = self.int(7)?;
        let (string, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        let raw = &all[..all.len() - rest.len()];
        Some(Text { raw, string })
    }
}

impl Text<'_> {
    pub(crate) fn decoded_len(&self) -> usize {
        match self.raw.first() {
            Some(first) if first & HUFFMAN != 0 => count_codes(self.string),
            _ => self.string.len(),
        }
    }
}

/// The number of Huffman codes in a string. The last bits of a string are a part of a code, and do
/// not count.
fn count_codes(string: &[u8]) -> usize {
    let mut bytes = string.iter();
    // The next bits of the string from the first bit on, and how many there are.
    let (mut pool, mut pooled) = (0_u64, 0);
    let mut count = 0;
    loop {
        while pooled <= 32
            && let Some(&byte) = bytes.next()
        {
            pool |= u64::from(byte) << (56 - pooled);
            pooled += 8;
        }
        let next = (pool | (u64::MAX >> pooled)) >> 32;
        let code = CODE_ENDS.iter().find(|(_, end)| next < *end);
        match code {
            Some(&(bits, _)) if bits <= pooled => {
                pool <<= bits;
                pooled -= bits;
                count += 1;
            }
            _ => return count,
        }
    }
}

fn write_int(to: &mut Vec<u8>, prefix: u32, first: u8, value: usize) {
    let max = (1 << prefix) - 1;
    if value < max {
        to.push(first | value as u8);
        return;
    }
    to.push(first | max as u8);
    let mut rest = value - max;
    while rest >= 0x80 {
        to.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    to.push(rest as u8);
}

#[cfg(test)]
mod tests;
