//! HAProxy before the server.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::programs::found;

/// HAProxy in one process. Dropped, it is killed and reaped.
pub(super) struct Haproxy {
    process: Child,
    pub(super) plain: SocketAddr,
    pub(super) secure: SocketAddr,
}

impl Haproxy {
    /// Before this server, to which it speaks this version. It inherits its listeners, so it
    /// needs no free ports. The error says that it is not installed.
    pub(super) fn start(home: &Path, server: SocketAddr, version: &str) -> Result<Self, String> {
        let haproxy = found(&["haproxy", "/usr/sbin/haproxy"])?;
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (plain, secure) = (listen(), listen());
        let addresses = [&plain, &secure].map(|it| it.local_addr().expect("it is bound"));
        fs::write(
            home.join("haproxy.cfg"),
            configuration(home, server, version),
        )
        .expect("a file");
        let log = fs::File::create(home.join("haproxy.log")).expect("a file");
        let script = "exec \"$0\" -db -f \"$1\" 3<&0 4<&1 </dev/null >&2";
        let process = Command::new("sh")
            .args(["-c", script])
            .arg(haproxy)
            .arg(home.join("haproxy.cfg"))
            .stdin(Stdio::from(OwnedFd::from(plain)))
            .stdout(Stdio::from(OwnedFd::from(secure)))
            .stderr(log)
            .spawn()
            .expect("there is sh");
        let [plain, secure] = addresses;
        Ok(Self {
            process,
            plain,
            secure,
        })
    }
}

fn configuration(home: &Path, server: SocketAddr, version: &str) -> String {
    let home = home.display();
    // The server offers no WebSockets in HTTP/2. HAProxy translates any other upgrade too, also the
    // one to HTTP/2 that Java's client asks for, and then responds with 502.
    let words = match version {
        "HTTP/2.0" => "proto h2 ws h1",
        _ => "",
    };
    format!(
        "global
  log fd@2 format raw local0
defaults
  mode http
  log global
  option httplog
  timeout connect 20s
  timeout client 60s
  timeout server 60s
  timeout tunnel 60s
frontend plain
  bind fd@3
  default_backend server
  http-request del-header connection if {{ req.hdr(upgrade) -i h2c }}
  http-request del-header upgrade if {{ req.hdr(upgrade) -i h2c }}
frontend secure
  bind fd@4 ssl crt {home}/both.pem alpn h2,http/1.1
  default_backend server
  http-request del-header connection if {{ req.hdr(upgrade) -i h2c }}
  http-request del-header upgrade if {{ req.hdr(upgrade) -i h2c }}
backend server
  http-request del-header connection if {{ req.hdr(upgrade) -i h2c }}
  http-request del-header upgrade if {{ req.hdr(upgrade) -i h2c }}
  server one {server} {words}
"
    )
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
