//! A document of 50 MB: 700,000 routes that are written out, in each format. Lists of routes in files of their own are
//! measured elsewhere; they are the way to declare so many.

use std::fmt::Write as _;

use anyhow::Result;

use super::document::Document;
use crate::clock;
use crate::{Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        Group::new("document: check of 700k routes", Unit::Seconds)
            .with("TOML", |run| time(run, TOML), &[])
            .with("JSON", |run| time(run, JSON), &[])
            .with("YAML", |run| time(run, YAML), &[]),
        Group::new("document: peak memory of that check", Unit::Bytes)
            .with("TOML", |run| weigh(run, TOML), &[])
            .with("JSON", |run| weigh(run, JSON), &[])
            .with("YAML", |run| weigh(run, YAML), &[]),
    ]
}

/// How a document is written.
#[derive(Clone, Copy)]
struct Format {
    name: &'static str,
    before: &'static str,
    /// One route, with `@` for its destination.
    route: &'static str,
    between: &'static str,
    after: &'static str,
}

const TOML: Format = Format {
    name: "large.toml",
    before: "",
    route: "[[routes]]\nto = \"@\"\nvia = \"192.0.2.1\"\ndev = \"e0\"\nonlink = true\n",
    between: "",
    after: "",
};
const JSON: Format = Format {
    name: "large.json",
    before: "{\"routes\": [\n",
    route: "{\"to\": \"@\", \"via\": \"192.0.2.1\", \"dev\": \"e0\", \"onlink\": true}",
    between: ",\n",
    after: "\n]}\n",
};
const YAML: Format = Format {
    name: "large.yaml",
    before: "routes:\n",
    route: "- to: \"@\"\n  via: 192.0.2.1\n  dev: e0\n  onlink: true\n",
    between: "",
    after: "",
};

impl Format {
    fn document(self, run: &Run) -> Result<Document> {
        let mut text = self.before.to_owned();
        for nth in 0..run.size(700_000, 100) {
            if nth > 0 {
                text.push_str(self.between);
            }
            let [first, second, third] = [nth >> 16, nth >> 8, nth].map(|part| part & 0xff);
            let (start, end) = self.route.split_once('@').unwrap_or_default();
            write!(text, "{start}{}.{second}.{third}.0/24{end}", 10 + first)?;
        }
        text.push_str(self.after);
        Document::called(self.name, &text)
    }
}

fn time(run: &mut Run, format: Format) -> Result<()> {
    let document = format.document(run)?;
    let (checked, time) = clock::time(|| document.run(&["check"]));
    checked?;
    run.record(time.as_secs_f64());
    Ok(())
}

fn weigh(run: &mut Run, format: Format) -> Result<()> {
    let peak = format.document(run)?.peak("check")?;
    run.record_bytes(peak);
    Ok(())
}
