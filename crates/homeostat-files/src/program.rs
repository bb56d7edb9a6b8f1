//! Starts the programs that judge a set, and those that reload it.
#![expect(clippy::disallowed_methods, reason = "the one module of this crate that starts programs")]

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process_group, pidfd_open, prlimit,
};
use rustix::time::{ClockId, clock_gettime};

use crate::trusted;

/// A program that judges a configuration takes a second at most.
const LONGEST: Duration = Duration::from_secs(20);
/// So much of what it says is kept.
const MOST_WORDS: usize = 64 << 10;
/// So much memory it may have.
const MOST_MEMORY: u64 = 4 << 30;

/// How a program ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) words: String,
}

/// A program that runs.
pub(crate) struct Running(Child);

/// The user that owns nothing, on every machine.
const NOBODY: u32 = 65534;

/// Starts a program on the calling thread's mounts and network, without environment and input. One that others than root
/// could replace is refused.
pub(crate) fn start(arguments: &[String]) -> io::Result<Running> {
    spawn(&mut command(arguments)?)
}

/// The same, as a user that owns nothing and is in no group.
pub(crate) fn start_as_nobody(arguments: &[String]) -> io::Result<Running> {
    spawn(command(arguments)?.uid(NOBODY).gid(NOBODY))
}

fn command(arguments: &[String]) -> io::Result<Command> {
    let [program, arguments @ ..] = arguments else {
        return Err(io::Error::other("no program is named"));
    };
    trusted::check(Path::new(program))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        // Words that are looked for must not be translated.
        .env("LC_ALL", "C")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

fn spawn(command: &mut Command) -> io::Result<Running> {
    let child = command.spawn()?;
    let most = Rlimit { current: Some(MOST_MEMORY), maximum: Some(MOST_MEMORY) };
    // It may have ended already.
    let _ = prlimit(Some(Pid::from_child(&child)), Resource::As, most);
    Ok(Running(child))
}

impl Running {
    /// Waits for its end. One that takes too long is killed; where it is the first process of its namespace, all that it
    /// started end with it.
    pub(crate) fn finish(self) -> io::Result<Ran> {
        finish_within(self.0, LONGEST)
    }
}

/// A process that goes on in the background may keep the pipes of the one that started it: only what is there when that one
/// ends is read.
fn finish_within(mut child: Child, longest: Duration) -> io::Result<Ran> {
    let (mut said, mut complained) =
        (Words::of(child.stdout.take())?, Words::of(child.stderr.take())?);
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let deadline = now() + longest;
    let has_ended = loop {
        let left = deadline.saturating_sub(now());
        let timeout = Timespec::try_from(left).ok();
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&process, PollFlags::IN)];
        fds.extend([&said, &complained].into_iter().filter_map(Words::waiting));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => break false,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has_ended = fds.first().is_some_and(|fd| !fd.revents().is_empty());
        said.read();
        complained.read();
        if has_ended {
            break true;
        }
    };
    if !has_ended {
        // It may have ended just now.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let status = child.wait()?;
    if !has_ended {
        let message = format!("it did not end within {longest:?}");
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    }
    let words = [complained.text(), said.text()].join("\n");
    Ok(Ran { status, words: words.trim().to_owned() })
}

/// What a program says on one of its pipes.
struct Words {
    pipe: Option<OwnedFd>,
    kept: Vec<u8>,
}

impl Words {
    fn of(pipe: Option<impl Into<OwnedFd>>) -> io::Result<Self> {
        let pipe: Option<OwnedFd> = pipe.map(Into::into);
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Words { pipe, kept: Vec::new() })
    }

    fn waiting(&self) -> Option<PollFd<'_>> {
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN))
    }

    /// Reads what is there, and keeps a part.
    fn read(&mut self) {
        let mut buffer = [0; 4096];
        while let Some(pipe) = &self.pipe {
            match rustix::io::read(pipe, &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    let room = MOST_WORDS.saturating_sub(self.kept.len());
                    self.kept.extend(buffer.iter().take(count.min(room)));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// The time since some moment.
pub(crate) fn now() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    let (seconds, nanoseconds) = (u64::try_from(tv_sec), u32::try_from(tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanoseconds.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_program_is_heard_and_one_that_never_ends_is_ended() {
        let run = |script: &str| start(&arguments(script)).unwrap().finish();
        let ran = run("echo said; echo complained >&2; exit 3").unwrap();
        assert_eq!((ran.status.code(), ran.words.as_str()), (Some(3), "complained\n\nsaid"));
        let endless = start(&arguments("exec tail -f /dev/null")).unwrap();
        let error = finish_within(endless.0, Duration::from_millis(10));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // It leaves a process behind that keeps its pipes.
        let ran = run("tail -f /dev/null & echo $!").unwrap();
        let left = Pid::from_raw(ran.words.parse().unwrap()).unwrap();
        rustix::process::kill_process(left, Signal::KILL).unwrap();
        let ran = run("env; yes | head -c 300000").unwrap();
        assert!(ran.status.success() && ran.words.len() < 70_000);
        assert!(ran.words.contains("LC_ALL=C") && !ran.words.contains("CARGO"), "no environment");
    }
}
