//! What a program runs: it is told of new files, and asked which generation of them it has taken over. Its answer
//! counts, never an exit code.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat_core::{Failure, Retry};
use rustix::process::{Pid, Signal, kill_process};

use crate::check::Network;
use crate::key::FilePath;
use crate::program::{self, Ran, now};
use crate::programs::haproxy;

/// What stands for the generation of a set, in its files and in the answer of its program.
pub const PLACEHOLDER: &str = "{{ generation }}";

/// The program that reads a set.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub reload: Reload,
    /// Starts the program if it died of a reload.
    pub restart: Option<Vec<String>>,
    /// Without it, a reload is taken for done.
    pub running: Option<Running>,
    /// How long it may take until the program answers with the new generation.
    pub within: Duration,
    pub network: Network,
    /// What more is known of it.
    pub profile: Option<Profile>,
}

/// A program that is known, by the file that names all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    Haproxy(FilePath),
}

/// How something is asked or told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// By a program and its arguments.
    Run(Vec<String>),
    /// By a line to a socket.
    Socket { path: PathBuf, send: String },
}

/// How a program is told of new files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reload {
    Send(Request),
    /// By a signal to the process whose id is in this file.
    Signal {
        pid_file: PathBuf,
        signal: Signal,
    },
}

/// How a program is asked what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub ask: Request,
    /// What the answer holds, with [`PLACEHOLDER`] for the generation.
    pub is: String,
}

/// What a program answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It runs this generation.
    Runs,
    /// It runs something else, in its own words.
    RunsOther(String),
    /// It does not answer.
    Down(String),
}

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);
/// So much of an answer is kept.
const MOST: usize = 80;

impl Program {
    /// Asks whether it runs a generation; nothing, if it cannot be asked.
    pub(crate) fn ask(&self, generation: &str) -> Option<Answer> {
        let Running { ask, is } = self.running.as_ref()?;
        let expected = is.replace(PLACEHOLDER, generation);
        Some(match self.send(ask) {
            Ok((true, words)) => {
                let is_it = words.contains(&expected);
                let short: String = words.chars().take(MOST).collect();
                if is_it { Answer::Runs } else { Answer::RunsOther(short) }
            }
            Ok((false, words)) => Answer::Down(words),
            Err(error) => Answer::Down(error.to_string()),
        })
    }

    /// Whether it could work with new files in the place where it runs, as far as that can be tried: `before` and `after`
    /// are what its main file holds.
    pub(crate) fn try_out(&self, before: &str, after: &str) -> Result<(), Failure> {
        match (&self.profile, &self.network) {
            (None, _) | (_, Network::Missing(_)) => Ok(()),
            (Some(Profile::Haproxy(_)), Network::Here) => haproxy::try_to_listen(before, after),
            (Some(Profile::Haproxy(_)), Network::In(netns)) => {
                let tried = netns.run(|| haproxy::try_to_listen(before, after));
                tried.unwrap_or_else(|error| Err(Failure::soon(&error)))
            }
        }
    }

    /// Tells it of new files, and waits until it runs them.
    pub(crate) fn take_over(&self, generation: &str) -> Result<(), Failure> {
        let told = match self.tell() {
            Ok(words) => words,
            Err(error) => format!("the reload could not be sent: {error}"),
        };
        let deadline = now() + self.within;
        loop {
            let answer = match self.ask(generation) {
                None if told.is_empty() => return Ok(()),
                None => Answer::RunsOther("nothing is known of it".to_owned()),
                Some(Answer::Runs) => return Ok(()),
                Some(answer) => answer,
            };
            if now() >= deadline || self.running.is_none() {
                return Err(refused(&told, &answer));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Starts it again, if it died.
    pub(crate) fn revive(&self, generation: &str) {
        let is_down = matches!(self.ask(generation), Some(Answer::Down(_)));
        if let Some(restart) = self.restart.as_ref().filter(|_| is_down) {
            // Whether it runs is asked again by the next look.
            let _ = self.run(restart);
        }
    }

    /// Returns what it said, if it did not do what it was told.
    fn tell(&self) -> io::Result<String> {
        match &self.reload {
            Reload::Send(request) => {
                let (is_done, words) = self.send(request)?;
                Ok(if is_done { String::new() } else { words })
            }
            Reload::Signal { pid_file, signal } => {
                let text = fs::read_to_string(pid_file)?;
                let pid = text.trim().parse().ok().and_then(Pid::from_raw);
                let pid = pid.ok_or_else(|| io::Error::other("no process id is in its file"))?;
                kill_process(pid, *signal)?;
                Ok(String::new())
            }
        }
    }

    /// Sends a request; whether it succeeded, and what was said.
    fn send(&self, request: &Request) -> io::Result<(bool, String)> {
        match request {
            Request::Run(arguments) => {
                let Ran { status, words } = self.run(arguments)?;
                let is_done = status.success();
                Ok((is_done, if is_done { words } else { format!("{status}: {words}") }))
            }
            Request::Socket { path, send } => Ok((true, converse(path, send)?)),
        }
    }

    fn run(&self, arguments: &[String]) -> io::Result<Ran> {
        let running = match &self.network {
            Network::Here => program::start(arguments)?,
            Network::In(netns) => {
                netns.run(|| program::start(arguments)).map_err(io::Error::other)??
            }
            Network::Missing(name) => {
                return Err(io::Error::other(format!("the namespace `{name}` does not exist")));
            }
        };
        running.finish()
    }
}

/// Sends a line to a socket, and reads the answer to its end.
fn converse(path: &Path, send: &str) -> io::Result<String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    const MOST: u64 = 64 << 10;
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{send}\n").as_bytes())?;
    let mut answer = Vec::new();
    match stream.take(MOST).read_to_end(&mut answer) {
        // One that starts anew hangs up.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).trim().to_owned()),
    }
}

fn refused(told: &str, answer: &Answer) -> Failure {
    let told = if told.is_empty() { String::new() } else { format!("{told}; ") };
    let now = match answer {
        Answer::Runs => String::new(),
        Answer::RunsOther(words) => format!("it still runs `{}`", words.trim()),
        Answer::Down(why) => format!("it does not answer: {why}"),
    };
    let error = format!("its program did not take the new files over: {told}{now}");
    // The same files would fail again, and each try may cost requests.
    let help = "the former files are back; change the set, and it is tried again";
    Failure::new(error, Retry::Never).with_help(help)
}
