//! Random bytes for keys: getrandom(2).

use std::io;

use nix::errno::Errno;
use nix::libc;

/// Fills `bytes` with unpredictable random bytes. Blocks until the kernel has gathered enough
/// entropy, which is soon after the machine has started.
pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: `rest` is valid for writes of its own length.
        let written = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(written) {
            Ok(written) => filled += written,
            Err(_) if Errno::last() == Errno::EINTR => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_fills_differ_and_are_complete() {
        let [one, other] = [(); 2].map(|()| {
            let mut bytes = [0; 1024];
            fill(&mut bytes).expect("the kernel has it");
            bytes
        });
        assert_ne!(one, other);
        // About four of 1024 random bytes are 0. A part that was not written has only zeroes.
        let zeroes = one.iter().filter(|&&byte| byte == 0).count();
        assert!(zeroes < 64, "{zeroes} zeroes");
    }
}
