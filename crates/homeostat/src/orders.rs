//! Signed orders: which commands need one, and whether one that is given is good for what would be done.
//!
//! [`OrderGate::check`] is called by whoever carries out a command, right before it: the daemon, or a process that holds
//! the lock itself. An order that is good is written to the owner's journal, and only then used: it is never good again,
//! whatever becomes of the process. One that is refused is written there, too.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_document::Settings;
use homeostat_engine::journal::{
    CommandKey, End, Illegal, Intent, Journal, JournalError, Millis, Repeat, Subject,
};
use homeostat_fleet::order::{self, Order, Refusal, SignedOrder, judge};
use homeostat_fleet::{AllowedSigners, Digest, Time};
use homeostat_registry::{Caller, Described, OwnerJournal, Registration, machine_identity};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::commands::saved;
use crate::confirmed::ConfirmedDocuments;
use crate::daemon::clock::Stamp;
use crate::failure::{helped, of_source};
use crate::output::{SourceReport, summary};

/// What journals call orders.
const SOURCE: &str = "orders";
/// An order is known for so long after its time is over: a clock that is set back makes no used order good.
const KEPT_AFTER: Duration = Duration::from_hours(30 * 24);

/// By what right a command is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Right {
    /// By that of who calls.
    #[default]
    Own,
    Order(SignedOrder),
    /// It was checked before, for the same request.
    Checked,
    /// By none: it is only asked what an order would have to say.
    Describe,
}

/// What an order must say for the command that was asked for. As an error, it ends a command before anything is done.
#[derive(Debug, thiserror::Error)]
#[error("nothing was done: it was only asked what would be")]
pub(crate) struct ToOrder(pub(crate) order::Command);

/// A command that was refused since it needs an order, or has one that is not good.
#[derive(Debug, thiserror::Error)]
#[error("the command was refused")]
pub(crate) struct OrderRefused;

/// What a command does, for an order.
pub(crate) struct OrderedAction {
    /// The words by which documents require orders for it.
    pub(crate) actions: Vec<String>,
    pub(crate) key: String,
    pub(crate) plan: Digest,
}

impl OrderedAction {
    /// What would be done for a document.
    pub(crate) fn of_plan(actions: Vec<String>, reports: &[SourceReport]) -> Result<Self> {
        let sum = summary(reports);
        let key = format!(
            "{} to create, {} to update, {} to replace, {} to delete",
            sum.create, sum.update, sum.replace, sum.delete
        );
        Ok(OrderedAction { actions, key, plan: saved::digest(reports)? })
    }

    /// What a request to a source asks for; nothing, if no order can be required for it.
    pub(crate) fn of_source(source: &Registration, request: &Value) -> Result<Option<Self>> {
        let described = (source.describe)(request).map_err(of_source)?;
        let Described { action, key } = described;
        let plan = json!({ "source": source.name(), "request": request });
        let ordered = OrderedAction { actions: vec![action.to_owned()], key, plan: digest(&plan)? };
        Ok((!action.is_empty()).then_some(ordered))
    }

    /// What is done to keys that stand like this.
    pub(crate) fn of_keys(action: &str, key: &str, keys: &Value) -> Result<Self> {
        let plan = json!({ "action": action, "keys": keys });
        let (actions, key) = (vec![action.to_owned()], key.to_owned());
        Ok(OrderedAction { actions, key, plan: digest(&plan)? })
    }
}

/// What documents say of orders, and where used ones are recorded.
#[derive(Clone, Default)]
pub(crate) struct OrderGate {
    owner: String,
    journal: Option<OwnerJournal>,
    rules: Vec<Rules>,
}

/// What one document says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rules {
    required: BTreeSet<String>,
    signers: Option<PathBuf>,
    needed: usize,
}

impl Rules {
    fn of(settings: &Settings) -> Self {
        let orders = &settings.orders;
        let required = orders.required.iter().map(|action| action.as_str().to_owned());
        Rules {
            required: required.collect(),
            signers: orders.allowed_signers.clone(),
            needed: orders.signatures.unwrap_or(1).into(),
        }
    }

    fn requires(&self, actions: &[String]) -> bool {
        actions.iter().any(|action| self.required.contains(action))
    }

    fn judge(&self, signed: &SignedOrder, command: &order::Command) -> Result<Option<Order>> {
        let Some(path) = &self.signers else { return Ok(None) };
        let unusable = |why: &dyn std::fmt::Display| {
            helped(
                format!("the allowed signers {} cannot be used: {why}", path.display()),
                "mend the file that `allowed-signers` of [settings] names; until then no order is good",
            )
        };
        let text = fs::read_to_string(path).map_err(|error| unusable(&error))?;
        let signers = AllowedSigners::parse(&text).map_err(|error| unusable(&error))?;
        let judged = judge(signed, command, &signers, self.needed, now());
        judged.map(Some).map_err(|refusal: Refusal| helped(refusal.to_string(), refusal.help()))
    }
}

impl OrderGate {
    /// What this document says.
    pub(crate) fn of(caller: &Caller, settings: &Settings) -> Self {
        let (owner, journal) = (caller.owner.clone(), caller.journal.clone());
        OrderGate { owner, journal, rules: vec![Rules::of(settings)] }
    }

    /// The same for a process without a daemon: what the last confirmed document says is in force, too.
    pub(crate) fn where_no_daemon_runs(caller: &Caller, settings: &Settings) -> Self {
        let confirmed = ConfirmedDocuments::of(&caller.state_dir, &caller.owner);
        OrderGate::of(caller, settings).and(&confirmed.last_settings())
    }

    /// The same with what another document says: both must be met.
    pub(crate) fn and(mut self, settings: &Settings) -> Self {
        let rules = Rules::of(settings);
        if !self.rules.contains(&rules) {
            self.rules.push(rules);
        }
        self
    }

    /// Whether an order is needed for any of these actions.
    pub(crate) fn requires(&self, actions: &[String]) -> bool {
        self.rules.iter().any(|rules| rules.requires(actions))
    }

    /// Whether what a command does must be known before it may be carried out.
    pub(crate) fn must_know(&self, right: &Right, actions: &[String]) -> bool {
        match right {
            Right::Own => self.requires(actions),
            Right::Checked => false,
            Right::Order(_) | Right::Describe => true,
        }
    }

    /// Lets a command be carried out, once: by its order, or because it needs none. Returns the order that was used.
    pub(crate) async fn check(
        &self,
        right: &Right,
        ordered: OrderedAction,
    ) -> Result<Option<Order>> {
        let OrderedAction { actions, key, plan } = ordered;
        let owner = self.owner.clone();
        let command = order::Command { machine: machine(), owner, actions, key, plan };
        let signed = match right {
            Right::Describe => return Err(ToOrder(command).into()),
            Right::Checked => return Ok(None),
            Right::Own if !self.requires(&command.actions) => return Ok(None),
            Right::Own => {
                let actions = command.actions.join(", ");
                let why = helped(
                    format!("{actions} of `{}` needs a signed order here", command.key),
                    "make one with `homeostat order --out FILE COMMAND`, have it signed, and give --order FILE",
                );
                return Err(self.refuse(&command, why).await);
            }
            Right::Order(signed) => signed,
        };
        match self.use_order(signed, &command).await {
            Ok(order) => Ok(Some(order)),
            Err(why) => Err(self.refuse(&command, why).await),
        }
    }

    async fn use_order(&self, signed: &SignedOrder, command: &order::Command) -> Result<Order> {
        let mut good = None;
        for rules in &self.rules {
            good = rules.judge(signed, command)?.or(good);
        }
        let order = good.ok_or_else(|| {
            helped(
                "an order was given, and the document does not say who may sign orders",
                "leave out --order, or write `allowed-signers = \"FILE\"` into [settings]",
            )
        })?;
        let used = format!("order {}", order.id);
        let expires = Millis(order.not_after.after(KEPT_AFTER).as_millis());
        let recorded = self.record(command, Some(CommandKey { name: used, expires }), None).await;
        match recorded {
            Ok(()) => Ok(order),
            Err(JournalError::Illegal(Illegal::Command(_))) => Err(helped(
                format!("the order {} was used before", order.id),
                "`homeostat journal --source orders` shows when; for another time, make a new order and have it signed",
            )),
            Err(error) => {
                Err(anyhow::Error::from(error).context("the order cannot be recorded as used"))
            }
        }
    }

    /// Records a refusal, and returns it as an error.
    async fn refuse(&self, command: &order::Command, why: anyhow::Error) -> anyhow::Error {
        // It is refused also if that cannot be recorded.
        let _ = self.record(command, None, Some(format!("{why:#}"))).await;
        why.context(OrderRefused)
    }

    /// A step of the journal that ends at once: an order that is used has a name there, which is never begun again.
    async fn record(
        &self,
        command: &order::Command,
        name: Option<CommandKey>,
        refused: Option<String>,
    ) -> Result<(), JournalError> {
        /// A key has one open step at a time.
        static ONE: Mutex<()> = Mutex::const_new(());
        let _one = ONE.lock().await;
        let Some(journal) = &self.journal else {
            let (journal, why) = ("of orders".to_owned(), "this process only reads".to_owned());
            return Err(JournalError::Shared { journal, why, help: String::new() });
        };
        let journal = journal.open()?;
        let (scope, key) = ("host".to_owned(), command.key.clone());
        let subject = Subject { source: SOURCE.to_owned(), scope, key };
        close_left(&journal, &subject).await?;
        let intent = Intent {
            subject,
            kind: command.actions.join(","),
            parameters: command.plan.to_string(),
            precondition: None,
            node: String::new(),
            repeat: Repeat::Hurts,
            command: name,
        };
        let id = journal.begin(intent).await?;
        let end = match refused {
            None => End::Succeeded { answer: Value::Null },
            Some(why) => End::Failed { why },
        };
        journal.end(id, end).await
    }
}

/// A process that was killed between the two records has used the order.
async fn close_left(journal: &Journal, subject: &Subject) -> Result<(), JournalError> {
    match journal.open_step(subject) {
        Some(left) => journal.end(left.id, End::Succeeded { answer: Value::Null }).await,
        None => Ok(()),
    }
}

fn digest(plan: &Value) -> Result<Digest> {
    Ok(Digest::of(&serde_json::to_vec(plan)?))
}

/// The order in a file, with the signatures in the files beside it: `FILE.sig`, `FILE.NAME.sig`.
pub(crate) fn read(path: &Path) -> Result<Right> {
    let whole = || format!("cannot read the order {}", path.display());
    let order = fs::read_to_string(path).with_context(whole)?;
    let mut signatures = Vec::new();
    for file in signature_files(path).with_context(whole)? {
        signatures.push(fs::read_to_string(&file).with_context(|| file.display().to_string())?);
    }
    Ok(Right::Order(SignedOrder { order, signatures }))
}

fn signature_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let other = entry.file_name().to_string_lossy().into_owned();
        let rest = other.strip_prefix(&name);
        let is_signature = entry.path().extension().is_some_and(|kind| kind == "sig");
        if is_signature && rest.is_some_and(|rest| rest.starts_with('.')) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// How orders name this machine: its host name, for people, and a digest of its id.
fn machine() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host} {}", Digest::of(format!("homeostat order {}", machine_identity()).as_bytes()))
}

fn now() -> Time {
    Time::of_millis(Stamp::now().as_millis())
}
