//! Asks and changes a running `HAProxy` by its sockets. What it answers to a command counts for nothing: it is asked again
//! what it has.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::programs::haproxy::certificate::shown_fingerprint;
use crate::programs::haproxy::map::{self, Entries};
use crate::programs::haproxy::runtime::{Command, Declared, Observed, ServerName, parse_servers};

/// A worker, by its socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process<'a> {
    pub(crate) admin: &'a Path,
}

/// So much fits into one request: the process reads it into one buffer, of 16 KiB by default.
const REQUEST: usize = 8 << 10;

impl Process<'_> {
    /// What it has of all that is declared.
    pub(crate) fn observe(&self, declared: &Declared) -> io::Result<Observed> {
        let mut observed = Observed::default();
        if !declared.backends.is_empty() {
            observed.backends = parse_servers(&self.send("show servers state")?, declared);
        }
        for path in declared.maps.keys() {
            let answer = self.send(&format!("show map {}", escaped(path)))?;
            if !answer.trim_start().starts_with("Unknown map") {
                observed.maps.insert(path.clone(), map::parse_shown(&answer));
            }
        }
        for path in declared.certificates.keys() {
            let answer = self.send(&format!("show ssl cert {}", escaped(path)))?;
            if let Some(fingerprint) = shown_fingerprint(&answer) {
                observed.certificates.insert(path.clone(), fingerprint.to_owned());
            }
        }
        Ok(observed)
    }

    /// Runs all commands, and returns the servers that still have connections.
    pub(crate) fn run(&self, commands: &[Command]) -> io::Result<BTreeSet<ServerName>> {
        let mut busy = BTreeSet::new();
        let mut lines = String::new();
        for command in commands {
            if let Command::Line(line) = command {
                if lines.len() + line.len() > REQUEST {
                    self.send(&std::mem::take(&mut lines))?;
                }
                if !lines.is_empty() {
                    lines.push(';');
                }
                lines.push_str(line);
                continue;
            }
            if !lines.is_empty() {
                self.send(&std::mem::take(&mut lines))?;
            }
            match command {
                Command::Line(_) => {}
                Command::Remove(server) => {
                    let name = format!("{}/{}", server.0, server.1);
                    let request = format!("set server {name} state maint;del server {name}");
                    if self.send(&request)?.contains("connections attached") {
                        busy.insert(server.clone());
                    }
                }
                Command::ReplaceMap { path, entries } => self.replace_map(path, entries)?,
                Command::SetCertificate { path, blocks } => {
                    let path = escaped(path);
                    // Another client may have begun to change it.
                    self.send(&format!("abort ssl cert {path}"))?;
                    self.send(&format!("set ssl cert {path} <<\n{blocks}"))?;
                    self.send(&format!("commit ssl cert {path}"))?;
                }
            }
        }
        if !lines.is_empty() {
            self.send(&lines)?;
        }
        Ok(busy)
    }

    /// All entries at once: requests find the former ones until the last is there.
    fn replace_map(&self, path: &str, entries: &Entries) -> io::Result<()> {
        let path = escaped(path);
        let answer = self.send(&format!("prepare map {path}"))?;
        let version = answer.rsplit(' ').next().unwrap_or_default().trim();
        let Ok(version) = version.parse::<u32>() else { return Err(io::Error::other(answer)) };
        let mut payload = String::new();
        let add = |payload: &mut String| {
            let request = format!("add map @{version} {path} <<\n{payload}");
            payload.clear();
            self.send(&request).map(|_| ())
        };
        for (key, value) in entries {
            if payload.len() + key.len() + value.len() > REQUEST {
                add(&mut payload)?;
            }
            payload.push_str(key);
            payload.push(' ');
            payload.push_str(value);
            payload.push('\n');
        }
        if !payload.is_empty() {
            add(&mut payload)?;
        }
        self.send(&format!("commit map @{version} {path}")).map(|_| ())
    }

    fn send(&self, request: &str) -> io::Result<String> {
        converse(self.admin, request)
    }
}

/// Sends a request to a socket, and reads the answer to its end.
fn converse(socket: &Path, request: &str) -> io::Result<String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    const MOST: u64 = 256 << 20;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // What is sent with a payload ends with an empty line.
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut answer = Vec::new();
    match stream.take(MOST).read_to_end(&mut answer) {
        // One that starts anew hangs up.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).trim().to_owned()),
    }
}

/// A path as an argument of a command.
fn escaped(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for c in path.chars() {
        if [' ', ';', '\\'].contains(&c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
