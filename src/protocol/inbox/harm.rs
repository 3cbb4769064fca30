//! What a worker can do to an inbox for all workers after it. It has both ends, and options of a
//! socket stay when the process has ended that has set them.

use std::io;
use std::os::fd::AsFd;

use nix::libc::{self, SOL_SOCKET, c_int};

use super::Inbox;
use crate::sys::apart::all_apart;
use crate::sys::fds;

/// Those that keep connections out: how much waits, and whether descriptors may come. A kernel
/// before Linux 6.16 does not know the second one.
const OPTIONS: [c_int; 2] = [libc::SO_SNDBUF, fds::SO_PASSRIGHTS];

impl Inbox {
    /// Gives these inboxes the options of a new one. Returns how many had others.
    pub(crate) fn mend(inboxes: &[Self]) -> io::Result<usize> {
        let new = Self::new()?;
        // To ask takes no lock. To set does, which a worker may hold.
        let is_harmed = |inbox: &&Self| {
            let both = [
                (&inbox.sender, &new.sender),
                (&inbox.receiver, &new.receiver),
            ];
            both.iter().any(|(it, new)| options(it) != options(new))
        };
        let harmed: Vec<_> = inboxes.iter().filter(is_harmed).collect();
        let ends: Vec<_> = harmed
            .iter()
            .flat_map(|it| [&it.sender, &it.receiver])
            .collect();
        if ends.is_empty() {
            return Ok(0);
        }
        let [buffer, passes] = options(&new.sender);
        all_apart(&ends, || {
            for end in &ends {
                // The kernel doubles it (socket(7)).
                set(end, OPTIONS[0], buffer.map(|bytes| bytes / 2))?;
                set(end, OPTIONS[1], passes)?;
            }
            Ok(0)
        })?;
        Ok(harmed.len())
    }
}

fn options(end: impl AsFd) -> [Option<c_int>; 2] {
    OPTIONS.map(|option| fds::option(&end, SOL_SOCKET, option).ok())
}

fn set(end: impl AsFd, option: c_int, value: Option<c_int>) -> io::Result<()> {
    value.map_or(Ok(()), |value| {
        fds::set_option(end, SOL_SOCKET, option, value)
    })
}
