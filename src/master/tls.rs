//! The master's part of TLS: it reads the files, and makes and replaces the keys of session
//! tickets. Workers get both from it, so they need no right to read a private key.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::error::{Error, chain};
use crate::http::Tls;
use crate::keyring::Keyring;
use crate::master::Master;
use crate::protocol::ticket_keys::{self, TicketKeys};
use crate::supervisor::Event;
use crate::sys::{clock, memory};

/// The files and keys of TLS.
#[derive(Debug)]
pub(super) struct Secrets {
    tls: Tls,
    /// The contents of the files when the master last read them. `None`: workers read them.
    files: Option<OwnedFd>,
    /// The first name of each certificate, and the second after 1970 at which it ends.
    ends: Vec<(String, u64)>,
    /// `None` if they could not be made. Then each worker has keys of its own.
    keys: Option<TicketKeys>,
}

/// Whether the workers that an upgraded master has, of which one is the canary, have its files and
/// ticket keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretsOrigin {
    Inherited,
    /// This image has read other files or made keys, so the workers do not have them yet.
    New,
}

impl Secrets {
    /// At the start of a server. Fails if the files cannot be used.
    pub(super) fn new(tls: Tls) -> Result<Self, Error> {
        let (files, ends) = read(&tls)?;
        let keys = fresh_keys().map_err(|error| Error::system("memfd_create(2)", error))?;
        Ok(Self {
            tls,
            files: Some(files),
            ends,
            keys: Some(keys),
        })
    }

    /// In the next image. The canary could serve, so the server does not end because a file cannot
    /// be used now. Keys that cannot be taken over are made anew.
    pub(super) fn resume(
        tls: Option<Tls>,
        keys: Option<OwnedFd>,
        files: Option<OwnedFd>,
    ) -> (Option<Self>, SecretsOrigin) {
        let Some(tls) = tls else {
            return (None, SecretsOrigin::Inherited);
        };
        let read = read(&tls)
            .inspect_err(|error| tracing::error!(%error, "the files stay as they were read last"));
        let (files, ends, are_files_new) = match read {
            Ok((read, ends)) => {
                let is_new = !files.is_some_and(|files| are_same(&files, &read));
                (Some(read), ends, is_new)
            }
            Err(_) => {
                let ends = files.as_ref().and_then(|files| ends(&tls, files));
                (files, ends.unwrap_or_default(), false)
            }
        };
        let left = keys.and_then(|fd| {
            TicketKeys::inherit(fd)
                .inspect_err(|error| tracing::error!(%error, "the keys of tickets are lost"))
                .ok()
        });
        let origin = match left {
            Some(_) if !are_files_new => SecretsOrigin::Inherited,
            _ => SecretsOrigin::New,
        };
        let fresh = || {
            fresh_keys()
                .inspect_err(|error| tracing::error!(%error, "workers have no tickets in common"))
                .ok()
        };
        let keys = left.or_else(fresh);
        let secrets = Self {
            tls,
            files,
            ends,
            keys,
        };
        (Some(secrets), origin)
    }

    /// The descriptor of the keys, which a worker inherits.
    pub(super) fn keys_number(&self) -> Option<RawFd> {
        self.keys.as_ref().map(TicketKeys::number)
    }

    /// The descriptor of the files, which a worker inherits.
    pub(super) fn files_number(&self) -> Option<RawFd> {
        self.files.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// A duplicate of the keys' descriptor for the next image. Without one that image makes keys.
    pub(super) fn share_keys(&self) -> Option<OwnedFd> {
        self.keys.as_ref().and_then(|keys| keys.share().ok())
    }

    /// A duplicate of the files' descriptor for the next image.
    pub(super) fn share_files(&self) -> Option<OwnedFd> {
        self.files.as_ref().and_then(|files| files.try_clone().ok())
    }

    /// The first name of each certificate, and the second after 1970 at which it ends.
    pub(super) fn ends(&self) -> &[(String, u64)] {
        &self.ends
    }

    /// Reads the files again. If they cannot be used, the contents that were read before stay.
    fn renew(&mut self) -> Result<(), Error> {
        let (files, ends) = read(&self.tls)?;
        (self.files, self.ends) = (Some(files), ends);
        Ok(())
    }

    fn rotate(&mut self, now: Duration) {
        let Some(keys) = &mut self.keys else {
            return;
        };
        let lifetime = self.tls.key_lifetime();
        let ring = keys.keyring().clone();
        keys.replace(match ticket_keys::fresh_key() {
            Ok(fresh) => {
                tracing::debug!("the key of session tickets was replaced");
                ring.rotated(fresh, now, lifetime)
            }
            Err(error) => {
                tracing::error!(%error, "the key of session tickets stays for {lifetime:?} more");
                Keyring { since: now, ..ring }
            }
        });
    }
}

fn read(tls: &Tls) -> Result<(OwnedFd, Vec<(String, u64)>), Error> {
    let read = tls.read_files()?;
    let files = memory::sealed(c"prefork-tls-files", &read.contents);
    let files = files.map_err(|error| Error::system("memfd_create(2)", error))?;
    Ok((files, read.ends))
}

/// When the certificates end that the image before has read; `None` if it encodes them otherwise.
fn ends(tls: &Tls, files: &OwnedFd) -> Option<Vec<(String, u64)>> {
    let files = files.try_clone().ok()?;
    let contents = memory::contents(&files.into()).ok()?;
    Some(tls.read_contents(&contents).ok()?.ends)
}

/// Whether both were read from the same files.
fn are_same(left: &OwnedFd, read: &OwnedFd) -> bool {
    let contents = |files: &OwnedFd| memory::contents(&files.try_clone()?.into());
    contents(left).is_ok_and(|left| contents(read).is_ok_and(|read| left == read))
}

fn fresh_keys() -> std::io::Result<TicketKeys> {
    TicketKeys::new(Keyring::new(ticket_keys::fresh_key()?, clock::monotonic()))
}

impl Master {
    /// Reads what the workers of a reload need again: by the hook, and the files of TLS. Then makes
    /// socket files and the pid file again if they were removed.
    pub(super) fn check_reload(&mut self) {
        let checked = self.observers.hooks.check_reload();
        let checked = checked.map_err(|error| chain(&*error));
        let read = checked.and_then(|()| {
            let read = self.secrets.as_mut().map_or(Ok(()), Secrets::renew);
            read.map_err(|error| error.to_string())
        });
        match read {
            Ok(()) => {
                self.observers.operations.on_reload_checked();
                self.renew_listeners();
                self.renew_admin_listeners();
                self.renew_pid_file();
                self.handle_event(Event::Reload);
            }
            Err(why) => {
                self.failures.check = Some(why);
                self.handle_event(Event::ReloadRefused);
            }
        }
    }

    /// When the key of session tickets is to be replaced; `None` if there is none.
    pub(super) fn next_rotation(&self, now: Duration) -> Option<Duration> {
        let secrets = self.secrets.as_ref()?;
        let keyring = secrets.keys.as_ref()?.keyring();
        let left = keyring.left(now, secrets.tls.key_lifetime());
        Some(now.saturating_add(left))
    }

    pub(super) fn rotate_ticket_keys(&mut self, now: Duration) {
        if let Some(secrets) = &mut self.secrets {
            secrets.rotate(now);
        }
    }
}
