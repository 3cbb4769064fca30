//! What a server announces: a notice in JSON on each line.

use std::io::{BufRead, BufReader};
use std::process::ChildStdout;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::process::Trouble;

/// The announce stream of a server. A thread reads it, until no process has the stream any more.
pub(crate) struct Notices(Receiver<String>);

impl Notices {
    pub(crate) fn of(stream: ChildStdout) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Self(receiver)
    }

    /// The next notice if it comes in time. An error says that none came, or that no process has
    /// the stream any more.
    pub(crate) fn next(&self, deadline: Instant) -> Result<Value, Trouble> {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = self.0.recv_timeout(left).map_err(|error| {
            Trouble::Stuck(match error {
                RecvTimeoutError::Timeout => "no notice came in time".into(),
                RecvTimeoutError::Disconnected => "the server ended".into(),
            })
        })?;
        serde_json::from_str(&line)
            .map_err(|error| Trouble::Stuck(format!("\"{line}\" is no notice: {error}")))
    }

    /// The next notice of this name.
    pub(crate) fn named(&self, name: &str, deadline: Instant) -> Result<Value, Trouble> {
        loop {
            let notice = self.next(deadline)?;
            if notice["notice"] == name {
                return Ok(notice);
            }
        }
    }
}

/// The address of the notice `serving`.
pub(crate) fn address<T: std::str::FromStr>(serving: &Value) -> Result<T, Trouble> {
    let address = serving["addresses"][0].as_str();
    let address = address.and_then(|it| it.parse().ok());
    address.ok_or_else(|| Trouble::Stuck(format!("no address: {serving}")))
}
