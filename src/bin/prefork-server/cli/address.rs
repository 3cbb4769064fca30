//! Where to listen, as people write it.

use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

/// What `sun_path` of `unix(7)` holds, without the NUL at its end.
const UNIX_PATH_MAX: usize = 107;

/// An address to bind a listener to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Port 0 takes a free one.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A host name stands for its first IPv4 address, else for its first: which of its addresses comes
/// first depends on the machine, and `localhost` should not.
pub(super) fn parse(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path);
    }
    if let Ok(address) = text.parse() {
        return Ok(Address::Tcp(address));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let bare_port = text.parse::<u16>().is_ok();
    if host.is_empty() || host == "*" || bare_port {
        let port = if port.is_empty() { text } else { port };
        return Err(format!(
            "say which interface: 127.0.0.1:{port} for this machine only, [::]:{port} or \
             0.0.0.0:{port} for every one"
        ));
    }
    if text.contains("//") {
        return Err("an address is no URL: write it as 127.0.0.1:8080".into());
    }
    if text.starts_with('/') {
        return Err(format!("a path needs its prefix: unix:{text}"));
    }
    if host.contains(':') && !host.starts_with('[') {
        return Err("put an IPv6 address in brackets: [::1]:8080".into());
    }
    if port.parse::<u16>().is_err() {
        return Err(format!(
            "a port from 0 to 65535 must follow the host: {host}:8080"
        ));
    }
    look_up(text)
}

fn unix(path: &str) -> Result<Address, String> {
    if path.is_empty() {
        return Err("a path must follow: unix:/run/app.sock".into());
    }
    if path.len() > UNIX_PATH_MAX {
        return Err(format!(
            "the path may have {UNIX_PATH_MAX} bytes: unix:/run/app.sock"
        ));
    }
    Ok(Address::Unix(path.into()))
}

fn look_up(text: &str) -> Result<Address, String> {
    let found: Vec<SocketAddr> = text
        .to_socket_addrs()
        .map_err(|error| format!("cannot look up the host: {error}"))?
        .collect();
    let address = found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first());
    address
        .copied()
        .map(Address::Tcp)
        .ok_or_else(|| "the host has no address".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_shown() {
        for text in [
            "127.0.0.1:8080",
            "0.0.0.0:0",
            "[::]:80",
            "[::1]:65535",
            "unix:/run/app.sock",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_host_name_stands_for_its_ipv4_address() {
        assert_eq!(
            parse("localhost:8080").unwrap().to_string(),
            "127.0.0.1:8080"
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_the_way_out() {
        for (text, way_out) in [
            (":8080", "[::]:8080 or 0.0.0.0:8080"),
            ("8080", "127.0.0.1:8080"),
            ("*:80", "0.0.0.0:80"),
            ("", "127.0.0.1:"),
            ("::1:8080", "[::1]:8080"),
            ("http://localhost:80", "127.0.0.1:8080"),
            ("localhost", "localhost:8080"),
            ("localhost:http", "localhost:8080"),
            ("localhost:65536", "localhost:8080"),
            ("/run/app.sock", "unix:/run/app.sock"),
            ("unix:", "unix:/run/app.sock"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(way_out), "{text}: {error}");
        }
        let long = format!("unix:/{}", "a".repeat(UNIX_PATH_MAX));
        assert!(parse(&long).unwrap_err().contains("107 bytes"));
        assert!(parse(&long[..long.len() - 1]).is_ok());
    }
}
