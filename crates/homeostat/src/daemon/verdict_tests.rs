//! Which verdicts the daemon gives its provider on its documents.

use std::sync::{Arc, Mutex};

use anyhow::anyhow;
use clap::Parser as _;
use homeostat_document::{Document, Format};
use homeostat_engine::MemoryLedger;
use homeostat_engine::outcome::Later;
use homeostat_kit::provider::{Answer, Provider, Verdict};
use homeostat_testkit::namespace::Namespace;

use super::scopes::Recipients;
use super::{Daemon, Options};
use crate::cli::Cli;
use crate::context::Context;
use crate::provider::DocumentProvider;
use crate::registry::READER;

fn document(text: &str) -> Arc<Document> {
    Arc::new(READER.parse("host.toml", Format::Toml, text).unwrap())
}

/// Gives these texts, one after the other, and then cannot answer.
struct Scripted {
    texts: std::vec::IntoIter<&'static str>,
    verdicts: Arc<Mutex<Vec<Verdict>>>,
}

impl DocumentProvider for Scripted {}

impl Provider for Scripted {
    type DesiredState = Document;
    type Error = anyhow::Error;

    fn answer(&mut self) -> Later<'_, Answer<Document, anyhow::Error>> {
        let answer = match self.texts.next() {
            Some(text) => Answer::DesiredState(document(text)),
            None => Answer::Unknown { why: anyhow!("the store is gone") },
        };
        Box::pin(std::future::ready(answer))
    }

    fn judged(&mut self, verdict: Verdict) {
        self.verdicts.lock().unwrap().push(verdict);
    }
}

#[tokio::test]
async fn the_provider_learns_whether_its_document_was_accepted_or_refused() {
    let _namespace = Namespace::enter().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().to_str().unwrap();
    let cli = Cli::try_parse_from(["homeostat", "--state-dir", state, "schema"]).unwrap();
    let first = document("");
    let context = Context::enter(cli.global, &first.settings).unwrap();
    let verdicts = Arc::new(Mutex::new(Vec::new()));
    let texts =
        vec!["", "[links.lo]\nup = true\n", "[settings]\nowner = \"other\"\nprotocol = 77\n"];
    let provider = Scripted { texts: texts.into_iter(), verdicts: Arc::clone(&verdicts) };
    let ledger = Arc::new(MemoryLedger::default());
    let mut daemon = Daemon::new(context, Box::new(provider), first, ledger, Options::default());
    let mut reload = async || {
        let reloaded = daemon.reload(Recipients::Changed, None).await;
        (
            reloaded.map_err(|error| error.to_string()),
            std::mem::take(&mut *verdicts.lock().unwrap()),
        )
    };
    assert_eq!(reload().await, (Ok(()), vec![Verdict::Accepted]), "the same again");
    assert_eq!(reload().await, (Ok(()), vec![Verdict::Accepted]), "another one");
    let why = "the new document has another owner or protocol".to_owned();
    let refused = vec![Verdict::Refused { why: why.clone() }];
    assert_eq!(reload().await, (Err(why), refused), "one that cannot be taken");
    assert_eq!(reload().await, (Err("the store is gone".to_owned()), vec![]), "there was none");
}
