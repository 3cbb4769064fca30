//! The file that this program was started from. An upgrade executes the file that is there then.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Component, Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::codec::record;
use crate::sys::credentials::Credentials;

/// The most symbolic links in a path, as in path_resolution(7).
const LINKS_MAX: u32 = 40;

/// The path of the program, found once at the start, because the working directory and `PATH` may
/// change. /proc/self/exe always leads to the old file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::master) struct Program {
    path: PathBuf,
}

record!(Program { path });

/// Distinguishes a file from another one that was put at the same path while the first one runs. A
/// file that runs cannot be written to, and its inode is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::master) struct Identity {
    device: u64,
    inode: u64,
}

impl Program {
    /// Found by the name on the command line, as execvp(3) does. If that name leads to no program
    /// (it may be anything), the path of the running file.
    pub(in crate::master) fn of_this_process() -> Self {
        let name = env::args_os().next().unwrap_or_default();
        // Only relative names need it.
        let directory = env::current_dir().unwrap_or_default();
        let path = find(&name, &directory, env::var_os("PATH").as_deref())
            .or_else(|| env::current_exe().ok())
            .unwrap_or_else(|| name.into());
        Self { path }
    }

    pub(in crate::master) fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of the file that is there now.
    pub(in crate::master) fn identity(&self) -> io::Result<Identity> {
        let metadata = fs::metadata(&self.path)?;
        Ok(Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// The first file or directory by which `user` could change what is executed: the program, if
    /// the user may write to it, or an entry on the path to it, links included, if the user may
    /// replace it. `None` if there is none.
    pub(in crate::master) fn changeable_by(
        &self,
        user: Credentials,
    ) -> io::Result<Option<PathBuf>> {
        let path = path::absolute(&self.path)?;
        let mut rest: Vec<_> = names(&path);
        let (mut here, mut links) = (PathBuf::from("/"), 0);
        while let Some(name) = rest.pop() {
            if name == ".." {
                here.pop();
                continue;
            }
            let (directory, entry) = (fs::metadata(&here)?, here.join(name));
            let found = fs::symlink_metadata(&entry)?;
            if user.may_replace(&found, &directory) {
                return Ok(Some(entry));
            }
            if !found.is_symlink() {
                here = entry;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::ELOOP.into());
            }
            let target = fs::read_link(&entry)?;
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            rest.extend(names(&target));
        }
        let program = fs::metadata(&here)?;
        Ok(user.may_write(&program).then_some(here))
    }
}

/// The names in a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

fn find(name: &OsStr, directory: &Path, search: Option<&OsStr>) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    let named = Path::new(name);
    named.file_name()?;
    // With a slash in it, it is a path (execvp(3)).
    if named.parent() != Some(Path::new("")) {
        return Some(directory.join(named)).filter(is_program);
    }
    env::split_paths(search?)
        .map(|place| directory.join(place).join(named))
        .find(is_program)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn program(path: &Path) {
        fs::write(path, "").expect("writable");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    #[test]
    fn a_name_is_found_as_execvp_finds_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let here = dir.path();
        for sub in ["first", "second"] {
            fs::create_dir(here.join(sub)).expect("writable");
        }
        // What cannot be executed is passed over.
        fs::write(here.join("first/server"), "").expect("writable");
        program(&here.join("second/server"));
        let server = Some(here.join("second/server"));
        let search = env::join_paths([Path::new("first"), &here.join("second")]).expect("no colon");
        let find = |name: &str| find(name.as_ref(), here, Some(&search));
        assert_eq!(find("server"), server);
        assert_eq!(find("second/server"), server);
        assert_eq!(find("./second/server"), Some(here.join("./second/server")));
        assert_eq!(find(&here.join("second/server").to_string_lossy()), server);
        assert_eq!(find("first/server"), None);
        assert_eq!(find("other"), None);
        assert_eq!(find(""), None);
    }

    #[test]
    fn another_file_at_the_same_path_is_another() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("server");
        program(&path);
        let at = Program { path: path.clone() };
        let first = at.identity().expect("it is there");
        assert_eq!(at.identity().expect("it is there"), first);
        program(&dir.path().join("new"));
        fs::rename(dir.path().join("new"), &path).expect("the same directory");
        assert_ne!(at.identity().expect("it is there"), first);
        fs::remove_file(&path).expect("it is ours");
        assert!(at.identity().is_err());
    }

    #[test]
    fn who_may_change_the_program_or_the_way_to_it_is_found_by_owner_and_mode() {
        let dir = tempfile::tempdir().expect("a directory");
        let here = dir.path().canonicalize().expect("it is there");
        for sub in ["releases", "releases/1"] {
            fs::create_dir(here.join(sub)).expect("writable");
        }
        let path = here.join("releases/1/server");
        program(&path);
        symlink("releases/1", here.join("current")).expect("a new name");
        let at = Program {
            path: here.join("current/../1/server"),
        };
        let metadata = fs::metadata(&path).expect("it is there");
        let (owner, group) = (metadata.uid(), metadata.gid());
        let user = |uid, gid| {
            at.changeable_by(Credentials::of(uid, gid))
                .expect("no error")
        };
        let (other, others) = (owner + 1, group + 1);
        assert_eq!(user(other, others), None);
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        };
        mode(&path, 0o775);
        assert_eq!(user(other, others), None);
        assert_eq!(user(other, group), Some(path.clone()));
        mode(&path, 0o757);
        assert_eq!(user(other, others), Some(path.clone()));
        mode(&path, 0o755);
        // One may rename what is in it, but not if it is sticky.
        mode(&here.join("releases"), 0o777);
        assert_eq!(user(other, others), Some(here.join("releases/1")));
        mode(&here.join("releases"), 0o1777);
        assert_eq!(user(other, others), None);
        assert!(user(owner, others).is_some(), "the owner may do all that");
        // The link's directory is on the way too.
        mode(&here, 0o777);
        assert_eq!(user(other, others), Some(here.join("current")));
        mode(&here, 0o700);
    }
}
