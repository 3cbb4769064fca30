//! The user and group of workers, by name or number (passwd(5), group(5)). A new worker changes to
//! them before exec.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{
    AccessFlags, Gid, Group, Uid, User, access, getegid, geteuid, setgid, setgroups, setuid,
};

use crate::codec::{Malformed, Reader, Record, Writer};

/// A user and a group to which a process can change. The change is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    uid: Uid,
    gid: Gid,
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Fails unless this process may make a file at the path, or replace the one that is there.
pub(crate) fn may_make(path: &Path) -> nix::Result<()> {
    if path.symlink_metadata().is_ok_and(|it| it.is_dir()) {
        return Err(Errno::EISDIR);
    }
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
}

impl Credentials {
    /// Looks `user` and `group` up; returns `None` if this process already has both. Without
    /// `group` it is the group of the user; without `user` only the group changes.
    pub(crate) fn choose(user: Option<&str>, group: Option<&str>) -> Result<Option<Self>, String> {
        let current = Self {
            uid: geteuid(),
            gid: getegid(),
        };
        let entry = user.map(look_up_user).transpose()?;
        let group = group.map(look_up_group).transpose()?;
        let uid = entry.map_or(current.uid, |entry| entry.uid);
        let gid = match (group, entry) {
            (Some(gid), _) => gid,
            (None, None) => current.gid,
            (None, Some(Entry { gid: Some(gid), .. })) => gid,
            (None, Some(_)) => {
                return Err(format!(
                    "workers cannot run as user {uid} (--user): it has no entry in passwd(5), so \
                     its group must be named too (--group)"
                ));
            }
        };
        Self { uid, gid }.change_from(current)
    }

    /// `None` if they are equal. An error if they differ and `current` is not root.
    fn change_from(self, current: Self) -> Result<Option<Self>, String> {
        if self == current {
            Ok(None)
        } else if current.uid.is_root() {
            Ok(Some(self))
        } else if self.uid == current.uid {
            Err(format!(
                "workers cannot run as group {} (--group): only root may choose another than its \
                 own",
                self.gid
            ))
        } else {
            Err(format!(
                "workers cannot run as user {} (--user): only root may choose another than its own",
                self.uid
            ))
        }
    }

    pub(crate) fn group(self) -> u32 {
        self.gid.as_raw()
    }

    /// Whether the user differs from the user of this process.
    pub(crate) fn is_another_user(self) -> bool {
        self.uid != geteuid()
    }

    /// Whether this user may write to a file or a directory, or may change its mode to do so: as
    /// its owner, by the group, or because all users may. Checks access control lists (acl(5)) only
    /// as far as the mode shows them.
    pub(crate) fn may_write(self, to: &Metadata) -> bool {
        let by_group = to.gid() == self.gid.as_raw() && to.mode() & libc::S_IWGRP != 0;
        self.owns(to) || by_group || to.mode() & libc::S_IWOTH != 0
    }

    /// Whether this user may replace `entry` in `directory` (rename(2)). In a sticky directory only
    /// the owners of the two may.
    pub(crate) fn may_replace(self, entry: &Metadata, directory: &Metadata) -> bool {
        let sticky = directory.mode() & libc::S_ISVTX != 0;
        self.may_write(directory) && (!sticky || self.owns(entry) || self.owns(directory))
    }

    fn owns(self, file: &Metadata) -> bool {
        file.uid() == self.uid.as_raw()
    }

    #[cfg(test)]
    pub(crate) fn of(uid: u32, gid: u32) -> Self {
        Self {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
        }
    }

    /// Changes the calling process to this user and group, without supplementary groups. A
    /// set-user-ID program gives the process no more rights (prctl(2), `PR_SET_NO_NEW_PRIVS`).
    ///
    /// Can be called between fork and exec: it does not allocate and takes no lock.
    pub(super) fn apply(self) -> nix::Result<()> {
        setgroups(&[])?;
        setgid(self.gid)?;
        setuid(self.uid)?;
        nix::sys::prctl::set_no_new_privs()
    }
}

impl Record for Credentials {
    fn put(&self, to: &mut Writer) {
        self.uid.as_raw().put(to);
        self.gid.as_raw().put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (uid, gid) = <(u32, u32)>::take(from)?;
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(Self { uid, gid })
    }
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, group {}", self.uid, self.gid)
    }
}

/// The entry of a user in passwd(5), or a number without an entry.
#[derive(Clone, Copy)]
struct Entry {
    uid: Uid,
    /// `None` for a number without an entry.
    gid: Option<Gid>,
}

fn look_up_user(user: &str) -> Result<Entry, String> {
    let refuse = |why: &str| format!("workers cannot run as user `{user}` (--user): {why}");
    let number = user.parse().map(Uid::from_raw).ok();
    let found = match number {
        Some(uid) => User::from_uid(uid),
        None => User::from_name(user),
    };
    match (found, number) {
        (Ok(Some(found)), _) => Ok(Entry {
            uid: found.uid,
            gid: Some(found.gid),
        }),
        // A container's user needs no entry.
        (Ok(None), Some(uid)) => Ok(Entry { uid, gid: None }),
        (Ok(None), None) => Err(refuse("there is no such user")),
        (Err(error), _) => Err(refuse(error.desc())),
    }
}

fn look_up_group(group: &str) -> Result<Gid, String> {
    if let Ok(gid) = group.parse() {
        return Ok(Gid::from_raw(gid));
    }
    let refuse = |why: &str| format!("workers cannot run as group `{group}` (--group): {why}");
    match Group::from_name(group) {
        Ok(Some(found)) => Ok(found.gid),
        Ok(None) => Err(refuse("there is no such group")),
        Err(error) => Err(refuse(error.desc())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_may_change_user_or_group() {
        let [root, other] = [Credentials::of(0, 0), Credentials::of(33, 33)];
        assert_eq!(root.change_from(root), Ok(None));
        for wanted in [other, Credentials::of(0, 33)] {
            assert_eq!(wanted.change_from(root), Ok(Some(wanted)));
        }
        assert_eq!(other.change_from(other), Ok(None));
        for (wanted, option) in [(root, "--user"), (Credentials::of(33, 0), "--group")] {
            let error = wanted.change_from(other).expect_err("not root");
            assert!(error.contains(option), "{error}");
        }
    }

    #[test]
    fn the_error_for_an_unknown_user_or_group_names_the_option() {
        for (user, group, named) in [
            (Some("no-such-user"), None, "`no-such-user` (--user)"),
            (None, Some("no-such-group"), "`no-such-group` (--group)"),
            (Some("4294967294"), None, "--group"),
        ] {
            let error = Credentials::choose(user, group).expect_err("it is unknown");
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn the_present_user_and_group_need_no_change() {
        assert_eq!(Credentials::choose(None, None), Ok(None));
        let me = geteuid().to_string();
        let group = getegid().to_string();
        assert_eq!(Credentials::choose(Some(&me), Some(&group)), Ok(None));
    }
}
