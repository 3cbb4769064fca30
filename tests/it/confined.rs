//! Programs in namespaces of their own, and programs to which a system call fails. A test does not
//! run where the kernel allows neither, as in many containers, and prints why.

use std::process::Command;

use nix::errno::Errno;
use nix::libc::{c_int, c_long};

use crate::support::program;

/// No system call.
const NO_CALL: c_long = 0xf_ffff;

/// Runs the program that is its first argument as PID 1 of a namespace.
pub(crate) fn as_pid_1() -> Option<Command> {
    unshare(&[
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ])
}

/// unshare(1), which runs the program that is its first argument. `None` if that is not allowed:
/// it needs user namespaces or root.
pub(crate) fn unshare(options: &[&str]) -> Option<Command> {
    let unshared = || {
        let mut command = program("unshare");
        command.args(options);
        command
    };
    is_allowed(&mut unshared()).then(unshared)
}

/// Executes the program in its arguments with a filter of seccomp(2).
const FILTERED: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
call, second, error = (int(it) for it in sys.argv[1:4])
load, equal, give = 0x20, 0x15, 0x06
# The second argument of a call is at 24, on a machine with little-endian numbers.
only = [(load, 0, 0, 24), (equal, 0, 1, second)] if second else []
filter = b''.join(struct.pack('HBBI', *one) for one in [
    (load, 0, 0, 0), (equal, 0, 1 + len(only), call), *only,
    (give, 0, 0, 0x00050000 | error), (give, 0, 0, 0x7fff0000)])
code = ctypes.create_string_buffer(filter)
program = struct.pack('HxxxxxxP', len(filter) // 8, ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[4], sys.argv[4:])
";

/// Runs the program that is its first argument, to which this system call fails. `None` without
/// python3 or seccomp(2).
pub(crate) fn refusing(call: c_long, error: Errno) -> Option<Command> {
    refusing_if(call, 0, error)
}

/// As [`refusing`], if the second argument of the call is this, or for 0 whatever it is.
pub(crate) fn refusing_if(call: c_long, second: c_int, error: Errno) -> Option<Command> {
    let filtered = |call: c_long| {
        let mut command = program("python3");
        let numbers = [call, second.into(), (error as i32).into()];
        command
            .args(["-c", FILTERED])
            .args(numbers.map(|it| it.to_string()));
        command
    };
    is_allowed(&mut filtered(NO_CALL)).then(|| filtered(call))
}

/// Whether it runs the program that is its first argument. Prints why not.
fn is_allowed(command: &mut Command) -> bool {
    let tried = command.arg("true").output();
    let is_allowed = tried.as_ref().is_ok_and(|it| it.status.success());
    if !is_allowed {
        println!("not tested: {:?} fails: {tried:?}", command.get_program());
    }
    is_allowed
}
