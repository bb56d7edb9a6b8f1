//! Saved plans: the document and what was planned for it, so that `apply` does that and nothing else.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use homeostat_document::{Document, SourceText};
use homeostat_fleet::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::confirmed::from_root;
use crate::failure::helped;
use crate::output::{SourceReport, json};
use crate::provider::understand;
use crate::registry::READER;

/// How a saved plan begins, whatever its name is.
const BEGINNING: &[u8] = b"{\"homeostat_plan\":";
const VERSION: &str = "1.0";
/// What must be the same for a plan to be the same.
const COMPARED: [&str; 4] = ["changes", "conflicts", "held", "refused"];
/// How many of the lines that moved are listed.
const LISTED: usize = 10;

/// A plan, as it is on disk.
#[derive(Deserialize, Serialize)]
pub(super) struct Saved {
    homeostat_plan: String,
    documents: Vec<SourceText>,
    plan: Value,
}

/// Saves a plan with the document that it was made for.
pub(super) fn save(path: &Path, document: &Document, reports: &[SourceReport]) -> Result<()> {
    let documents = document.files.texts().into_iter().map(from_root).collect();
    let saved = Saved { homeostat_plan: VERSION.to_owned(), documents, plan: planned(reports)? };
    let whole = || format!("cannot save the plan to {}", path.display());
    // A document may hold what not everybody should read.
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = BufWriter::new(file.with_context(whole)?);
    serde_json::to_writer(&mut file, &saved).with_context(whole)?;
    file.write_all(b"\n").and_then(|()| file.flush()).with_context(whole)
}

/// A digest of what must be the same for a plan to be the same.
pub(crate) fn digest(reports: &[SourceReport]) -> Result<Digest> {
    let plan = planned(reports)?;
    let compared = COMPARED.map(|list| plan.get(list).cloned().unwrap_or_default());
    Ok(Digest::of(&serde_json::to_vec(&compared)?))
}

fn planned(reports: &[SourceReport]) -> Result<Value> {
    let mut text = Vec::new();
    json::plan(reports, &mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// The saved plan in a file; nothing, if it is something else.
pub(super) fn read(path: &Path) -> Result<Option<Saved>> {
    let whole = || format!("cannot read {}", path.display());
    if !path.is_file() {
        return Ok(None);
    }
    let mut beginning = Vec::new();
    let file = fs::File::open(path).with_context(whole)?;
    file.take(BEGINNING.len() as u64).read_to_end(&mut beginning).with_context(whole)?;
    if beginning != BEGINNING {
        return Ok(None);
    }
    let damaged = |why: &dyn std::fmt::Display| {
        let help = "make it again: homeostat plan --out";
        helped(format!("the plan {} cannot be used: {why}", path.display()), help)
    };
    let text = fs::read(path).with_context(whole)?;
    let saved: Saved = serde_json::from_slice(&text).map_err(|error| damaged(&error))?;
    if saved.homeostat_plan != VERSION {
        return Err(damaged(&format!("it has version {}", saved.homeostat_plan)));
    }
    Ok(Some(saved))
}

impl Saved {
    /// The document that the plan was made for.
    pub(super) fn document(&self) -> Result<Document> {
        understand(READER.restore(self.documents.clone()))
    }

    /// The files of the document, if they still hold what the plan was made for.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>> {
        let file = |saved: &SourceText| {
            let path = PathBuf::from(&saved.name);
            let is_same = fs::read_to_string(&path).is_ok_and(|text| text == saved.text);
            is_same.then_some(path).ok_or_else(|| {
                let error =
                    format!("{} is gone or has changed since the plan was made", saved.name);
                helped(error, "make a new plan: homeostat plan --out")
            })
        };
        // Pieces are the daemon's own.
        let documents = self.documents.iter().filter(|saved| saved.piece.is_none());
        documents.map(file).collect()
    }

    /// Refuses if what would be done now is not what was planned, and says what moved.
    pub(super) fn check(&self, reports: &[SourceReport]) -> Result<()> {
        let now = planned(reports)?;
        if COMPARED.iter().all(|list| self.plan.get(list) == now.get(list)) {
            return Ok(());
        }
        let [then, now] = [&self.plan, &now].map(lines);
        let mut moved = String::from("the machine moved since the plan was made");
        for (title, lines) in [("planned then", &then - &now), ("planned now", &now - &then)] {
            for line in lines.iter().take(LISTED) {
                let _ = write!(moved, "\n  {title}: {line}");
            }
            if let Some(more @ 1..) = lines.len().checked_sub(LISTED) {
                let _ = write!(moved, "\n  {title}: and {more} more");
            }
        }
        let help = "nothing was changed; make a new plan: homeostat plan --out";
        Err(helped(moved, help))
    }
}

/// The changes of a plan, and what stands in their way, a line each.
fn lines(plan: &Value) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for list in COMPARED {
        for entry in plan.get(list).and_then(Value::as_array).into_iter().flatten() {
            let word = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
            let what = if list == "changes" { word("action") } else { list };
            let value = |field: &str| match entry.get(field) {
                None | Some(Value::Null) => "nothing".to_owned(),
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
            };
            let change = match list {
                "changes" => format!(", {} -> {}", value("before"), value("after")),
                _ => String::new(),
            };
            lines.insert(format!("{what} {}{change}", word("key")));
        }
    }
    lines
}
