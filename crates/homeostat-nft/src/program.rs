//! Runs `nft`: the only program that this crate starts.
#![expect(clippy::disallowed_methods, reason = "the one module of this crate that starts programs")]

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A ruleset of a million elements takes seconds. One that includes a pipe or a device takes for ever, and
/// everything else would wait with it.
const LONGEST: Duration = Duration::from_mins(1);

/// Runs `nft` on the calling thread's network, with this text on its standard input.
pub(crate) fn run(
    program: &OsStr,
    directory: &Path,
    arguments: &[&OsStr],
    text: &str,
) -> io::Result<Output> {
    Running::start(program, directory, arguments)?.finish(text)
}

/// An `nft` that waits for its text.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(
        program: &OsStr,
        directory: &Path,
        arguments: &[&OsStr],
    ) -> io::Result<Self> {
        let command = Command::new(program)
            .args(arguments)
            .current_dir(directory)
            // Words that are looked for must not be translated.
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        command.map(Running)
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Gives it the text, and waits for its end.
    pub(crate) fn finish(self, text: &str) -> io::Result<Output> {
        self.finish_within(text, LONGEST)
    }

    fn finish_within(mut self, text: &str, longest: Duration) -> io::Result<Output> {
        let stdin = self.0.stdin.take();
        let process = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty())?;
        let output = std::thread::scope(|scope| {
            // On a thread of its own: `nft` may print before it has read all.
            scope.spawn(move || {
                if let Some(mut stdin) = stdin {
                    // One that ends early says why on its standard error.
                    let _ = stdin.write_all(text.as_bytes());
                }
            });
            scope.spawn(|| {
                if !ends_within(&process, longest) {
                    // It may have ended just now.
                    let _ = pidfd_send_signal(&process, Signal::KILL);
                }
            });
            self.0.wait_with_output()
        })?;
        if output.status.signal() == Some(Signal::KILL.as_raw()) {
            let message = format!("it did not end within {longest:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        Ok(output)
    }
}

fn ends_within(process: &impl AsFd, longest: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    let longest = Timespec::try_from(longest).ok();
    // A wait that is interrupted ends early: better than one that never ends.
    matches!(poll(&mut fds, longest.as_ref()), Ok(count) if count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_never_ends_is_ended() {
        let arguments = ["-f", "/dev/null"].map(OsStr::new);
        let running = Running::start(OsStr::new("tail"), Path::new("/"), &arguments).unwrap();
        let error = running.finish_within("", Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "it did not end within 10ms");
    }

    #[test]
    fn a_program_that_ends_tells_all() {
        let output = run(OsStr::new("cat"), Path::new("/"), &[], "a\nb\n").unwrap();
        assert_eq!(output.stdout, b"a\nb\n");
    }
}
