//! Listeners that the service manager passes to the master (sd_listen_fds(3)): those of its own
//! units, and those that an earlier master has stored, which are known by their names.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::str::FromStr;

use nix::unistd::Pid;

use crate::address::Address;
use crate::error::Error;
use crate::id::{MAX_WORKERS, Slot};
use crate::sys::discard::discard;
use crate::sys::listener::{self, Reuse, harm};

/// The first inherited descriptor (sd_listen_fds(3), `SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// How the names of stored listeners begin.
const OURS: &str = "prefork-server/";

/// All listeners that were passed in. They are close-on-exec and non-blocking.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// From `.socket` units. If there are any, the server listens on them and on nothing else.
    pub(crate) activated: Vec<Activated>,
    /// From an earlier master. Each is used if its address is still wanted.
    pub(crate) stored: Vec<Stored>,
    /// The names of those from an earlier master that are of no use.
    pub(crate) given_up: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Activated {
    pub(crate) address: Address,
    pub(crate) listener: OwnedFd,
}

#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) name: Name,
    pub(crate) address: SocketAddr,
    pub(crate) listener: OwnedFd,
}

/// The name of a stored listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The address as the user wrote it, perhaps with port 0.
    pub(crate) asked: SocketAddr,
    pub(crate) scope: ListenerScope,
}

/// Which workers accept from a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListenerScope {
    Slot(Slot),
    Shared,
}

impl Inherited {
    /// Takes the listeners that were passed to this process. Call it once, before anything is
    /// opened.
    pub(crate) fn take() -> Result<Self, Error> {
        let variable = |name| std::env::var(name).ok();
        let pid = variable("LISTEN_PID");
        let names = variable("LISTEN_FDNAMES");
        let handed = match variable("LISTEN_FDS") {
            Some(count) if is_ours(pid.as_deref(), Pid::this()) => {
                parse(&count, names.as_deref()).map_err(Error::Config)?
            }
            _ => Vec::new(),
        };
        let mut inherited = Self::default();
        for (fd, name) in handed {
            inherited.take_one(fd, &name).map_err(|error| {
                Error::Config(format!(
                    "descriptor {fd} ({name}) of LISTEN_FDS is no listener: {error}"
                ))
            })?;
        }
        Ok(inherited)
    }

    fn take_one(&mut self, fd: RawFd, text: &str) -> io::Result<()> {
        match (text.parse::<Name>(), listener::adopt(fd)) {
            (Ok(name), Ok((Address::Tcp(address), listener))) if name.is_of(address) => {
                self.stored.push(Stored {
                    name,
                    address,
                    listener,
                });
            }
            (Ok(name), found) => {
                let socket = match found {
                    Ok((_, listener)) => listener,
                    Err(_) => listener::adopt_any(fd)?,
                };
                self.give_up(&name, socket);
            }
            (Err(NotOurs), found) => {
                let (address, listener) = found?;
                self.activated.push(Activated { address, listener });
            }
        }
        Ok(())
    }

    /// A worker of the earlier master has closed it, or has used the socket for something else.
    /// Another one can be bound to the address, although the manager still has this one.
    fn give_up(&mut self, name: &Name, socket: OwnedFd) {
        tracing::warn!(
            %name,
            "a listener that an earlier master has left does not listen at its address; it is not \
             used"
        );
        // What follows shows if this has failed.
        let _ = harm::restore(&socket, name.asked, Reuse::Join);
        let _ = listener::close(&socket);
        discard(socket);
        self.given_up.push(name.to_string());
    }

    /// Closes stored listeners whose addresses are not wanted any more, or all if there are
    /// activated ones. Returns the names that the manager should forget, also those of listeners
    /// that are of no use. The manager closes its copies some time after it has forgotten them
    /// (systemd: in another thread), and the new addresses may be on the same port.
    pub(crate) fn give_up_all_but(&mut self, wanted: &[Address]) -> Vec<String> {
        let activated = !self.activated.is_empty();
        let mut names = std::mem::take(&mut self.given_up);
        let unwanted = self
            .stored
            .extract_if(.., |stored| {
                activated || !wanted.contains(&Address::Tcp(stored.name.asked))
            })
            .map(|stored| {
                let name = stored.name.to_string();
                tracing::info!("{name} is not listened on any more");
                if let Err(error) = listener::close(&stored.listener) {
                    tracing::warn!(name, %error, "a listener that is not wanted stays open");
                }
                name
            });
        names.extend(unwanted);
        names
    }

    /// The stored listeners for this address, with the address that they are bound to. If the user
    /// asks twice for port 0, two addresses have one name; then those of the first are returned.
    pub(crate) fn take_stored(&mut self, asked: SocketAddr) -> Option<(SocketAddr, Vec<Stored>)> {
        let first = self
            .stored
            .iter()
            .find(|stored| stored.name.asked == asked)?;
        let address = first.address;
        let taken = self
            .stored
            .extract_if(.., |stored| {
                stored.name.asked == asked && stored.address == address
            })
            .collect();
        Some((address, taken))
    }
}

impl Name {
    /// Whether a listener at this address can have the name.
    fn is_of(&self, address: SocketAddr) -> bool {
        let Self { asked, .. } = self;
        asked.ip() == address.ip() && (asked.port() == 0 || asked.port() == address.port())
    }
}

/// Whether the variables are for this process. A program that the right process has started has the
/// variables too, but not the descriptors.
fn is_ours(pid: Option<&str>, this: Pid) -> bool {
    pid.is_some_and(|pid| pid.parse() == Ok(this.as_raw()))
}

fn parse(count: &str, names: Option<&str>) -> Result<Vec<(RawFd, String)>, String> {
    let refuse = || format!("LISTEN_FDS is `{count}`, which is no number of descriptors");
    let count: u16 = count.parse().map_err(|_| refuse())?;
    let names: Vec<_> = names.map_or(Vec::new(), |names| names.split(':').collect());
    let name = |index: u16| names.get(usize::from(index)).copied().unwrap_or("unknown");
    Ok((0..count)
        .map(|index| (FIRST + RawFd::from(index), name(index).to_owned()))
        .collect())
}

/// Commas replace the colons of the address, because a name must have none.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.asked.to_string().replace(':', ",");
        match self.scope {
            ListenerScope::Slot(slot) => write!(f, "{OURS}slot-{slot}/{address}"),
            ListenerScope::Shared => write!(f, "{OURS}shared/{address}"),
        }
    }
}

/// The name was not given by a master.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotOurs;

impl FromStr for Name {
    type Err = NotOurs;

    fn from_str(name: &str) -> Result<Self, NotOurs> {
        let (scope, address) = name
            .strip_prefix(OURS)
            .and_then(|name| name.split_once('/'))
            .ok_or(NotOurs)?;
        let scope = match scope.strip_prefix("slot-") {
            Some(slot) => ListenerScope::Slot(slot_number(slot).ok_or(NotOurs)?),
            None if scope == "shared" => ListenerScope::Shared,
            None => return Err(NotOurs),
        };
        let asked = address.replace(',', ":").parse().map_err(|_| NotOurs)?;
        Ok(Self { asked, scope })
    }
}

/// Limited, because the master makes all slots below it too.
fn slot_number(text: &str) -> Option<Slot> {
    let slot = text.parse().ok()?;
    (usize::from(slot) < MAX_WORKERS).then_some(Slot(slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// sd_pid_notify_with_fds(3): up to 255 printable ASCII characters and no colon.
    fn may_be_a_name(name: &str) -> bool {
        let allowed = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b':';
        !name.is_empty() && name.len() <= 255 && name.bytes().all(allowed)
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535";
        for asked in ["127.0.0.1:0", "0.0.0.0:80", "[::]:80", longest] {
            for scope in [
                ListenerScope::Shared,
                ListenerScope::Slot(Slot(0)),
                ListenerScope::Slot(Slot(1023)),
            ] {
                let asked = asked.parse().expect("an address");
                let name = Name { asked, scope };
                let text = name.to_string();
                assert!(may_be_a_name(&text), "{text}");
                assert_eq!(text.parse(), Ok(name), "{text}");
            }
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "unknown",
            "app.socket",
            "prefork-server",
            "prefork-server/shared",
            "prefork-server/slot-1024/127.0.0.1,80",
            "prefork-server/slot-/127.0.0.1,80",
            "prefork-server/shared/here",
        ] {
            assert_eq!(name.parse::<Name>(), Err(NotOurs), "{name}");
        }
    }

    #[test]
    fn descriptors_are_numbered_from_3_and_named_in_order() {
        let named = |count, names| parse(count, names).expect("a number");
        assert_eq!(named("0", None), []);
        let unknown = [(3, "unknown".to_owned()), (4, "unknown".to_owned())];
        assert_eq!(named("2", None), unknown);
        let some = [(3, "a".to_owned()), (4, "unknown".to_owned())];
        assert_eq!(named("2", Some("a")), some);
        for count in ["", "-1", "two", "65536"] {
            let error = parse(count, None).expect_err(count);
            assert!(error.contains("LISTEN_FDS"), "{error}");
        }
    }

    #[test]
    fn variables_for_another_process_are_ignored() {
        let this = Pid::from_raw(7);
        assert!(is_ours(Some("7"), this));
        for pid in [None, Some("8"), Some(""), Some("7 ")] {
            assert!(!is_ours(pid, this), "{pid:?}");
        }
    }

    fn stored(asked: &str) -> Stored {
        let any = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        Stored {
            name: Name {
                asked: asked.parse().expect("an address"),
                scope: ListenerScope::Slot(Slot(0)),
            },
            address: any.local_addr().expect("bound"),
            listener: any.into(),
        }
    }

    #[test]
    fn listeners_of_addresses_that_are_not_wanted_are_dropped() {
        let mut inherited = Inherited {
            stored: vec![stored("0.0.0.0:80"), stored("0.0.0.0:81")],
            ..Inherited::default()
        };
        let wanted = ["0.0.0.0:81".parse().expect("an address")];
        let given_up = inherited.give_up_all_but(&wanted);
        assert_eq!(given_up, ["prefork-server/slot-0/0.0.0.0,80"]);
        let other = "0.0.0.0:80".parse().expect("an address");
        assert!(inherited.take_stored(other).is_none());
        let kept = "0.0.0.0:81".parse().expect("an address");
        let (_, taken) = inherited.take_stored(kept).expect("kept");
        assert_eq!((taken.len(), inherited.stored.len()), (1, 0));
    }

    #[test]
    fn two_listeners_stored_under_one_name_are_two_addresses() {
        let asked = "127.0.0.1:0";
        let mut inherited = Inherited {
            stored: vec![stored(asked), stored(asked)],
            ..Inherited::default()
        };
        let asked = asked.parse().expect("an address");
        let (first, _) = inherited.take_stored(asked).expect("one");
        let (second, _) = inherited.take_stored(asked).expect("another");
        assert_ne!(first, second);
        assert!(inherited.take_stored(asked).is_none());
    }
}
