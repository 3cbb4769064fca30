//! Checks what a start needs, and changes nothing: a server that runs with the same settings does
//! not notice it.

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
        if let Some((other, first)) = earlier.find(|(other, _)| other.excludes(address)) {
            return Err(Error::Config(format!(
                "cannot listen on both {other} ({first}) and {address} ({setting}); leave one out \
                 or choose another port"
            )));
        }
    }
    Ok(())
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
        let why = "cannot listen on both 127.0.0.1:443 (served by the app) and 127.0.0.1:443";
        assert!(told(&config).starts_with(why), "{}", told(&config));
    }
}
