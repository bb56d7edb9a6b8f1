//! Sets of files as the daemon keeps them, beside a playbook that does the same job. Needs root, `haproxy`, and the
//! program, built in the directory of this one.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use homeostat_testkit::namespace::Namespace;
use tempfile::TempDir;

use super::document::Document;
use crate::program::{self, Running, text};
use crate::{Budget, Group, Run, Unit, clock};

pub(super) fn groups() -> Vec<Group> {
    vec![
        Group::new("files: an edited file is restored", Unit::Seconds)
            .with("homeostat", restore, &[Budget::AtMost(0.003)])
            .with("ansible-playbook", restore_by_playbook, &[]),
        // From the moment that the input may be read: a daemon leaves a fresh file alone for a second (`put`).
        Group::new(
            "files: the weight of one of 10k servers, by an input that has rested",
            Unit::Seconds,
        )
        .with("homeostat", |run| change(run, &LARGE), &[Budget::AtMost(0.01)])
        .with("ansible-playbook", |run| change_by_playbook(run, &LARGE), &[]),
        Group::new("files: HAProxy reads another structure", Unit::Seconds)
            .with("homeostat", |run| change(run, &SMALL), &[Budget::AtMost(0.2)])
            .with("ansible-playbook", |run| change_by_playbook(run, &SMALL), &[]),
    ]
}

/// A job on a configuration: what the nth state of it is, and how the process shows it.
struct Job {
    name: &'static str,
    backends: usize,
    /// The weight of the first server.
    weight: fn(usize) -> usize,
    /// A variable of the process.
    variable: fn(usize) -> usize,
    ask: &'static str,
    is: fn(usize) -> String,
}

static LARGE: Job = Job {
    name: "large",
    backends: 1000,
    weight: |n| 1 + n % 200,
    variable: |_| 0,
    ask: "get weight b0/s0",
    is: |n| format!("{} (", 1 + n % 200),
};

static SMALL: Job = Job {
    name: "small",
    backends: 2,
    weight: |_| 100,
    variable: |n| n,
    ask: "get var proc.n",
    is: |n| format!("value=<{n}>"),
};

impl Job {
    /// Its nth configuration.
    fn text(&self, backends: usize, place: &Place, n: usize) -> Result<String> {
        let (weight, variable) = ((self.weight)(n).to_string(), (self.variable)(n).to_string());
        configuration(backends, place, "none", &weight, &variable)
    }

    /// The input that makes the nth of the template.
    fn input(&self, n: usize) -> String {
        let (weight, variable) = ((self.weight)(n), (self.variable)(n));
        serde_json::json!({ "weight": weight, "variable": variable }).to_string()
    }
}

/// The configurations of a job as one template.
fn template(backends: usize, place: &Place) -> Result<String> {
    let [weight, variable] =
        ["weight", "variable"].map(|it| format!("{{{{ inputs.state.{it} }}}}"));
    configuration(backends, place, "{{ generation }}", &weight, &variable)
}

/// A configuration with ten servers a backend.
fn configuration(
    backends: usize,
    place: &Place,
    marker: &str,
    first: &str,
    variable: &str,
) -> Result<String> {
    let admin = place.path("admin");
    let mut text = format!(
        "global\n  setenv HOMEOSTAT {marker}\n  stats socket {} mode 600 level admin\n  \
         set-var proc.n int({variable})\ndefaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\n\
         frontend front\n  bind 127.0.0.1:8001\n  default_backend b0\n",
        program::text(&admin)?
    );
    for backend in 0..backends {
        writeln!(text, "backend b{backend}")?;
        for server in 0..10 {
            let weight = if (backend, server) == (0, 0) { first } else { "100" };
            let host = format!("127.{}.{}.{server}", backend / 250, backend % 250);
            writeln!(text, "  server s{server} {host}:8101 weight {weight}")?;
        }
    }
    Ok(text)
}

/// A directory with files, and the processes that work on them in a network of their own.
struct Place {
    // Dropped first, so that it ends before its directory is gone.
    processes: Vec<Running>,
    document: Option<Document>,
    directory: TempDir,
    namespace: Namespace,
    turns: usize,
}

impl Place {
    fn new() -> Result<Self> {
        let namespace = Namespace::enter()?;
        namespace.ip(&["link", "set", "lo", "up"])?;
        let directory = tempfile::tempdir()?;
        Ok(Place { processes: Vec::new(), document: None, directory, namespace, turns: 0 })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts `HAProxy` on a first configuration.
    fn balance(&mut self, backends: usize, job: &Job) -> Result<()> {
        let program = program::find_or_leave_out("haproxy", "haproxy")?;
        let (main, master) = (self.path("haproxy.cfg"), self.path("master"));
        std::fs::write(&main, job.text(backends, self, 0)?)?;
        let arguments = ["-W", "-S", text(&master)?, "-f", text(&main)?];
        self.processes.push(Running::start(text(&program)?, &arguments)?);
        self.wait(job, 0)
    }

    fn wait(&self, job: &Job, n: usize) -> Result<()> {
        let (deadline, expected) = (clock::now() + Duration::from_mins(1), (job.is)(n));
        while !self.ask(job.ask).is_ok_and(|answer| answer.contains(&expected)) {
            ensure!(clock::now() < deadline, "`{}` never answers `{expected}`", job.ask);
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn ask(&self, request: &str) -> Result<String> {
        let mut stream = UnixStream::connect(self.path("admin"))?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Puts a content in the place of a file, as if it had been written five seconds ago. A daemon waits until a file was left
    /// alone for a second before it reads it; that second is not measured here, and comes on top for who writes a file anew.
    fn put(&self, file: &str, content: &str) -> Result<()> {
        let new = self.path("new");
        std::fs::write(&new, content)?;
        let file = self.path(file);
        let written = std::fs::metadata(&new)?.modified()? - Duration::from_secs(5);
        std::fs::File::options().append(true).open(&new)?.set_modified(written)?;
        Ok(std::fs::rename(new, file)?)
    }
}

thread_local! {
    // What takes long to start is kept for all rounds.
    static PLACES: RefCell<Vec<(String, Place)>> = const { RefCell::new(Vec::new()) };
}

fn with(
    name: &str,
    start: impl FnOnce() -> Result<Place>,
    act: impl FnOnce(&mut Place) -> Result<()>,
) -> Result<()> {
    PLACES.with_borrow_mut(|places| {
        if !places.iter().any(|(one, _)| one == name) {
            let place = start()?;
            places.push((name.to_owned(), place));
        }
        let found = places.iter_mut().find(|(one, _)| one == name);
        let (_, place) = found.context("it was just started")?;
        place.namespace.netns().enter()?;
        place.turns += 1;
        act(place)
    })
}

const TEXT: &str = "declared\n";

fn restore(run: &mut Run) -> Result<()> {
    let start = || {
        let mut place = Place::new()?;
        let file = place.path("file");
        let toml = format!("[files.one.write.{:?}]\ntext = {TEXT:?}\n", text(&file)?);
        let document = Document::new(&toml)?;
        place.processes.push(document.keep()?);
        place.document = Some(document);
        Ok(place)
    };
    with("restore", start, |place| {
        let file = place.path("file");
        run.time(1, || -> Result<()> {
            std::fs::write(&file, "edited\n")?;
            // It is replaced as a whole.
            while std::fs::read_to_string(&file)? != TEXT {
                std::thread::yield_now();
            }
            Ok(())
        })?;
        place.document.as_ref().context("a document")?.ask(&["status", "--wait", "--timeout", "1m"])
    })
}

/// From a new value of an input to what the process says.
fn change(run: &mut Run, job: &'static Job) -> Result<()> {
    let backends = run.size(job.backends, 2);
    let start = || {
        let mut place = Place::new()?;
        place.balance(backends, job)?;
        let path = |name: &str| -> Result<String> { Ok(text(&place.path(name))?.to_owned()) };
        let toml = format!(
            "[files.haproxy]\nprogram = \"haproxy\"\nsockets = {{ master = {:?}, admin = {:?} }}\n\
             [files.haproxy.inputs.state]\nfile = {:?}\n\
             [files.haproxy.write.{:?}]\ntemplate = {:?}\nadopt = true\n",
            path("master")?,
            path("admin")?,
            path("state.json")?,
            path("haproxy.cfg")?,
            path("template")?,
        );
        place.put("template", &template(backends, &place)?)?;
        place.put("state.json", &job.input(0))?;
        let document = Document::new(&toml)?;
        place.processes.insert(0, document.keep()?);
        place.document = Some(document);
        Ok(place)
    };
    with(&format!("{} by homeostat", job.name), start, |place| {
        run.time(1, || {
            place.put("state.json", &job.input(place.turns))?;
            place.wait(job, place.turns)
        })?;
        place.document.as_ref().context("a document")?.ask(&["status", "--wait", "--timeout", "1m"])
    })
}

/// Writes a playbook with these tasks and handlers, and returns how it is played.
fn playbook(place: &Place, tasks: &str) -> Result<(String, PathBuf)> {
    let program = program::find_or_leave_out("ansible-playbook", "ansible-core")?;
    let book = place.path("book.yml");
    let head = "- hosts: localhost\n  connection: local\n  gather_facts: false\n";
    std::fs::write(&book, format!("{head}{tasks}"))?;
    Ok((text(&program)?.to_owned(), book))
}

fn play(program: &str, book: &std::path::Path) -> Result<()> {
    program::run_quietly(program, &["-i", "localhost,", text(book)?])
}

fn restore_by_playbook(run: &mut Run) -> Result<()> {
    with("restore by playbook", Place::new, |place| {
        let file = place.path("file");
        let tasks =
            format!("  tasks:\n  - copy: {{ content: {TEXT:?}, dest: {:?} }}\n", text(&file)?);
        let (program, book) = playbook(place, &tasks)?;
        std::fs::write(&file, "edited\n")?;
        run.time(1, || play(&program, &book))?;
        ensure!(std::fs::read_to_string(&file)? == TEXT, "it was not restored");
        Ok(())
    })
}

fn change_by_playbook(run: &mut Run, job: &'static Job) -> Result<()> {
    let name = format!("{} by playbook", job.name);
    let backends = run.size(job.backends, 2);
    let start = || {
        let mut place = Place::new()?;
        place.balance(backends, job)?;
        Ok(place)
    };
    with(&name, start, |place| {
        let content = job.text(backends, place, place.turns)?;
        let (source, main) = (place.path("source.cfg"), place.path("haproxy.cfg"));
        let reload = format!(
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{}'); s.sendall(b'reload\\n')",
            text(&place.path("master"))?
        );
        let tasks = format!(
            "  tasks:\n  - copy: {{ src: {:?}, dest: {:?}, validate: \"/usr/sbin/haproxy -c -f %s\" }}\n    notify: reload\n  \
             handlers:\n  - name: reload\n    command: {{ argv: [python3, -c, {reload:?}] }}\n",
            text(&source)?,
            text(&main)?,
        );
        let (program, book) = playbook(place, &tasks)?;
        run.time(1, || {
            place.put("source.cfg", &content)?;
            play(&program, &book)?;
            place.wait(job, place.turns)
        })
    })
}
