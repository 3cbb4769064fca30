//! Other people's servers, built from sources beside the bench if their compiler is here.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};

use super::process::{Trouble, which};

/// Downloading and compiling for the first time took 40 s for Go and four minutes for Rust, on two
/// busy cores.
const BUILD_MAX: Duration = Duration::from_secs(1200);

const TICK_MS: u8 = 50;

/// The program of the Go module that `sources` (names and texts) make, kept in `dir` so that the
/// next run finds it again.
pub(crate) fn go_program(dir: &Path, sources: &[(String, String)]) -> Result<PathBuf, Trouble> {
    let not_found = || Trouble::NotSupported("go not found".into());
    let go = which("go").ok_or_else(not_found)?;
    write(dir, sources)?;
    let mut build = Command::new(go);
    build.args(["build", "-mod=mod", "-o", "server", "."]);
    run(build.current_dir(dir))?;
    Ok(dir.join("server"))
}

/// Puts the sources where a compiler finds them, and leaves alone what is there already: cargo
/// builds anew what has been written anew.
pub(crate) fn write(dir: &Path, sources: &[(String, String)]) -> Result<(), Trouble> {
    for (name, text) in sources {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("it is in `dir`"))?;
        if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            continue;
        }
        fs::write(path, text)?;
    }
    Ok(())
}

/// Runs a compiler in its directory, where its log stays. What it cannot build is not supported
/// here, with the last line it said.
pub(crate) fn run(build: &mut Command) -> Result<(), Trouble> {
    let dir = build.get_current_dir().expect("a build has a directory");
    let log = dir.join("build.log");
    let name = build.get_program().to_string_lossy().into_owned();
    let mut compiler = build
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?)
        .spawn()?;
    let deadline = Instant::now() + BUILD_MAX;
    let status = loop {
        if let Some(status) = compiler.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            compiler.kill()?;
        }
        poll(&mut [], PollTimeout::from(TICK_MS))?;
    };
    if !status.success() {
        let log = fs::read_to_string(&log)?;
        let why = log.lines().last().unwrap_or_default();
        return Err(Trouble::NotSupported(format!("{name}: {status}: {why}")));
    }
    Ok(())
}

/// The arguments of an nginx whose files are all in `home`. What differs between benches: lines of
/// the configuration at its top, in `http` and in `server`, and the text that it returns.
pub(crate) fn nginx(home: &Path, [main, http, server, text]: [&str; 4]) -> io::Result<Vec<String>> {
    let home = home.display().to_string();
    let configuration = format!(
        "{main} pid {home}/nginx.pid; error_log {home}/error.log;
events {{ worker_connections 16384; }}
http {{
  access_log off; {http}
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  server {{
    {server}
    location / {{ default_type text/plain; return 200 \"{text}\"; }}
  }}
}}
"
    );
    let (path, log) = (format!("{home}/nginx.conf"), format!("{home}/error.log"));
    fs::write(&path, configuration)?;
    Ok(["-c", &path, "-p", &home, "-e", &log]
        .map(str::to_owned)
        .into())
}
