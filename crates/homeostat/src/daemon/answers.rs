//! What is answered to each request. Only what needs the daemon itself is ordered from it; everything
//! else goes straight to the loops.

mod keys;
mod passes;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use homeostat_engine::Control;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::command::{DaemonCommand, DaemonHandle};
use super::loops_snapshot::LoopsSnapshot;
use super::recent::Recent;
use crate::failure::{self, Helped};
use crate::registry;
use crate::wire::{FORMAT_VERSION, Request, SourceAnswer, refusal};

/// The longest that one request waits; who wants to wait longer asks again.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Everything that an answer is made of.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) snapshot: watch::Receiver<LoopsSnapshot>,
    pub(super) commands: DaemonHandle,
    pub(super) recent: Recent,
}

impl Answers {
    /// The answer to one request, as a line.
    pub(super) async fn answer(&self, request: Request) -> Vec<u8> {
        let line = match self.respond(request).await {
            Ok(line) => line,
            Err(error) => {
                let mut text = Vec::new();
                // Nothing fails to be written to memory.
                let _ = failure::write(&error, &mut text);
                refusal(&format!("{error:#}"), &String::from_utf8_lossy(&text)).to_string().into()
            }
        };
        // An answer is one line, whatever it was drawn as.
        let mut line: Vec<u8> = line.into_iter().filter(|byte| *byte != b'\n').collect();
        line.push(b'\n');
        line
    }

    async fn respond(&self, request: Request) -> Result<Vec<u8>> {
        // How it stands is told from the beginning. Everything else is about loops, which are not there yet while
        // the daemon starts: none of them could be paused, and all of none would be converged.
        if !matches!(request, Request::Status { .. } | Request::Events { .. }) {
            let mut snapshot = self.snapshot.clone();
            let arranged = snapshot.wait_for(|snapshot| snapshot.is_arranged).await;
            arranged.map_err(|_| anyhow!("the daemon is stopping"))?;
        }
        match request {
            Request::Status { wait_ms } => self.status(wait_ms).await,
            Request::Key(about) => self.key(&about).await,
            Request::Open { after, limit } => {
                answer(&self.snapshot.borrow().open(after.as_deref(), limit))
            }
            Request::Pause { for_ms, scope } => {
                let during = for_ms.map(Duration::from_millis);
                self.command_each(scope.as_deref(), |control| Ok(control.pause(during)?))
            }
            Request::Resume { scope } => {
                self.command_each(scope.as_deref(), |control| Ok(control.resume()?))
            }
            Request::Resync(ask) => self.passes(None, ask).await,
            Request::Reload(ask) => self.passes(Some(DaemonCommand::Reload), ask).await,
            Request::Apply { handed, ask } => {
                self.passes(Some(DaemonCommand::TakeDocument(handed)), ask).await
            }
            Request::Adopt { about, ask } => self.adopt(&about, ask).await,
            Request::Release(about) => self.release(&about).await,
            Request::Forget(about) => self.forget(&about).await,
            Request::Source { source, request } => self.source_command(&source, request).await,
            Request::Events { .. } => Err(Helped::error("events are told one by one", "ask again")),
        }
    }

    async fn status(&self, wait_ms: Option<u64>) -> Result<Vec<u8>> {
        let wait = Duration::from_millis(wait_ms.unwrap_or(0)).min(LONGEST_WAIT);
        let mut snapshot = self.snapshot.clone();
        let converged = async {
            loop {
                let now = snapshot.borrow_and_update().clone();
                if now.overview().converged {
                    return;
                }
                tokio::select! {
                    () = now.changed() => {}
                    changed = snapshot.changed() => if changed.is_err() { return },
                }
            }
        };
        // How things stand is told either way.
        let _ = tokio::time::timeout(wait, converged).await;
        answer(&self.snapshot.borrow().overview())
    }

    /// Carries out a command of a source, also if the client does not wait for the answer.
    async fn source_command(&self, source: &str, request: Value) -> Result<Vec<u8>> {
        let carry_out = registry::find(source).and_then(|source| source.command);
        let deps = self.snapshot.borrow().commands.clone();
        let (Some(carry_out), Some(deps)) = (carry_out, deps) else {
            return Err(anyhow!("the daemon carries out no commands of `{source}`"));
        };
        let answer = tokio::spawn(carry_out(deps, request)).await?.map_err(failure::of_source)?;
        self::answer(&SourceAnswer { format_version: FORMAT_VERSION, answer })
    }

    /// The loops of one scope, or all.
    fn loops(&self, scope: Option<&str>) -> Result<Vec<Arc<dyn Control>>> {
        let mut loops = self.snapshot.borrow().loops.clone();
        if let Some(scope) = scope {
            loops.retain(|control| control.ledger_key().scope == scope);
            if loops.is_empty() {
                return Err(Helped::error(
                    format!("no loop runs in a scope `{scope}`"),
                    "`homeostat status` names the scopes; the daemon's own is `host`",
                ));
            }
        }
        Ok(loops)
    }

    fn command_each(
        &self,
        scope: Option<&str>,
        command: impl Fn(&dyn Control) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let mut loops = Vec::new();
        for control in self.loops(scope)? {
            command(&*control)?;
            let ledger_key = control.ledger_key();
            loops.push(json!({ "source": ledger_key.source, "scope": ledger_key.scope }));
        }
        answer(&json!({ "format_version": FORMAT_VERSION, "loops": loops }))
    }
}

fn answer(answer: &impl Serialize) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Ask;

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_of_loops_waits_until_a_daemon_that_starts_has_arranged_them() {
        let snapshot = watch::Sender::new(LoopsSnapshot::default());
        let (commands, recent) = (DaemonHandle::new().0, Recent::default());
        let answers = Answers { snapshot: snapshot.subscribe(), commands, recent };
        let requests =
            || [Request::Resync(Ask::default()), Request::Pause { for_ms: None, scope: None }];
        for request in requests() {
            let early = tokio::time::timeout(LONGEST_WAIT, answers.answer(request)).await;
            assert!(early.is_err(), "{:?}", early.map(String::from_utf8));
        }
        let status = answers.answer(Request::Status { wait_ms: None }).await;
        assert!(String::from_utf8_lossy(&status).contains("\"converged\":false"), "that is told");
        snapshot.send_replace(LoopsSnapshot { is_arranged: true, ..LoopsSnapshot::default() });
        for request in requests() {
            let answer = String::from_utf8(answers.answer(request).await).unwrap();
            assert!(!answer.contains("error"), "{answer}");
        }
    }
}
