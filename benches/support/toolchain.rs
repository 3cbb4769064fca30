//! Other people's servers, built from sources beside the bench if their compiler is here.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::pem::Pem;
use super::process::Trouble;

/// The program of the Go module that `sources` (names and texts) make, kept in `dir` so that the
/// next run finds it again.
pub(crate) fn go_program(dir: &Path, sources: &[(&str, &str)]) -> Result<PathBuf, Trouble> {
    let mut build = Command::new(found("go")?);
    for (name, text) in sources {
        write(&dir.join(name), text)?;
    }
    build.args(["build", "-mod=mod", "-o", "server", "."]);
    run(build.current_dir(dir))?;
    Ok(dir.join("server"))
}

/// Puts a source where a compiler finds it, and leaves alone what is there already: cargo builds
/// anew what has been written anew.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Trouble> {
    fs::create_dir_all(path.parent().expect("it is in a project"))?;
    if !fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
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
    build.stdin(Stdio::null()).stdout(Stdio::null());
    let status = build.stderr(File::create(&log)?).status()?;
    if !status.success() {
        let log = fs::read_to_string(&log)?;
        let why = log.lines().last().unwrap_or_default();
        return Err(Trouble::NotSupported(format!("{name}: {status}: {why}")));
    }
    Ok(())
}

/// An nginx whose files are all in `home`. What differs between benches: lines of the configuration
/// at its top, in `http` and in `server`, and what it does for a request.
pub(crate) fn nginx(
    home: &Path,
    [main, http, server, location]: [&str; 4],
) -> Result<Command, Trouble> {
    let program = found("nginx")?;
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
    location / {{ {location} }}
  }}
}}
"
    );
    let (path, log) = (format!("{home}/nginx.conf"), format!("{home}/error.log"));
    fs::write(&path, configuration)?;
    let mut nginx = Command::new(program);
    nginx.args(["-c", &path, "-p", &home, "-e", &log]);
    Ok(nginx)
}

/// The end of nginx's `listen`, and what follows: HTTP/1 and HTTP/2 within TLS.
pub(crate) fn nginx_tls(pem: &Pem) -> String {
    let (certificate, key) = (pem.certificate.display(), pem.key.display());
    // Before 1.23.4 nginx does not speak 1.3 unasked.
    format!(
        "ssl http2; ssl_certificate {certificate}; ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3"
    )
}

/// What nginx does for a request: it responds with this text.
pub(crate) fn nginx_text(text: &str) -> String {
    format!("default_type text/plain; return 200 \"{text}\";")
}

/// Where a program is, if it is on the PATH.
pub(crate) fn found(program: &str) -> Result<PathBuf, Trouble> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut paths = env::split_paths(&path).map(|dir| dir.join(program));
    let missing = || Trouble::NotSupported(format!("{program} not found"));
    paths.find(|path| path.is_file()).ok_or_else(missing)
}
