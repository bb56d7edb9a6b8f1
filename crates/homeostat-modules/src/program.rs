//! Runs `modprobe`: the only program that this crate starts.
#![expect(clippy::disallowed_methods, reason = "the one module of this crate that starts programs")]

use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::key::ModuleName;

/// A driver may look for its devices while it is loaded. One that hangs cannot be killed, and is left alone.
const LONGEST: Duration = Duration::from_mins(1);

/// Loads a module with what it depends on.
pub(crate) fn load(program: &Path, name: &ModuleName) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(["--", name.as_str()]);
    // Words that are looked for must not be translated.
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.current_dir("/").stdin(Stdio::null());
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name("modprobe".to_owned());
    thread.spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(command.output());
    })?;
    receiver.recv_timeout(LONGEST).unwrap_or_else(|_| {
        let message = format!("it did not end within {LONGEST:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    })
}
