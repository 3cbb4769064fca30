//! The file that tells the master's pid.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::record::record;

/// Written when the listeners are bound, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    line: String,
}

record!(PidFile { path, line });

impl PidFile {
    /// In the next image: the same file, if it is at the same path, else a new one. The process is
    /// the same, so the file stays true all the time.
    pub(crate) fn resume(left: Option<Self>, path: Option<&Path>) -> io::Result<Option<Self>> {
        match (left, path) {
            (Some(left), Some(path)) if left.path == path => Ok(Some(left)),
            (_, Some(path)) => Self::write(path).map(Some),
            (_, None) => Ok(None),
        }
    }

    /// Replaces what is there: a file that was left over says nothing, and a server that still
    /// runs on the same address was found when the listeners were bound.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        let line = format!("{}\n", std::process::id());
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        fs::write(&new, &line)?;
        // So that a reader never sees half a number.
        fs::rename(&new, path)?;
        Ok(Self {
            path: path.to_owned(),
            line,
        })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // A successor may have written its own by now.
        let ours = fs::read_to_string(&self.path).is_ok_and(|line| line == self.line);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the pid file stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_the_pid_and_goes_with_its_owner_unless_it_is_anothers() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("server.pid");
        let file = PidFile::write(&path).expect("writable");
        let pid: u32 = fs::read_to_string(&path)
            .expect("there")
            .trim()
            .parse()
            .expect("a number");
        assert_eq!(pid, std::process::id());
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(&path).expect("writable");
        fs::write(&path, "1\n").expect("writable");
        drop(file);
        assert!(path.exists());
    }
}
