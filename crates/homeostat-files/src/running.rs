//! What a program runs: it is reloaded, and asked which generation of them it has taken over. Its answer
//! counts, never an exit code.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use homeostat_core::{Failure, Retry};
use homeostat_systemd::JobKind;
use rustix::process::{Pid, Signal, kill_process};

use crate::brake::Limits;
use crate::check::Network;
use crate::counters::Counters;
use crate::process;
use crate::program::{self, Ran, now};
use crate::programs::Known;
use crate::programs::haproxy::{Declared, Haproxy, ServerName, Update};
use crate::started::{Note, next_tick};
use crate::store::SetStore;
use crate::trusted::check_before;
use crate::unit::{Unit, Up};

/// What stands for the generation of a set, in its files and in the answer of its program.
pub const PLACEHOLDER: &str = "{{ generation }}";

/// The program that reads a set.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub reload: Reload,
    /// The file that has the id of its first process.
    pub pid_file: Option<PathBuf>,
    /// The unit in which it runs: while that is not up, nothing is reloaded.
    pub unit: Option<Unit>,
    /// Starts the program if it died of a reload, and has no unit.
    pub restart: Option<Vec<String>>,
    /// Without it, a reload is taken for done.
    pub running: Option<Running>,
    /// How long it may take until the program answers with the new generation.
    pub within: Duration,
    pub limits: Limits,
    pub network: Network,
    /// Where it is noted which files the process has read that was started last, if that must be known.
    pub note: Option<PathBuf>,
    /// What more is known of it.
    pub known: Option<Known>,
}

/// What a program shall run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The generation that it reports, which changes with what only a reload can change.
    pub(crate) generation: String,
    /// Changes with everything: what was refused is not tried again.
    pub(crate) identity: String,
    /// What can be changed without a reload.
    pub(crate) declared: Declared,
}

/// How a program is asked or reloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// By a program and its arguments.
    Run(Vec<String>),
    /// By a line to a socket.
    Socket { path: PathBuf, send: String },
    /// By a command to the socket of BIRD.
    Bird { path: PathBuf, send: String },
    /// By what the children of its first process call themselves.
    ChildNames,
    /// By when its first process started.
    Started,
    /// By a line to an address, in the network of the program.
    Tcp { address: SocketAddr, send: String },
}

/// How a program is reloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reload {
    Send(Request),
    /// By a signal to its first process.
    Signal(Signal),
    /// By a job of systemd for its unit.
    Unit(JobKind),
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
    /// It cannot be asked; what must change for that.
    Down(String),
}

/// What a program runs of what it shall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All of it.
    Whole,
    /// All, but for servers that leave when their connections end.
    Leaving(BTreeSet<ServerName>),
}

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);
/// So much of an answer is kept.
const MOST: usize = 80;

impl Program {
    /// Asks whether it runs a generation; nothing, if it is up and cannot be asked.
    pub(crate) fn ask(&self, generation: &str) -> Option<Answer> {
        let up = self.unit.as_ref().map(Unit::look).transpose();
        self.ask_if_up(generation, up)
    }

    /// The same, if its unit has been looked at already.
    pub(crate) fn ask_if_up(
        &self,
        generation: &str,
        up: Result<Option<Up>, String>,
    ) -> Option<Answer> {
        if let Err(on) = up {
            return Some(Answer::Down(on));
        }
        let Running { ask, is } = self.running.as_ref()?;
        let expected = is.replace(PLACEHOLDER, generation);
        if let Request::ChildNames | Request::Started = ask {
            return Some(match self.process() {
                Err(error) => Answer::Down(silent(&error.to_string())),
                Ok(pid) if *ask == Request::Started => self.has_started_with(generation, pid),
                Ok(pid) => child_is_called(&expected, pid),
            });
        }
        Some(match self.send(ask) {
            Ok((true, words)) => {
                let is_it = words.contains(&expected);
                let short: String = words.chars().take(MOST).collect();
                if is_it { Answer::Runs } else { Answer::RunsOther(short) }
            }
            // It is up, and its files define nothing that it could answer with.
            Ok((false, words)) if matches!(ask, Request::Bird { .. }) => Answer::RunsOther(words),
            Ok((false, words)) => Answer::Down(silent(&words)),
            Err(error) if self.listens_elsewhere(ask, &error) => {
                Answer::RunsOther("files by which it does not answer there".to_owned())
            }
            Err(error) => Answer::Down(silent(&error.to_string())),
        })
    }

    /// Whether its process is there, and takes no requests where its files say that it shall.
    fn listens_elsewhere(&self, ask: &Request, error: &io::Error) -> bool {
        matches!(ask, Request::Tcp { .. })
            && error.kind() == io::ErrorKind::ConnectionRefused
            && self.process().is_ok_and(|pid| process::started(pid).is_some())
    }

    /// Whether its process has read the files of a generation.
    fn has_started_with(&self, generation: &str, pid: Pid) -> Answer {
        let note = self.note.as_deref().and_then(Note::read);
        if process::started(pid).is_none() {
            return Answer::Down(silent("its process has ended"));
        }
        match note.filter(|note| note.generation == generation && note.is_read_by(pid)) {
            Some(_) => Answer::Runs,
            None => Answer::RunsOther("other files: it was not started with these".to_owned()),
        }
    }

    fn is_known_by_its_start(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.ask == Request::Started)
    }

    /// Notes what was restored beside a program that runs it.
    pub(crate) fn files_are_back(&self, generation: &str) {
        let Some(path) = self.note.as_ref().filter(|_| self.is_known_by_its_start()) else {
            return;
        };
        let note = Note::read(path).filter(|note| note.generation == generation);
        if let Some(note) = note.filter(|note| self.process().is_ok_and(|pid| note.is_read_by(pid)))
        {
            // Without it, the program is started once more when it was started by others.
            let _ = note.with_files_of_now().write(path);
        }
    }

    /// Refuses programs that would be started for a reload, and that others than root could replace: before anything is written.
    pub(crate) fn check_programs(&self) -> Result<(), Failure> {
        let reload = match &self.reload {
            Reload::Send(Request::Run(arguments)) => Some(arguments),
            Reload::Send(_) | Reload::Signal(_) | Reload::Unit(_) => None,
        };
        let programs = reload.into_iter().chain(&self.restart);
        programs.filter_map(|arguments| arguments.first()).try_for_each(|one| check_before(one))
    }

    /// Whether it could work with new files in the place where it runs, as far as that can be tried: `before` and `after`
    /// are what its main file holds.
    pub(crate) fn try_out(&self, before: &str, after: &str) -> Result<(), Failure> {
        let known = self.known.as_ref();
        let Some(try_out) = known.and_then(|known| known.profile.try_out) else { return Ok(()) };
        match &self.network {
            Network::Missing(_) => Ok(()),
            Network::Here => try_out(before, after),
            Network::In(netns) => {
                let tried = netns.run(|| try_out(before, after));
                tried.unwrap_or_else(|error| Err(Failure::soon(&error)))
            }
        }
    }

    /// It, if it can be changed without a reload.
    #[must_use]
    pub fn haproxy(&self) -> Option<Haproxy> {
        Haproxy::of(self.known.as_ref(), self.running.as_ref())
    }

    /// Lets it run new files: without a reload, if that is possible, else by one.
    pub(crate) fn take_over(
        &self,
        target: &Target,
        files: impl Iterator<Item = String>,
        store: &SetStore,
        counters: &Counters,
    ) -> Result<Taken, Failure> {
        if let Some(path) = self.note.as_ref().filter(|_| self.is_known_by_its_start()) {
            let noted = Note::now(&target.generation, files).write(path);
            noted.map_err(|error| {
                Failure::new(format!("{}: {error}", path.display()), Retry::Soon)
            })?;
            next_tick();
        }
        let declared = &target.declared;
        let Some(haproxy) = self.haproxy().filter(|_| !declared.is_empty()) else {
            counters.reloads.add(1);
            return self.reload(&target.generation, |_| true).map(|()| Taken::Whole);
        };
        // What it had, in case that the change is taken back.
        let had = match self.ask(&target.generation) {
            Some(Answer::Runs) => haproxy.observe(declared).ok(),
            _ => None,
        };
        if had.is_some() {
            match update(&haproxy, declared, store, counters) {
                Ok(Some(taken)) => return Ok(taken),
                Ok(None) | Err(_) => counters.refused_changes.add(1),
            }
        }
        counters.reloads.add(1);
        let has_all = |is_last| {
            let observed = haproxy.observe(declared);
            let is_so = observed.is_ok_and(|observed| declared.differences(&observed).is_empty());
            // The process that answers runs the new files, unless their generation is the former one.
            let may_update = had.is_none() || is_last;
            let updated = || update(&haproxy, declared, store, counters);
            is_so || may_update && matches!(updated(), Ok(Some(Taken::Whole)))
        };
        let reloaded = self.reload(&target.generation, has_all);
        match (&reloaded, &had) {
            (Err(_), Some(had)) => haproxy.put_back(declared, had),
            (Err(_), None) => {}
            // Servers that were about to leave are gone with the former process.
            (Ok(()), _) => forget_leaving(store).map_err(|error| Failure::soon(&error))?,
        }
        reloaded.map(|()| Taken::Whole)
    }

    /// Reloads it, and waits until it runs the new files: it answers with their generation, and `has_all` agrees, which
    /// learns whether it is asked for the last time.
    fn reload(&self, generation: &str, has_all: impl Fn(bool) -> bool) -> Result<(), Failure> {
        let former = self.workers();
        let deadline = now() + self.within;
        let complaint = loop {
            match self.send_reload() {
                Ok(complaint) => break complaint,
                // A master that executes itself anew does not listen for a moment.
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused && now() < deadline =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => break format!("the reload could not be sent: {error}"),
            }
        };
        loop {
            let is_last = now() >= deadline || self.running.is_none();
            let answer = match self.ask(generation) {
                None if complaint.is_empty() => return Ok(()),
                None => Answer::RunsOther("nothing is known of it".to_owned()),
                Some(Answer::Runs) if self.workers().iter().any(|one| former.contains(one)) => {
                    Answer::RunsOther("the former files in some of its processes".to_owned())
                }
                Some(Answer::Runs) if has_all(is_last) => {
                    self.note_process();
                    return Ok(());
                }
                Some(Answer::Runs) => Answer::RunsOther("some of the former values".to_owned()),
                Some(answer) => answer,
            };
            if is_last {
                return Err(refused(&complaint, &answer));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Notes the process that has read the files: it has, whatever becomes of them.
    fn note_process(&self) {
        let Some(path) = self.note.as_ref().filter(|_| self.is_known_by_its_start()) else {
            return;
        };
        if let (Some(note), Ok(pid)) = (Note::read(path), self.process()) {
            let _ = note.of_process(pid).write(path);
        }
    }

    /// Starts it again, if it died.
    pub(crate) fn revive(&self, generation: &str) {
        let is_down = matches!(self.ask(generation), Some(Answer::Down(_)));
        // Whether it runs is asked again by the next look.
        match (&self.unit, &self.restart) {
            (Some(unit), _) if is_down => {
                let _ = unit.job(JobKind::Start, self.within);
            }
            (None, Some(restart)) if is_down => {
                let _ = self.run(restart);
            }
            _ => {}
        }
    }

    /// Returns what it said, if it did not accept the reload.
    fn send_reload(&self) -> io::Result<String> {
        match &self.reload {
            Reload::Send(request) => {
                let (is_done, words) = self.send(request)?;
                Ok(if is_done { String::new() } else { words })
            }
            Reload::Signal(signal) => {
                kill_process(self.process()?, *signal)?;
                Ok(String::new())
            }
            Reload::Unit(kind) => match &self.unit {
                Some(unit) => unit.job(*kind, self.within),
                None => Err(io::Error::other("no `unit` is named")),
            },
        }
    }

    /// Its first process.
    pub(crate) fn process(&self) -> io::Result<Pid> {
        if let Some(unit) = &self.unit {
            let up = unit.look().map_err(io::Error::other)?;
            let pid = up.process.and_then(|pid| Pid::from_raw(pid.cast_signed()));
            return pid.ok_or_else(|| io::Error::other("systemd knows no process of the unit"));
        }
        let pid_file = self.pid_file.as_deref();
        process::named_in(pid_file.ok_or_else(|| io::Error::other("no `pid-file` is named"))?)
    }

    /// Its processes of former reloads that end their work.
    pub(crate) fn draining(&self) -> Vec<Pid> {
        let draining = self.known.as_ref().and_then(|known| known.profile.draining);
        draining.map(|draining| draining(self)).unwrap_or_default()
    }

    /// The processes that take requests, if several generations of them may.
    fn workers(&self) -> Vec<Pid> {
        let workers = self.known.as_ref().and_then(|known| known.profile.workers);
        let process = workers.and_then(|_| self.process().ok());
        workers.zip(process).map(|(workers, process)| workers(process)).unwrap_or_default()
    }

    /// Sends a request; whether it succeeded, and what was said.
    pub(crate) fn send(&self, request: &Request) -> io::Result<(bool, String)> {
        match request {
            Request::Run(arguments) => {
                let Ran { status, words } = self.run(arguments)?;
                let is_done = status.success();
                Ok((is_done, if is_done { words } else { format!("{status}: {words}") }))
            }
            Request::Socket { path, send } => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok((true, converse(stream, send)?))
            }
            Request::Bird { path, send } => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                converse_with_bird(stream, send)
            }
            Request::ChildNames | Request::Started => Err(io::Error::other("nobody can be asked")),
            Request::Tcp { address, send } => {
                let stream = self.inside(|| TcpStream::connect_timeout(address, PATIENCE))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok((true, converse(stream, send)?))
            }
        }
    }

    fn run(&self, arguments: &[String]) -> io::Result<Ran> {
        self.inside(|| program::start(arguments))?.finish()
    }

    /// Does something in the network of the program.
    fn inside<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match &self.network {
            Network::Here => act(),
            Network::In(netns) => netns.run(act).map_err(io::Error::other)?,
            Network::Missing(name) => {
                Err(io::Error::other(format!("the namespace `{name}` does not exist")))
            }
        }
    }
}

/// Changes a running process; nothing, if it did not take it.
fn update(
    haproxy: &Haproxy,
    declared: &Declared,
    store: &SetStore,
    counters: &Counters,
) -> io::Result<Option<Taken>> {
    let leaving = store.leaving();
    let leave = |servers: &BTreeSet<ServerName>| {
        let is_known = servers.is_subset(&leaving);
        if is_known { Ok(()) } else { store.write_leaving(&(servers | &leaving)) }
    };
    Ok(match haproxy.update(declared, &leaving, leave)? {
        Update::Done { commands } => {
            counters.runtime_changes.add(commands as u64);
            forget_leaving(store)?;
            Some(Taken::Whole)
        }
        Update::Leaving(servers) => {
            store.write_leaving(&servers)?;
            Some(Taken::Leaving(servers))
        }
        Update::Refused => None,
    })
}

fn forget_leaving(store: &SetStore) -> io::Result<()> {
    if store.leaving().is_empty() { Ok(()) } else { store.write_leaving(&BTreeSet::new()) }
}

/// How long a socket may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends a line, and reads the answer to its end.
fn converse(mut stream: impl io::Read + io::Write, send: &str) -> io::Result<String> {
    const MOST: u64 = 64 << 10;
    stream.write_all(format!("{send}\n").as_bytes())?;
    let mut answer = Vec::new();
    match stream.take(MOST).read_to_end(&mut answer) {
        // One that starts anew hangs up.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).trim().to_owned()),
    }
}

/// Sends a command, and reads the greeting and the answer. The last line of each begins with four digits and a blank; from
/// 8000 on they stand for errors.
fn converse_with_bird(mut stream: UnixStream, send: &str) -> io::Result<(bool, String)> {
    const MOST: u64 = 64 << 10;
    stream.write_all(format!("{send}\n").as_bytes())?;
    let (mut answer, mut greeted) = (Vec::new(), false);
    for line in BufReader::new(stream.take(MOST)).lines() {
        let line = line?;
        let code = line.get(..4).and_then(|code| code.parse::<u16>().ok());
        let is_last = code.is_some() && line.get(4..5) == Some(" ");
        if greeted {
            answer.push(line.get(5..).unwrap_or_default().to_owned());
            if is_last {
                return Ok((code.is_some_and(|code| code < 8000), answer.join("; ")));
            }
        }
        greeted |= is_last;
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

fn child_is_called(name: &str, pid: Pid) -> Answer {
    let names: Vec<String> = process::children(pid).into_iter().map(process::name).collect();
    if names.iter().any(|one| one == name) {
        Answer::Runs
    } else {
        Answer::RunsOther(names.join(" "))
    }
}

fn silent(why: &str) -> String {
    format!("the program, which does not answer: {why}")
}

fn refused(complaint: &str, answer: &Answer) -> Failure {
    let complaint = if complaint.is_empty() { String::new() } else { format!("{complaint}; ") };
    let now = match answer {
        Answer::Runs => String::new(),
        Answer::RunsOther(words) => format!("it still runs `{}`", words.trim()),
        Answer::Down(on) => format!("now it waits on {on}"),
    };
    let error = format!("its program did not take the new files over: {complaint}{now}");
    // The same files would fail again, and each try may cost requests.
    let help = "the former files are back; change the set, and it is tried again";
    Failure::new(error, Retry::Never).with_help(help)
}
