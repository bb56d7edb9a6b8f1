//! The result of one call, by typed keys: a value to match on, to print and to serialize.

use std::fmt;

use homeostat_engine::{
    Action, Cause, Entry, Explain, Failure, Finding, Key, Kind, Line, Summary, WaysOut,
};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// One change of one key.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct Change<K> {
    pub key: K,
    pub action: Action,
    /// Why: the desired state is new, or the target drifted from it.
    pub cause: Cause,
    /// What was there.
    pub before: Option<Value>,
    /// What is there afterwards.
    pub after: Option<Value>,
}

/// What would be done, and what would not, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan<K> {
    /// The changes, in their order.
    pub changes: Vec<Change<K>>,
    /// Why other keys are not simply as declared.
    pub findings: Vec<(K, Finding)>,
    ways_out: WaysOut,
}

/// What was done, and what was not, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report<K> {
    /// The changes that were made and verified, in their order.
    pub applied: Vec<Change<K>>,
    /// Why keys are not simply as declared. Not all need action: see [`Finding::is_open`]. [`Finding::Settled`], for
    /// one, needs none: the target kept another value than it was given, twice in a row, and is not asked again.
    pub findings: Vec<(K, Finding)>,
    /// Why the last pass could not be made as a whole, or could not be recorded.
    pub trouble: Option<Failure>,
    ways_out: WaysOut,
}

/// A report in one word.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<'a, K> {
    /// Everything is as declared.
    Converged,
    /// These keys are not as declared.
    Open(Vec<(&'a K, &'a Finding)>),
    /// The target could not be looked at as a whole, or what was written could not be recorded.
    Broken(&'a Failure),
}

impl<K: Key> Plan<K> {
    /// `ways_out` has the words of the caller.
    pub(crate) fn of(plan: &dyn Explain, ways_out: WaysOut) -> Self {
        let (changes, findings) = collect(plan);
        Plan { changes, findings, ways_out }
    }

    /// Whether nothing has to be changed, and nothing is in the way.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        self.changes.is_empty() && !self.findings.iter().any(|(_, finding)| finding.is_open())
    }

    /// Why a key is not simply as declared.
    #[must_use]
    pub fn finding(&self, key: &K) -> Option<&Finding> {
        finding(&self.findings, key)
    }

    /// How many changes of each action.
    #[must_use]
    pub fn summary(&self) -> Summary {
        summary(&self.changes)
    }
}

impl<K: Key> Report<K> {
    /// `trouble` is why the last pass could not be made or recorded.
    pub(crate) fn of(passes: &dyn Explain, trouble: Option<Failure>, ways_out: WaysOut) -> Self {
        let (applied, findings) = collect(passes);
        Report { applied, findings, trouble, ways_out }
    }

    /// Whether everything is as declared.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        matches!(self.verdict(), Verdict::Converged)
    }

    /// The report in one word.
    #[must_use]
    pub fn verdict(&self) -> Verdict<'_, K> {
        if let Some(trouble) = &self.trouble {
            return Verdict::Broken(trouble);
        }
        let open = self.findings.iter().filter(|(_, finding)| finding.is_open());
        let open: Vec<_> = open.map(|(key, finding)| (key, finding)).collect();
        if open.is_empty() { Verdict::Converged } else { Verdict::Open(open) }
    }

    /// Why a key is not simply as declared.
    #[must_use]
    pub fn finding(&self, key: &K) -> Option<&Finding> {
        finding(&self.findings, key)
    }

    /// How many changes of each action.
    #[must_use]
    pub fn summary(&self) -> Summary {
        summary(&self.applied)
    }
}

/// The changes and the findings of a plan or of passes. A text that is no key belongs to no object, and is left out.
fn collect<K: Key>(explain: &dyn Explain) -> (Vec<Change<K>>, Vec<(K, Finding)>) {
    let (mut changes, mut findings) = (Vec::new(), Vec::new());
    for kind in Kind::ALL {
        explain.explain(kind, &mut |entry| match entry {
            Entry::Change(line, cause) | Entry::Applied(line, cause) => {
                let Line { action, key, before, after, .. } = line;
                let Ok(key) = key.parse() else { return };
                changes.push(Change { key, action, cause, before, after });
            }
            Entry::Finding { key, finding } => {
                findings.extend(key.parse().ok().map(|key| (key, finding)));
            }
            // Of a pass that failed as a whole the caller knows.
            _ => {}
        });
    }
    (changes, findings)
}

fn finding<'a, K: Eq>(findings: &'a [(K, Finding)], key: &K) -> Option<&'a Finding> {
    findings.iter().find(|(found, _)| found == key).map(|(_, finding)| finding)
}

fn summary<K>(changes: &[Change<K>]) -> Summary {
    let mut summary = Summary::default();
    for change in changes {
        summary.count(change.action);
    }
    summary
}

impl<K: Key> Change<K> {
    fn line(&self) -> Line {
        let (key, action) = (self.key.to_string(), self.action);
        let (before, after) = (self.before.clone(), self.after.clone());
        Line { before, after, ..Line::new(action, key) }
    }
}

/// One line a change and a finding, and a last line that sums up.
impl<K: Key> fmt::Display for Plan<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(f, &self.changes, &self.findings, &self.ways_out)?;
        if self.is_converged() {
            return f.write_str("no changes");
        }
        let Summary { create, update, replace, delete, .. } = self.summary();
        write!(
            f,
            "{create} to create, {update} to update, {replace} to replace, {delete} to delete"
        )
    }
}

/// One line a change and a finding, and a last line that sums up.
impl<K: Key> fmt::Display for Report<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(f, &self.applied, &self.findings, &self.ways_out)?;
        if let Some(Failure { error, help, .. }) = &self.trouble {
            writeln!(f, "! {error}")?;
            help.iter().try_for_each(|help| writeln!(f, "  help: {help}"))?;
        }
        let Summary { create, update, replace, delete, .. } = self.summary();
        write!(f, "{create} created, {update} updated, {replace} replaced, {delete} deleted")?;
        match self.verdict() {
            Verdict::Converged => f.write_str("; everything is as declared"),
            Verdict::Open(open) if open.len() == 1 => f.write_str("; 1 key is not as declared"),
            Verdict::Open(open) => write!(f, "; {} keys are not as declared", open.len()),
            Verdict::Broken(_) => f.write_str("; whether all is as declared is not known"),
        }
    }
}

fn write_lines<K: Key>(
    f: &mut fmt::Formatter<'_>,
    changes: &[Change<K>],
    findings: &[(K, Finding)],
    ways_out: &WaysOut,
) -> fmt::Result {
    for Change { key, action, .. } in changes {
        writeln!(f, "{} {key}", action.sign())?;
    }
    for (key, finding) in findings.iter().filter(|(_, finding)| finding.is_open()) {
        writeln!(f, "! {key}: {}", finding.reason())?;
        finding.help(ways_out).iter().try_for_each(|help| writeln!(f, "  help: {help}"))?;
    }
    Ok(())
}

/// A list for each kind, as in the plans of the program.
impl<K: Key> Serialize for Plan<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("converged", &self.is_converged())?;
        let changes = self.changes.iter().map(|change| Entry::Change(change.line(), change.cause));
        map.serialize_entry("changes", &changes.collect::<Vec<_>>())?;
        serialize_findings::<K, S>(&mut map, &self.findings)?;
        map.serialize_entry("summary", &self.summary())?;
        map.end()
    }
}

/// A list for each kind, as in the reports of the program.
impl<K: Key> Serialize for Report<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("converged", &self.is_converged())?;
        let applied = self.applied.iter().map(|change| Entry::Applied(change.line(), change.cause));
        map.serialize_entry("applied", &applied.collect::<Vec<_>>())?;
        serialize_findings::<K, S>(&mut map, &self.findings)?;
        map.serialize_entry("trouble", &self.trouble)?;
        map.serialize_entry("summary", &self.summary())?;
        map.end()
    }
}

fn serialize_findings<K: Key, S: Serializer>(
    map: &mut S::SerializeMap,
    findings: &[(K, Finding)],
) -> Result<(), S::Error> {
    let kinds = Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Change | Kind::Applied));
    for kind in kinds {
        let entries = findings.iter().filter(|(_, finding)| finding.kind() == kind);
        let entries = entries.map(|(key, finding)| Entry::Finding {
            key: key.to_string(),
            finding: finding.clone(),
        });
        map.serialize_entry(kind.list(), &entries.collect::<Vec<_>>())?;
    }
    Ok(())
}
