//! Checks what a start needs, and changes nothing: a server that runs with the same settings does
//! not notice it.

use std::io;
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use crate::address::Address;
use crate::config::Config;
use crate::error::Error;
use crate::master::listeners::bind_error;
use crate::master::start;
use crate::sys::listener;

pub(crate) fn check(mut config: Config) -> Result<(), Error> {
    start::choose_credentials(&mut config).map_err(Error::Config)?;
    let mut addresses: Vec<&Address> = Vec::new();
    let workers = config.wanted().map(|(address, _)| address);
    for address in workers.chain(&config.admin) {
        let checked = match address {
            _ if addresses.contains(&address) => Err(io::ErrorKind::AddrInUse.into()),
            &Address::Tcp(tcp) => listener::check_tcp(tcp),
            Address::Unix(path) => listener::unix::check(path),
        };
        checked.map_err(|error| bind_error(address, error))?;
        if !matches!(address, Address::Tcp(address) if address.port() == 0) {
            addresses.push(address);
        }
    }
    let Some(path) = &config.pid_file else {
        return Ok(());
    };
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    access(parent, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| {
        let path = path.display();
        Error::Config(format!(
            "cannot write the pid file {path}: {}",
            error.desc()
        ))
    })
}
