//! Runs `nft`: the only program that this crate starts.
#![expect(clippy::disallowed_methods, reason = "the one module of this crate that starts programs")]

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use homeostat_core::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::oneshot;

/// A ruleset of a million elements takes seconds. One that includes a pipe or a device takes for ever, and
/// everything else would wait with it.
const LONGEST: Duration = Duration::from_mins(1);

/// Runs `nft` on the calling thread's network, with this text on its standard input.
pub(crate) fn run(
    program: &OsStr,
    directory: &Path,
    arguments: &[&str],
    text: &str,
) -> io::Result<Output> {
    NftProcess::start(program, directory, arguments)?.finish(text)
}

/// An `nft` that waits for its text.
pub(crate) struct NftProcess(Child);

impl NftProcess {
    pub(crate) fn start(program: &OsStr, directory: &Path, arguments: &[&str]) -> io::Result<Self> {
        let command = Command::new(program)
            .args(arguments)
            .current_dir(directory)
            // Words that are looked for must not be translated.
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        command.map(NftProcess)
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Gives it the text, and waits for its end.
    pub(crate) fn finish(self, text: &str) -> io::Result<Output> {
        self.finish_within(text, LONGEST)
    }

    /// The same, with each line that it prints: that may be too much to keep.
    pub(crate) fn finish_with_lines(
        self,
        text: &str,
        each: &mut (dyn FnMut(&str) + Send),
    ) -> io::Result<()> {
        let read = |stdout| {
            BufReader::new(stdout).lines().try_for_each(|line| line.map(|line| each(&line)))
        };
        self.wait(text, LONGEST, read).map(|_| ())
    }

    fn finish_within(self, text: &str, longest: Duration) -> io::Result<Output> {
        let mut stdout = Vec::new();
        let read = |mut printed: ChildStdout| printed.read_to_end(&mut stdout).map(|_| ());
        let (status, stderr) = self.wait(text, longest, read)?;
        Ok(Output { status, stdout, stderr })
    }

    /// Gives it the text, reads what it prints, and kills it if it takes longer.
    fn wait(
        mut self,
        text: &str,
        longest: Duration,
        read: impl FnOnce(ChildStdout) -> io::Result<()>,
    ) -> io::Result<(ExitStatus, Vec<u8>)> {
        let Child { stdin, stdout, stderr, .. } = &mut self.0;
        let (stdin, stdout, stderr) = (stdin.take(), stdout.take(), stderr.take());
        let process = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty())?;
        let (read, status, errors) = std::thread::scope(|scope| {
            // On a thread of its own: `nft` may print before it has read all.
            scope.spawn(move || {
                if let Some(mut stdin) = stdin {
                    // One that ends early says why on its standard error.
                    let _ = stdin.write_all(text.as_bytes());
                }
            });
            let errors = scope.spawn(move || stderr.map_or_else(Vec::new, read_errors));
            scope.spawn(|| {
                if !ends_within(&process, longest) {
                    // It may have ended just now.
                    let _ = pidfd_send_signal(&process, Signal::KILL);
                }
            });
            let read = stdout.map_or(Ok(()), read);
            (read, self.0.wait(), errors.join().unwrap_or_default())
        });
        let status = status?;
        if status.signal() == Some(Signal::KILL.as_raw()) {
            let message = format!("it did not end within {longest:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        read.map(|()| (status, errors))
    }
}

/// Reads to the end, since `nft` would die of SIGPIPE otherwise, and keeps a part: it repeats each line that it
/// refuses, however long that is.
fn read_errors(stderr: ChildStderr) -> Vec<u8> {
    const MOST: usize = 1 << 20;
    const MOST_OF_A_LINE: u64 = 4096;
    let (mut stderr, mut errors) = (BufReader::new(stderr), Vec::new());
    while errors.len() < MOST
        && let Ok(1..) = stderr.by_ref().take(MOST_OF_A_LINE).read_until(b'\n', &mut errors)
    {
        if !errors.ends_with(b"\n") {
            errors.push(b'\n');
            // An error here occurs again above, and is reported there.
            let _ = stderr.skip_until(b'\n');
        }
    }
    let _ = io::copy(&mut stderr, &mut io::sink());
    errors
}

fn ends_within(process: &impl AsFd, longest: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    let longest = Timespec::try_from(longest).ok();
    // A wait that is interrupted ends early: better than one that never ends.
    matches!(poll(&mut fds, longest.as_ref()), Ok(count) if count > 0)
}

/// Does work on a thread of its own; only the caller waits for it.
pub(crate) async fn run_on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("nft".to_owned());
    thread.spawn(move || {
        // The caller may be gone.
        let _ = sender.send(work());
    })?;
    receiver.await.map_err(|_| io::Error::other("it ended without an answer"))
}

/// Why `nft` could not be run, for a report.
pub(crate) fn not_started(error: &(dyn std::error::Error + 'static)) -> Failure {
    let Failure { error, retry, .. } = Failure::soon(error);
    Failure::new(format!("`nft` cannot be started: {error}"), retry)
}

/// Comments on tables, chains and sets, `-t` and texts from standard input are all in it.
pub(crate) const OLDEST: [u32; 3] = [1, 0, 0];

/// From what `nft --version` prints: `nftables v1.0.6 (Lester Gooch #5)`.
pub(crate) fn version(words: &str) -> Option<[u32; 3]> {
    let mut words = words.split_whitespace().filter(|word| word.contains('.'));
    let mut parts = words.find_map(|word| word.strip_prefix('v'))?.split('.');
    let mut next = || parts.next().map_or(Some(0), |part| part.parse().ok());
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_never_ends_is_ended() {
        let arguments = ["-f", "/dev/null"];
        let running = NftProcess::start(OsStr::new("tail"), Path::new("/"), &arguments).unwrap();
        let error = running.finish_within("", Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "it did not end within 10ms");
    }

    #[test]
    fn errors_are_read_to_the_end_and_kept_in_part() {
        let stderr_of = |script: &str| {
            let output = run(OsStr::new("sh"), Path::new("/"), &["-c", script], "").unwrap();
            assert!(output.status.success(), "it was cut off: {}", output.status);
            String::from_utf8(output.stderr).unwrap()
        };
        assert!(stderr_of("yes no | head -c 3000000 >&2").len() < 2 << 20);
        let long_line =
            stderr_of("{ yes no | head -c 3000000 | tr '\\n' ' '; echo; echo end; } >&2");
        assert!(long_line.ends_with("\nend\n") && long_line.len() < 10_000);
    }

    #[test]
    fn what_a_program_prints_is_read_line_by_line() {
        let running = NftProcess::start(OsStr::new("cat"), Path::new("/"), &[]).unwrap();
        let mut lines = Vec::new();
        running.finish_with_lines("a\nb\n", &mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["a", "b"]);
    }

    #[test]
    fn all_that_a_program_prints_is_returned() {
        let output = run(OsStr::new("cat"), Path::new("/"), &[], "a\nb\n").unwrap();
        assert_eq!(output.stdout, b"a\nb\n");
    }
}

#[cfg(test)]
mod thread_tests {
    use super::*;

    fn done<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn others_go_on_while_work_is_done() {
        let (go, wait) = std::sync::mpsc::channel();
        let work = run_on_thread(move || wait.recv().is_ok());
        // The work ends only because another task on the waiting thread goes on.
        let other = async move { go.send(()).is_ok() };
        let (worked, went_on) = done(async { tokio::join!(work, other) });
        assert!(worked.unwrap() && went_on);
    }

    #[test]
    fn work_that_panics_is_an_error() {
        let worked: io::Result<()> = done(run_on_thread(|| panic!("a bug")));
        assert_eq!(worked.unwrap_err().to_string(), "it ended without an answer");
    }
}

#[cfg(test)]
mod version_tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_the_program_prints() {
        for (words, expected) in [
            ("nftables v1.0.6 (Lester Gooch #5)\n", Some([1, 0, 6])),
            ("nftables v1.1 (Commodore Bullmoose)", Some([1, 1, 0])),
            ("nftables v0.9.3 (Topsy)", Some([0, 9, 3])),
            ("echo (GNU coreutils) 9.1", None),
            ("", None),
        ] {
            assert_eq!(version(words), expected, "{words}");
        }
    }

    #[test]
    fn an_old_version_is_older_than_the_oldest() {
        assert!(version("nftables v0.9.8 (E.D.S.)").is_some_and(|old| old < OLDEST));
        assert!(version("nftables v1.0.2 (Lester Gooch)").is_some_and(|new| new >= OLDEST));
    }
}
