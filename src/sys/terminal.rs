//! The terminal that controls this process (tty(4)).

use std::fs::File;

use nix::errno::Errno;

/// Opens the terminal. Fails with `ENXIO` if this process has none.
pub(super) fn open() -> nix::Result<File> {
    File::open("/dev/tty").map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}
