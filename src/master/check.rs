//! Checks what a start needs, and changes nothing: a server that runs with the same settings does
//! not notice it.

use std::path::{Path, PathBuf};

use crate::address::Address;
use crate::config::{Config, ListenerUse};
use crate::error::Error;
use crate::master::listeners::bind_error;
use crate::master::start;
use crate::sys::credentials::may_make;
use crate::sys::listener;

pub(crate) fn check(mut config: Config) -> Result<(), Error> {
    start::choose_credentials(&mut config).map_err(Error::Config)?;
    check_distinct(&config)?;
    let workers = config.wanted().map(|(address, _)| address);
    for address in workers.chain(&config.admin) {
        let checked = match address {
            &Address::Tcp(tcp) => listener::check_tcp(tcp),
            Address::Unix(path) => listener::unix::check(path),
        };
        checked.map_err(|error| bind_error(address, error))?;
    }
    let Some(path) = &config.pid_file else {
        return Ok(());
    };
    may_make(path).map_err(|error| {
        let path = path.display();
        Error::Config(format!(
            "cannot write the pid file {path}: {}",
            error.desc()
        ))
    })
}

/// Fails if two settings name addresses of which only one can be bound.
pub(super) fn check_distinct(config: &Config) -> Result<(), Error> {
    let workers = config.wanted().map(|(address, used_for)| match used_for {
        ListenerUse::App => (address, "served by the app"),
        ListenerUse::Redirect => (address, "redirect_to_https"),
    });
    let admin = config.admin.iter().map(|address| (address, "admin"));
    let named: Vec<_> = workers.chain(admin).collect();
    for (at, (address, setting)) in named.iter().enumerate() {
        let mut earlier = named[..at].iter();
        if let Some((other, first)) = earlier.find(|(other, _)| excludes(other, address)) {
            let (note, what) = match address {
                Address::Tcp(_) => ("", "port"),
                Address::Unix(_) => (", which are one file", "path"),
            };
            let why = match (other == address, first == setting) {
                (true, true) => format!("{address} is given twice ({setting})"),
                (true, false) => format!("{address} is given twice ({first}, {setting})"),
                (false, _) => {
                    format!(
                        "cannot listen on both {other} ({first}) and {address} ({setting}){note}"
                    )
                }
            };
            return Err(Error::Config(format!(
                "{why}; leave one out or choose another {what}"
            )));
        }
    }
    Ok(())
}

/// Whether a server cannot listen on both: they are the same, or one of them stands for all
/// addresses of the other's family and has the same port.
fn excludes(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp(one), Address::Tcp(other)) => {
            let is_one_all = one.ip().is_unspecified() || other.ip().is_unspecified();
            one.port() == other.port()
                && one.port() != 0
                && (one == other || (is_one_all && one.is_ipv4() == other.is_ipv4()))
        }
        (Address::Unix(one), Address::Unix(other)) => place(one) == place(other),
        _ => false,
    }
}

/// The file that a path leads to. It need not exist, and its directory need not either.
fn place(path: &Path) -> PathBuf {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new(".")).canonicalize();
    match (directory, path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_settings_that_name_one_address_are_told() {
        let address = |text: &str| text.parse::<Address>().expect("an address");
        let mut config = Config {
            addresses: vec![address("127.0.0.1:443"), address("127.0.0.1:0")],
            redirects: vec![address("127.0.0.1:80"), address("127.0.0.1:0")],
            admin: vec![address("unix:/run/admin"), address("127.0.0.1:0")],
            ..Config::default()
        };
        check_distinct(&config).expect("each can be bound");
        let told = |config: &Config| {
            let error = check_distinct(config).expect_err("one address has two settings");
            error.to_string()
        };
        config.admin.push(address("0.0.0.0:80"));
        let why = "cannot listen on both 127.0.0.1:80 (redirect_to_https) and 0.0.0.0:80 (admin)";
        assert!(told(&config).starts_with(why), "{}", told(&config));
        config.addresses.push(address("127.0.0.1:443"));
        let why = "127.0.0.1:443 is given twice (served by the app); leave one out or choose \
                   another port";
        assert_eq!(told(&config), why);
    }

    #[test]
    fn addresses_exclude_each_other_if_one_has_all_that_the_other_has() {
        for (one, other, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("[::]:80", "[::1]:80", true),
            ("unix:/s", "unix:/s", true),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("0.0.0.0:80", "[::]:80", false),
            ("unix:/s", "0.0.0.0:80", false),
        ] {
            let [first, second] = [one, other].map(|text: &str| text.parse().expect("an address"));
            assert_eq!(excludes(&first, &second), expected, "{one} {other}");
            assert_eq!(excludes(&second, &first), expected, "{other} {one}");
        }
    }

    #[test]
    fn two_spellings_of_a_socket_file_are_one_address() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("it exists");
        let unix = |end: &str| Address::Unix(dir.join(end));
        let name = dir.file_name().expect("it has one").display();
        let spelled = unix(&format!("../{name}/a"));
        let told = |one: &Address, other: &Address| {
            let config = Config {
                addresses: vec![one.clone()],
                admin: vec![other.clone()],
                ..Config::default()
            };
            check_distinct(&config).map_err(|error| error.to_string())
        };
        let (a, b) = (unix("a"), unix("b"));
        assert_eq!(told(&a, &b), Ok(()));
        assert_eq!(told(&unix("missing/a"), &unix("missing/b")), Ok(()));
        let end = "leave one out or choose another path";
        assert_eq!(
            told(&a, &a),
            Err(format!(
                "{a} is given twice (served by the app, admin); {end}"
            ))
        );
        assert_eq!(
            told(&a, &spelled),
            Err(format!(
                "cannot listen on both {a} (served by the app) and {spelled} (admin), which are \
                 one file; {end}"
            ))
        );
    }
}
