//! Asks each input in a task of its own, so that one that hangs delays no other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use homeostat_kit::finished_files::QUIET;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::error::{Error, words};
use crate::inputs::Inputs;
use crate::origin::{Credentials, InputSpec, Origin};
use crate::reading::FileReader;
use crate::url::{Client, Fetched, UrlOrigin, Validators};
use crate::value::Value;
use crate::watch::Watch;

/// The first pause before a source is asked again that could not answer; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The tasks of some inputs. They end when it is dropped.
#[derive(Debug)]
pub struct InputTasks {
    reader: FileReader,
    credentials: Credentials,
    mailbox: Arc<Mailbox>,
    tasks: JoinSet<()>,
}

/// The newest answer of each input that was not taken yet.
#[derive(Debug, Default)]
struct Mailbox {
    answers: Mutex<BTreeMap<String, Result<Value, String>>>,
    arrived: Notify,
}

impl InputTasks {
    #[must_use]
    pub fn new(reader: FileReader, credentials: Credentials) -> Self {
        let (mailbox, tasks) = (Arc::default(), JoinSet::new());
        InputTasks { reader, credentials, mailbox, tasks }
    }

    /// Begins to follow an input, for good: other inputs need other tasks. Needs a runtime of tokio with I/O and time.
    pub fn start(&mut self, name: impl Into<String>, spec: InputSpec) {
        let mut post = Post { name: name.into(), mailbox: Arc::clone(&self.mailbox), last: None };
        let path = match &spec.origin {
            Origin::Url(origin) => {
                let (origin, credentials) = (origin.clone(), self.credentials.clone());
                self.tasks.spawn(follow_url(origin, spec, credentials, post));
                return;
            }
            Origin::File(path) | Origin::Directory(path) => Ok(path.clone()),
            Origin::Credential(name) => self.credentials.path(name),
        };
        match path {
            Ok(path) => _ = self.tasks.spawn(follow_path(path, spec, self.reader.clone(), post)),
            Err(error) => post.put(&Err(error)),
        }
    }

    /// Waits until an input has answered something else than before. Dropping the future loses nothing.
    pub async fn changed(&self) {
        loop {
            let arrived = self.mailbox.arrived.notified();
            if !self.mailbox.lock().is_empty() {
                return;
            }
            arrived.await;
        }
    }

    /// Waits until each of so many inputs has answered once, or has said why not, for so long at most. The answers, by
    /// name.
    pub async fn first_answers(
        &self,
        count: usize,
        longest: Duration,
    ) -> BTreeMap<String, Result<Value, String>> {
        let mut answers = BTreeMap::new();
        let all = async {
            while answers.len() < count {
                self.changed().await;
                answers.extend(std::mem::take(&mut *self.mailbox.lock()));
            }
        };
        // Those that have not answered by then are missing.
        let _ = tokio::time::timeout(longest, all).await;
        answers
    }

    /// Hands the answers that have come over to the inputs. True if there is something new to be tried.
    pub fn deliver(&self, inputs: &mut Inputs) -> bool {
        let answers = std::mem::take(&mut *self.mailbox.lock());
        let answers = answers.into_iter();
        // Each has to be handed over, whatever the others say.
        answers.fold(false, |is_new, (name, answer)| inputs.answer(&name, answer) || is_new)
    }
}

impl Mailbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Result<Value, String>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where one task puts its answers.
struct Post {
    name: String,
    mailbox: Arc<Mailbox>,
    last: Option<Result<Value, String>>,
}

impl Post {
    fn put(&mut self, answer: &Result<Value, Error>) {
        let answer = match answer {
            Ok(value) => Ok(value.clone()),
            Err(error) => Err(words(error)),
        };
        if self.last.as_ref() == Some(&answer) {
            return;
        }
        self.last = Some(answer.clone());
        self.mailbox.lock().insert(self.name.clone(), answer);
        self.mailbox.arrived.notify_waiters();
        // A caller that begins to wait later finds the answer in the mailbox.
    }
}

/// Pauses that grow.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    fn next(&mut self, longest: Duration) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.0.min(16)).min(longest);
        self.0 += 1;
        pause
    }
}

async fn follow_url(origin: UrlOrigin, spec: InputSpec, credentials: Credentials, mut post: Post) {
    let name = origin.url.to_string();
    // Nobody is asked without a pause.
    let every = origin.every.max(Duration::from_millis(1));
    let bearer = origin.bearer.clone();
    let mut client = Client::new(origin);
    let (mut known, mut backoff) = (Validators::default(), Backoff::default());
    let mut last = None;
    loop {
        let asked = async {
            let token = bearer.as_deref().map(|bearer| credentials.path(bearer)).transpose()?;
            let token = token.map(|path| FileReader::once().read(&path)).transpose()?;
            client.fetch(token.as_deref(), &known).await
        };
        let answer = match asked.await {
            Ok(Fetched::Same) => last.clone().map(Ok),
            Ok(Fetched::New { text, validators }) => {
                let value = spec.understand(&name, &text);
                last = value.as_ref().ok().cloned();
                // What cannot be understood is asked for anew, whatever the server calls it.
                known = if value.is_ok() { validators } else { Validators::default() };
                Some(value)
            }
            Err(error) => Some(Err(error)),
        };
        let pause = if let Some(Err(Error::Fetch { .. } | Error::Read { .. })) = &answer {
            backoff.next(every.min(LONGEST_PAUSE))
        } else {
            backoff = Backoff::default();
            every
        };
        if let Some(answer) = answer {
            post.put(&answer);
        }
        tokio::time::sleep(pause).await;
    }
}

async fn follow_path(path: PathBuf, spec: InputSpec, reader: FileReader, mut post: Post) {
    let is_directory = matches!(spec.origin, Origin::Directory(_));
    let mut watch = if is_directory { Watch::directory(&path) } else { Watch::file(&path) };
    let mut backoff = Backoff::default();
    loop {
        // Before it is read, so that no change is lost.
        watch.add();
        let answer = spec.read(&reader, &path);
        // One that was written a moment ago is read in a moment, so it is not reported before.
        let is_young = matches!(&answer, Err(Error::BeingWritten { due_in: Some(_), .. }));
        if !(is_young && matches!(post.last, Some(Ok(_)))) {
            post.put(&answer);
        }
        let pause = match answer {
            Ok(_) => {
                backoff = Backoff::default();
                None
            }
            // A file that is being written is not looked at with every write.
            Err(Error::BeingWritten { due_in, .. }) => {
                tokio::time::sleep(due_in.unwrap_or(QUIET)).await;
                continue;
            }
            Err(_) => Some(backoff.next(LONGEST_PAUSE)),
        };
        watch.changed(pause).await;
    }
}
