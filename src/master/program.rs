//! The file that this program was started from, where an upgrade looks for the next one.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::record::record;

/// Where it is, found once at the start: the working directory and `PATH` may change, and what
/// /proc/self/exe leads to is the old file, replaced or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    path: PathBuf,
}

record!(Program { path });

/// Tells a file from another that came to be at the same path while the first one runs: so long
/// nobody can write to it, and its inode is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Program {
    /// By its name on the command line, as execvp(3) found it. A name that leads nowhere (a
    /// starter may give any) stands for the file that runs.
    pub(super) fn of_this_process() -> Self {
        let name = env::args_os().next().unwrap_or_default();
        // Without one, names that are relative to it lead nowhere, and absolute ones need none.
        let directory = env::current_dir().unwrap_or_default();
        let path = find(&name, &directory, env::var_os("PATH").as_deref())
            .or_else(|| env::current_exe().ok())
            .unwrap_or_else(|| name.into());
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Which file is there now.
    pub(super) fn identity(&self) -> io::Result<Identity> {
        let metadata = fs::metadata(&self.path)?;
        Ok(Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
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
    use std::os::unix::fs::PermissionsExt;

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
}
