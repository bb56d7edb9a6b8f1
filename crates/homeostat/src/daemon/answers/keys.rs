//! What is asked about one key, of the loops whose source knows such a key.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use homeostat_engine::{Action, CommandRefused, Control, Entry, Explain, Finding, Kind};
use serde_json::json;

use super::passes::draw;
use super::{Answers, answer};
use crate::converge::Converging;
use crate::failure::Helped;
use crate::wire::{About, Ask, FORMAT_VERSION, KeyStatus};

/// Which finding about a key matters most.
const FIRST: [Kind; 6] =
    [Kind::Change, Kind::Held, Kind::Conflict, Kind::Failed, Kind::Pending, Kind::Unknown];

impl Answers {
    /// How a key stands wherever something is to be said of it.
    pub(super) async fn key(&self, about: &About) -> Result<Vec<u8>> {
        let found = self.find(about).await?.into_iter();
        let mut keys: Vec<KeyStatus> = found.map(|(_, status)| status).collect();
        let is_of_interest = |key: &KeyStatus| key.declared || key.state != UNDECLARED;
        if keys.iter().any(is_of_interest) {
            keys.retain(is_of_interest);
        }
        let converged = keys.iter().all(|key| key.converged);
        answer(&json!({
            "format_version": FORMAT_VERSION, "converged": converged, "keys": keys,
        }))
    }

    /// Takes a declared key once from whoever has it.
    pub(super) async fn adopt(&self, about: &About, ask: Ask) -> Result<Vec<u8>> {
        let mut found = self.find(about).await?;
        found.retain(|(_, status)| status.declared);
        if found.is_empty() {
            return Err(Helped::error(
                format!("`{}` is not declared, so there is nothing to take it for", about.key),
                "declare it in the document first",
            ));
        }
        let mut reports = Vec::new();
        for (control, status) in found {
            let mut adopted = Converging::new(Arc::clone(&control));
            adopted.record(control.adopt(&status.key).await?);
            reports.extend(adopted.report());
        }
        draw(&reports, ask)
    }

    /// Gives up a key that nobody declares. Where the mark is in the target, and no source can take it
    /// off, that is said.
    pub(super) async fn release(&self, about: &About) -> Result<Vec<u8>> {
        let found = self.find(about).await?;
        if let Some((_, status)) = found.iter().find(|(_, status)| status.declared) {
            return Err(Helped::error(
                format!("`{}` is declared in {}", status.key, status.scope),
                "take it out of the document first; `homeostat pause` keeps it where it is until \
                 it is released",
            ));
        }
        let mut released = Vec::new();
        for (control, status) in found {
            let is_known = control.forget(&status.key).await?.map_err(|error| anyhow!(error))?;
            let after = self.look(&*control, &status.key).await?;
            let marked = after.is_some_and(|after| after.state != UNDECLARED);
            if is_known || marked {
                let remains = marked.then_some(REMAINS);
                let KeyStatus { source, scope, key, .. } = status;
                released.push(json!({
                    "source": source, "scope": scope, "key": key,
                    "recorded": is_known, "remains": remains,
                }));
            }
        }
        answer(&json!({ "format_version": FORMAT_VERSION, "released": released }))
    }

    /// Drops what the ledger knows of a key.
    pub(super) async fn forget(&self, about: &About) -> Result<Vec<u8>> {
        let mut forgotten = Vec::new();
        for (control, status) in self.find(about).await? {
            if control.forget(&status.key).await?.map_err(|error| anyhow!(error))? {
                let KeyStatus { source, scope, key, .. } = status;
                forgotten.push(json!({ "source": source, "scope": scope, "key": key }));
            }
        }
        answer(&json!({ "format_version": FORMAT_VERSION, "forgotten": forgotten }))
    }

    /// Every loop whose source knows such a key looks at it.
    async fn find(&self, about: &About) -> Result<Vec<(Arc<dyn Control>, KeyStatus)>> {
        let mut found = Vec::new();
        for control in self.loops(about.scope.as_deref())? {
            if let Some(status) = self.look(&*control, &about.key).await? {
                found.push((control, status));
            }
        }
        if found.is_empty() {
            return Err(Helped::error(
                format!("`{}` is no key that any source here knows", about.key),
                "a key is written as plans print it, such as `route 10.0.0.0/8`",
            ));
        }
        Ok(found)
    }

    async fn look(&self, control: &dyn Control, key: &str) -> Result<Option<KeyStatus>> {
        let report = match control.look(key).await {
            Err(CommandRefused::NotAKey(_)) => return Ok(None),
            other => other?.map_err(|error| anyhow!(error))?,
        };
        let mut status = status(control, &*report, key);
        let last_applied = self.recent.last_applied(control.ledger_key(), &status.key);
        status.last_heal = last_applied.and_then(|line| serde_json::from_str(&line).ok());
        Ok(Some(status))
    }
}

const UNDECLARED: &str = "undeclared";

/// What is to be known of a mark in the target.
const REMAINS: &str = "the target still holds our mark, which this source cannot take off: give it \
                       another one by hand (`ip route change ... proto static`), or the next pass \
                       that nothing holds back removes it";

/// How a key stands, by the report of a look at it.
fn status(control: &dyn Control, report: &dyn Explain, text: &str) -> KeyStatus {
    let about = report.about(text);
    let key = about.as_ref().map_or(text, |about| &about.key).to_owned();
    let wanted = about.and_then(|about| about.wanted);
    let declared = wanted.is_some();
    let mut status = KeyStatus {
        source: control.ledger_key().source.clone(),
        scope: control.ledger_key().scope.clone(),
        declared,
        converged: true,
        state: if declared { "as-declared" } else { UNDECLARED }.to_owned(),
        owner: declared.then(|| "ours".to_owned()),
        held: wanted.clone(),
        wanted,
        key,
        ..KeyStatus::default()
    };
    // What matters most comes last, so that its word stands.
    for kind in Kind::in_order(&FIRST).collect::<Vec<_>>().into_iter().rev() {
        report.explain(kind, &mut |entry| learn(&mut status, entry));
    }
    status
}

fn learn(status: &mut KeyStatus, entry: Entry) {
    if entry.key() != status.key {
        return;
    }
    status.converged = !entry.kind().is_open();
    let finding = match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => {
            let is_absent = line.action == Action::Create;
            let state = if is_absent { "absent" } else { "differs" };
            (status.state, status.held) = (state.to_owned(), line.before);
            status.owner = (!is_absent).then(|| "ours".to_owned());
            status.reason = line.note;
            return;
        }
        Entry::Finding { finding, .. } => finding,
    };
    let state = match finding.kind() {
        Kind::Failed => "refused",
        Kind::Conflict => "conflict",
        kind => kind.list(),
    };
    state.clone_into(&mut status.state);
    if finding.is_open() {
        (status.held, status.owner) = (None, None);
    }
    match finding {
        Finding::Held { action, why } => {
            status.owner = (action != Action::Create).then(|| "ours".to_owned());
            status.reason = Some(format!("{}: {why}", action.word()));
        }
        Finding::Conflict { owner, reason } => {
            (status.owner, status.reason) = (Some(owner.to_string()), Some(reason.to_string()));
        }
        Finding::Failed { failure, .. } | Finding::NotShown { failure, .. } => {
            status.reason = Some(failure.error);
        }
        Finding::Pending { on } => status.waits_on = Some(on.to_string()),
        Finding::Unknown { why } => status.reason = Some(why),
        Finding::Settled { held, .. } => status.held = Some(*held),
        Finding::Matched { owner } => status.owner = Some(owner.to_string()),
    }
}
