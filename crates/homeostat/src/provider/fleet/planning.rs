//! What a document of the fleet would change on this machine, against its live state. Nothing is opened for writing.

use anyhow::Result;
use homeostat_document::Document;
use homeostat_engine::Kind;
use homeostat_fleet::Digest;
use homeostat_fleet::records::PlanResult;

use super::plain_text;
use crate::commands::plan;
use crate::context::Context;
use crate::output::text::{Closing, Detail, Drawing, Length};
use crate::output::{json, summary, text};

/// How many lines of a plan are sent, and how long each is at most: an answer is small.
const LINES: usize = 20;
const LONGEST_LINE: usize = 200;

pub(super) fn planned(context: &Context, document: &Document) -> PlanResult {
    planned_or_refused(context, document)
        .unwrap_or_else(|error| PlanResult::Refused { why: plain_text(&error) })
}

fn planned_or_refused(context: &Context, document: &Document) -> Result<PlanResult> {
    context.check_same(&document.settings)?;
    let reports = plan::plan(context, document)?;
    let (mut complete, mut drawn) = (Vec::new(), Vec::new());
    json::plan(&reports, &mut complete)?;
    let drawing = Drawing { detail: Detail::Normal, length: Length::Cut };
    text::plan(&reports, drawing, Closing::Plan, &mut drawn)?;
    let drawn = anstream::adapter::strip_bytes(&drawn).into_vec();
    let drawn = String::from_utf8_lossy(&drawn).into_owned();
    let lines = drawn.lines().take(LINES).map(|line| line.chars().take(LONGEST_LINE).collect());
    let summary = summary(&reports);
    let mut open = 0;
    for kind in Kind::open() {
        for source in &reports {
            source.report.explain(kind, &mut |_| open += 1);
        }
    }
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    Ok(PlanResult::Planned {
        digest: Digest::of(&complete),
        create: count(summary.create),
        update: count(summary.update + summary.replace),
        delete: count(summary.delete),
        open,
        lines: lines.collect(),
    })
}
