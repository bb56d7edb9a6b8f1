//! Where desired states come from: a file, a store, another part of the program.
//!
//! A provider that cannot answer is *unknown*, never empty: an unknown desired state deletes nothing. The
//! empty desired state is one like any other, and has to be declared. [`Latest`] keeps the last
//! good desired state through an outage. Start at [`Provider`]. The daemon takes its document from one, too.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use homeostat_engine::Failure;
use homeostat_engine::outcome::Later;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::finished_files::{QUIET, Unfinished};

/// What a provider says when it is asked. `E` says why it cannot answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<D, E = String> {
    /// This is declared; it may be empty.
    DesiredState(Arc<D>),
    /// It cannot answer: the last good desired state stays in force.
    Unknown {
        /// Why it cannot, for people.
        why: E,
    },
    /// There is no desired state here and will be none: no pass is run, so nothing is deleted either.
    Nothing,
}

/// Whether the desired state of the last [`Provider::answer`] was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in force.
    Accepted,
    /// It cannot be used, and the one before stays in force.
    Refused {
        /// Why it cannot, for people.
        why: String,
    },
}

/// One place where a desired state comes from. The methods are boxed so that a program can choose a provider
/// when it starts: `Box<dyn Provider<...>>`.
pub trait Provider: Send {
    /// What is declared, as the source takes it.
    type DesiredState: Send + Sync + 'static;
    /// Why it cannot answer.
    type Error: fmt::Display + Send;

    /// What is declared at this moment.
    fn answer(&mut self) -> Later<'_, Answer<Self::DesiredState, Self::Error>>;

    /// Waits until another answer may be due since the last one; after an answer that was unknown, until it is
    /// worth asking again. Dropping the future loses nothing. The default waits for ever: such a provider is
    /// asked only when an operator wants it.
    fn changed(&mut self) -> Later<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Learns whether the last answer was accepted. It must not block: a provider that writes this into its
    /// store queues it. The default ignores it.
    fn judged(&mut self, verdict: Verdict) {
        let _ = verdict;
    }

    /// Learns that a full pass was made for the last answer that was accepted, and again after every pass from then on.
    /// `is_open` says of a key, declared or not, whether it is not as declared: a key that is neither declared nor open
    /// is not there, as far as it is ours. It must not block. [`Reconciler::run`](crate::Reconciler::run) calls it; the
    /// daemon does not. The default ignores it.
    fn passed(&mut self, is_open: &dyn Fn(&str) -> bool) {
        let _ = is_open;
    }
}

/// A desired state that does not change provides itself.
impl<D: Send + Sync + 'static> Provider for Arc<D> {
    type DesiredState = D;
    type Error = String;

    fn answer(&mut self) -> Later<'_, Answer<D>> {
        Box::pin(async { Answer::DesiredState(Arc::clone(self)) })
    }
}

/// Reads a file whenever it is asked. A file that is unreadable, broken, empty or [being written](Unfinished) is unknown,
/// with the reason: none of them says what is declared.
#[derive(Debug)]
pub struct File<F> {
    path: PathBuf,
    parse: F,
    /// Whether it was being written when it was last read.
    is_unfinished: bool,
}

impl<F> File<F> {
    /// Reads `path` and understands it by `parse`.
    pub fn new(path: impl Into<PathBuf>, parse: F) -> Self {
        File { path: path.into(), parse, is_unfinished: false }
    }
}

impl<D, E, F> Provider for File<F>
where
    D: Send + Sync + 'static,
    E: fmt::Display,
    F: FnMut(&str) -> Result<D, E> + Send,
{
    type DesiredState = D;
    type Error = String;

    fn answer(&mut self) -> Later<'_, Answer<D>> {
        Box::pin(async {
            let read = fs::read_to_string(&self.path).map_err(|error| error.to_string());
            // After it was read: who has not touched it for so long has not done so meanwhile either.
            let unfinished = Unfinished::find([&*self.path]);
            self.is_unfinished = unfinished.is_some();
            if let Some(unfinished) = unfinished {
                return Answer::Unknown { why: unfinished.failure().to_string() };
            }
            let parsed = read.and_then(|text| {
                // What a full disk leaves of a save.
                if text.trim().is_empty() {
                    return Err("it is empty".to_owned());
                }
                (self.parse)(&text).map_err(|error| error.to_string())
            });
            match parsed {
                Ok(desired) => Answer::DesiredState(Arc::new(desired)),
                Err(why) => Answer::Unknown { why: format!("`{}`: {why}", self.path.display()) },
            }
        })
    }

    /// To notice every change, ask [once a period](Every).
    fn changed(&mut self) -> Later<'_, ()> {
        let is_unfinished = self.is_unfinished;
        Box::pin(async move {
            if is_unfinished {
                return tokio::time::sleep(QUIET).await;
            }
            std::future::pending::<()>().await;
        })
    }
}

/// Asks another provider again after each period: for places that do not report their changes.
#[derive(Debug)]
pub struct Every<P> {
    period: Duration,
    provider: P,
}

impl<P> Every<P> {
    /// Asks `provider` once a period.
    pub fn new(period: Duration, provider: P) -> Self {
        Every { period, provider }
    }
}

impl<P: Provider> Provider for Every<P> {
    type DesiredState = P::DesiredState;
    type Error = P::Error;

    fn answer(&mut self) -> Later<'_, Answer<P::DesiredState, P::Error>> {
        self.provider.answer()
    }

    fn changed(&mut self) -> Later<'_, ()> {
        Box::pin(async {
            tokio::select! {
                () = tokio::time::sleep(self.period) => {}
                () = self.provider.changed() => {}
            }
        })
    }

    fn judged(&mut self, verdict: Verdict) {
        self.provider.judged(verdict);
    }

    fn passed(&mut self, is_open: &dyn Fn(&str) -> bool) {
        self.provider.passed(is_open);
    }
}

/// What a check says of a desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It can be used.
    Valid,
    /// It cannot, and checking it again would not help.
    Invalid {
        /// Why it cannot, for people.
        why: String,
    },
}

/// Checks desired states before they are used: a program that parses them, a service that knows the rules.
pub trait Validator<D>: Send {
    /// Checks a desired state. A failure means that the check could not be made: it says nothing about the desired
    /// state, which is checked again after a pause.
    fn validate<'a>(&'a mut self, desired: &'a D) -> Later<'a, Result<Validity, Failure>>;
}

/// The first pause before a check that could not be made is retried; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Passes on only what a [`Validator`] found valid. Until then the desired state is unknown, with the reason; what is
/// invalid is refused, so that its provider learns why. What was checked is not checked again; a check that could not be
/// made is made again after a pause that grows, or when there is another desired state.
pub struct Validated<P: Provider, V> {
    provider: P,
    validator: V,
    checked: Option<Checked<P::DesiredState>>,
}

/// The last desired state that was to be checked.
struct Checked<D> {
    desired: Arc<D>,
    result: Result<Validity, Failure>,
    /// How often in a row the check could not be made, and when it is made again.
    tries: u32,
    due: Instant,
}

impl<P: Provider<DesiredState: PartialEq>, V: Validator<P::DesiredState>> Validated<P, V> {
    /// Has `validator` check what `provider` says.
    pub fn new(provider: P, validator: V) -> Self {
        Validated { provider, validator, checked: None }
    }

    async fn check(&mut self, desired: Arc<P::DesiredState>) -> &Result<Validity, Failure> {
        let known = self.checked.take().filter(|checked| checked.desired == desired);
        let is_due = |known: &Checked<_>| known.result.is_err() && known.due <= Instant::now();
        let checked = match known {
            Some(known) if !is_due(&known) => known,
            known => {
                let result = self.validator.validate(&desired).await;
                let tries = known.map_or(0, |known| known.tries + 1);
                let pause = FIRST_PAUSE.saturating_mul(1 << tries.min(16)).min(LONGEST_PAUSE);
                Checked { desired, result, tries, due: Instant::now() + pause }
            }
        };
        &self.checked.insert(checked).result
    }
}

impl<P, V> Provider for Validated<P, V>
where
    P: Provider<DesiredState: PartialEq>,
    V: Validator<P::DesiredState>,
{
    type DesiredState = P::DesiredState;
    type Error = String;

    fn answer(&mut self) -> Later<'_, Answer<P::DesiredState>> {
        Box::pin(async {
            let desired = match self.provider.answer().await {
                Answer::DesiredState(desired) => desired,
                Answer::Unknown { why } => return Answer::Unknown { why: why.to_string() },
                Answer::Nothing => return Answer::Nothing,
            };
            match self.check(Arc::clone(&desired)).await {
                Ok(Validity::Valid) => Answer::DesiredState(desired),
                Ok(Validity::Invalid { why }) => {
                    let why = format!("it is not valid: {why}");
                    self.provider.judged(Verdict::Refused { why: why.clone() });
                    Answer::Unknown { why }
                }
                Err(failure) => Answer::Unknown { why: format!("it cannot be checked: {failure}") },
            }
        })
    }

    fn changed(&mut self) -> Later<'_, ()> {
        let unchecked = self.checked.as_ref().filter(|checked| checked.result.is_err());
        let due = unchecked.map(|checked| checked.due);
        Box::pin(async move {
            let again = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = again => {}
                () = self.provider.changed() => {}
            }
        })
    }

    fn judged(&mut self, verdict: Verdict) {
        self.provider.judged(verdict);
    }

    fn passed(&mut self, is_open: &dyn Fn(&str) -> bool) {
        self.provider.passed(is_open);
    }
}

/// A provider whose desired state another part of the program puts in. Needs no runtime. Nothing is known before
/// the first desired state is put in.
#[must_use]
pub fn channel<D>() -> (Sender<D>, Channel<D>) {
    let said = Said::new(Err("no desired state has been put in yet".to_owned()));
    let (sender, receiver) = watch::channel(Arc::clone(&said));
    (Sender(sender), Channel { receiver, answered: said })
}

/// The desired state that was put in, and the verdict about it.
struct Said<D> {
    desired: Result<Arc<D>, String>,
    verdict: Mutex<Option<Verdict>>,
}

impl<D> Said<D> {
    fn new(desired: Result<Arc<D>, String>) -> Arc<Self> {
        Arc::new(Said { desired, verdict: Mutex::new(None) })
    }

    fn verdict(&self) -> MutexGuard<'_, Option<Verdict>> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where desired states are put in. Once it is dropped, nothing more is known.
pub struct Sender<D>(watch::Sender<Arc<Said<D>>>);

impl<D> Sender<D> {
    /// Replaces the desired state.
    pub fn put(&self, desired: D) {
        self.0.send_replace(Said::new(Ok(Arc::new(desired))));
    }

    /// Says that the desired state is not known for the time being.
    pub fn unknown(&self, why: impl Into<String>) {
        self.0.send_replace(Said::new(Err(why.into())));
    }

    /// The verdict about the desired state that was put in last, once there is one.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.0.borrow().verdict().clone()
    }
}

impl<D> Drop for Sender<D> {
    fn drop(&mut self) {
        self.unknown("the sender of the desired state is gone");
    }
}

/// Where desired states come out.
pub struct Channel<D> {
    receiver: watch::Receiver<Arc<Said<D>>>,
    answered: Arc<Said<D>>,
}

impl<D: Send + Sync + 'static> Provider for Channel<D> {
    type DesiredState = D;
    type Error = String;

    fn answer(&mut self) -> Later<'_, Answer<D>> {
        self.answered = Arc::clone(&self.receiver.borrow_and_update());
        let answer = match &self.answered.desired {
            Ok(desired) => Answer::DesiredState(Arc::clone(desired)),
            Err(why) => Answer::Unknown { why: why.clone() },
        };
        Box::pin(std::future::ready(answer))
    }

    fn changed(&mut self) -> Later<'_, ()> {
        Box::pin(async {
            if self.receiver.changed().await.is_err() {
                // The sender is gone, and its last word was answered.
                std::future::pending::<()>().await;
            }
            // It stays a change until it is answered, so that a wait that is dropped loses nothing.
            self.receiver.mark_changed();
        })
    }

    fn judged(&mut self, verdict: Verdict) {
        *self.answered.verdict() = Some(verdict);
    }
}

/// The desired state that holds after a provider was asked.
#[derive(Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum CurrentDesired<D> {
    /// The provider's own answer.
    Fresh(Arc<D>),
    /// The provider cannot answer; this was its last good one.
    Stale {
        /// The last good desired state.
        desired: Arc<D>,
        /// Why there is none that is newer.
        why: String,
    },
    /// The provider has never answered: run no pass.
    Unknown { why: String },
    /// There is no desired state here: run no pass.
    Nothing,
}

/// A provider whose last good desired state stays in force while it cannot answer.
#[derive(Debug)]
pub struct Latest<P: Provider> {
    provider: P,
    good: Option<Arc<P::DesiredState>>,
    /// What [`Latest::next_desired`] returned last.
    handed: Option<Arc<P::DesiredState>>,
    /// The reason that it returned, while it holds.
    trouble: Option<String>,
}

impl<P: Provider> Latest<P> {
    /// Has not asked yet.
    pub fn new(provider: P) -> Self {
        Latest { provider, good: None, handed: None, trouble: None }
    }

    /// Asks the provider.
    pub async fn ask(&mut self) -> CurrentDesired<P::DesiredState> {
        let why = match self.provider.answer().await {
            Answer::DesiredState(desired) => {
                self.good = Some(desired.clone());
                return CurrentDesired::Fresh(desired);
            }
            Answer::Nothing => {
                self.good = None;
                return CurrentDesired::Nothing;
            }
            Answer::Unknown { why } => why.to_string(),
        };
        match &self.good {
            Some(good) => CurrentDesired::Stale { desired: good.clone(), why },
            None => CurrentDesired::Unknown { why },
        }
    }

    /// Waits until asking again may bring something else.
    pub async fn changed(&mut self) {
        self.provider.changed().await;
    }

    /// Says whether the last answer was accepted.
    pub fn judged(&mut self, verdict: Verdict) {
        self.provider.judged(verdict);
    }

    /// Says what passes left of the last answer that was accepted.
    pub fn passed(&mut self, is_open: &dyn Fn(&str) -> bool) {
        self.provider.passed(is_open);
    }

    /// The provider.
    pub fn provider(&self) -> &P {
        &self.provider
    }
}

impl<P: Provider<DesiredState: PartialEq>> Latest<P> {
    /// Waits for a desired state that differs from the last one that it returned, for a loop. An error says why the
    /// provider cannot answer; the last desired state stays in force, and the same reason is returned once. Dropping the
    /// future loses nothing.
    pub async fn next_desired(&mut self) -> Result<Arc<P::DesiredState>, String> {
        loop {
            match self.ask().await {
                CurrentDesired::Fresh(desired) => {
                    self.trouble = None;
                    if self.handed.as_ref() != Some(&desired) {
                        self.handed = Some(Arc::clone(&desired));
                        return Ok(desired);
                    }
                }
                CurrentDesired::Stale { why, .. } | CurrentDesired::Unknown { why } => {
                    if self.trouble.as_ref() != Some(&why) {
                        self.trouble = Some(why.clone());
                        return Err(why);
                    }
                }
                CurrentDesired::Nothing => self.trouble = None,
            }
            self.changed().await;
        }
    }
}
