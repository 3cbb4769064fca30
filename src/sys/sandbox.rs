//! Restricts what this process may open and reach, by the kernel's Landlock (landlock(7)).
//!
//! The kernel checks a path when it is opened. Descriptors that are open before keep their rights,
//! so a worker accepts from its listeners and reads its inbox as without a sandbox. All threads and
//! programs that the calling thread starts later are restricted as it is, and none can undo that.

use std::fmt::Display;
use std::io;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, RestrictSelfAttr, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;

use crate::config::{Access, Connections, Sandbox};
use crate::sys::fds;

/// All that can be done with files in this version of Landlock is refused unless a path allows it.
/// Later versions restrict nothing else of files, but connections to their sockets.
const FILES: ABI = ABI::V5;

/// TCP, from the fourth version on, and UDP.
const NETWORK: ABI = ABI::V10;

/// What versions of Landlock are too old for: the first version that refuses it, and its name for
/// the log. The rest is refused by the first one, or by versions that few kernels have yet.
const PARTS: [(i32, &str); 4] = [
    (3, "cut files"),
    (TCP, "bind and connect TCP"),
    (5, "control devices"),
    (6, "send signals"),
];

const TCP: i32 = 4;

/// How much of a sandbox the kernel enforces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    Full,
    /// The version of Landlock, and what it cannot refuse.
    Partial(i32, String),
    /// Nothing is restricted, for this reason.
    None(&'static str),
}

impl Support {
    /// Asks the kernel, and restricts nothing.
    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        Self::decide(version(), sandbox.connections)
    }

    fn decide(version: nix::Result<i32>, connections: Connections) -> Self {
        let version = match version {
            Ok(version) => version,
            Err(Errno::EOPNOTSUPP) => return Self::None("Landlock is off (boot parameter lsm)"),
            Err(Errno::ENOSYS) => return Self::None("this kernel has no Landlock"),
            Err(_) => return Self::None("a filter of system calls refuses Landlock"),
        };
        let is_asked = |since: i32| since != TCP || connections == Connections::None;
        let missing = PARTS
            .iter()
            .filter(|&&(since, _)| version < since && is_asked(since));
        let missing: Vec<_> = missing.map(|&(_, name)| name).collect();
        match missing.is_empty() {
            true => Self::Full,
            false => Self::Partial(version, missing.join(", ")),
        }
    }
}

/// The version of the kernel's Landlock, from 1 on.
fn version() -> nix::Result<i32> {
    // SAFETY: with LANDLOCK_CREATE_RULESET_VERSION (1) the call reads no memory.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            1_u32,
        )
    };
    Errno::result(version).map(|version| i32::try_from(version).unwrap_or(i32::MAX))
}

/// Restricts the calling thread, what it starts later, and from Linux 7.0 on all threads of this
/// process. Sets `PR_SET_NO_NEW_PRIVS` (prctl(2)), without which the kernel refuses. What the
/// kernel does not know is not restricted.
pub(crate) fn enter(sandbox: &Sandbox) -> io::Result<()> {
    let handled = handled(sandbox.connections);
    let mut ruleset = requested(sandbox.connections, handled)
        .and_then(Ruleset::create)
        .map_err(refused)?;
    for (path, access) in &sandbox.paths {
        let unusable = |error: &dyn Display| {
            let path = path.display();
            let why = format!("the sandbox allows {path}, which cannot be opened: {error}");
            io::Error::other(why)
        };
        let opened = fds::open_path(path, OFlag::empty()).map_err(|error| unusable(&error))?;
        let rule = PathBeneath::new(opened, rights(*access));
        ruleset = ruleset.add_rule(rule).map_err(|error| unusable(&error))?;
    }
    let ruleset = ruleset.all_threads(true).map_err(refused)?;
    ruleset.restrict_self().map_err(refused)?;
    Ok(())
}

fn handled(connections: Connections) -> BitFlags<AccessFs> {
    match connections {
        Connections::Any => AccessFs::from_all(FILES),
        Connections::None => AccessFs::from_all(FILES) | AccessFs::ResolveUnix,
    }
}

fn requested(connections: Connections, files: BitFlags<AccessFs>) -> Result<Ruleset, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(files)?
        .scope(Scope::Signal)?;
    match connections {
        Connections::Any => Ok(ruleset),
        Connections::None => ruleset
            .handle_access(AccessNet::from_all(NETWORK))?
            .scope(Scope::AbstractUnixSocket),
    }
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    match access {
        Access::Read => make_bitflags!(AccessFs::{ReadFile | ReadDir}),
        Access::Write => AccessFs::from_all(FILES) & !AccessFs::Execute,
        Access::Append => make_bitflags!(AccessFs::{WriteFile | MakeReg}),
        Access::Execute => make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute}),
    }
}

fn refused(error: RulesetError) -> io::Error {
    io::Error::other(format!("the kernel refuses the sandbox: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_named_with_what_it_cannot_refuse() {
        let decide = |version| Support::decide(version, Connections::None);
        assert_eq!(decide(Ok(6)), Support::Full);
        assert_eq!(decide(Ok(99)), Support::Full);
        let partial = |version, what: &str| Support::Partial(version, what.into());
        assert_eq!(decide(Ok(5)), partial(5, "send signals"));
        assert_eq!(
            decide(Ok(1)),
            partial(
                1,
                "cut files, bind and connect TCP, control devices, send signals"
            )
        );
        // The app has not asked for it.
        assert_eq!(
            Support::decide(Ok(3), Connections::Any),
            partial(3, "control devices, send signals")
        );
        let none = |error| match decide(Err(error)) {
            Support::None(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(none(Errno::ENOSYS), "this kernel has no Landlock");
        assert!(none(Errno::EPERM).starts_with("a filter"));
        assert_eq!(
            none(Errno::EOPNOTSUPP),
            "Landlock is off (boot parameter lsm)"
        );
    }

    #[test]
    fn no_path_allows_what_the_sandbox_does_not_refuse() {
        for connections in [Connections::Any, Connections::None] {
            for access in [Access::Read, Access::Write, Access::Append, Access::Execute] {
                assert!(handled(connections).contains(rights(access)), "{access:?}");
            }
        }
    }

    #[test]
    fn a_path_that_is_missing_is_named() {
        let sandbox = Sandbox::new().read("/no/such/folder");
        // This thread is not restricted: the path comes first.
        let error = enter(&sandbox).expect_err("it is missing").to_string();
        assert!(error.contains("/no/such/folder"), "{error}");
        std::fs::read_dir("/").expect("nothing is restricted");
    }
}
