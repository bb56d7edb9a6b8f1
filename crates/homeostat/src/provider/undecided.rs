//! The provider of a machine whose own document could not be read at the start: the first good one says whether it
//! belongs to a fleet.

use anyhow::Result;
use homeostat_document::Document;
use homeostat_engine::outcome::Later;
use homeostat_fleet::records::Accepted;
use homeostat_kit::provider::{Answer, Provider, Verdict};

use super::files::Files;
use super::fleet::{self, Fleet, Local};
use super::{DocumentProvider, NodeTrial};
use crate::cli::Global;
use crate::daemon::DaemonView;

pub(super) struct Undecided {
    chosen: Chosen,
    global: Global,
    /// For a fleet, once the daemon runs.
    daemon: Option<DaemonView>,
}

enum Chosen {
    Files(Box<Files>),
    Fleet(Box<Fleet>),
}

impl Undecided {
    pub(super) fn new(files: Files, global: Global) -> Self {
        Undecided { chosen: Chosen::Files(Box::new(files)), global, daemon: None }
    }

    fn provider(&mut self) -> &mut dyn DocumentProvider {
        match &mut self.chosen {
            Chosen::Files(files) => &mut **files,
            Chosen::Fleet(fleet) => &mut **fleet,
        }
    }

    /// From now on the fleet assigns documents.
    fn join(&mut self, document: &std::sync::Arc<Document>) -> Result<()> {
        let Chosen::Files(files) = &self.chosen else { return Ok(()) };
        let local = Local::Files(Box::new(files.again()?));
        let mut fleet = Fleet::open(local, document, &self.global)?;
        if let Some(daemon) = self.daemon.take() {
            fleet.start(daemon);
        }
        self.chosen = Chosen::Fleet(Box::new(fleet));
        Ok(())
    }
}

impl Provider for Undecided {
    type DesiredState = Document;
    type Error = anyhow::Error;

    fn answer(&mut self) -> Later<'_, Answer<Document, anyhow::Error>> {
        Box::pin(async {
            match self.provider().answer().await {
                Answer::DesiredState(document)
                    if matches!(self.chosen, Chosen::Files(_)) && fleet::is_in(&document) =>
                {
                    match self.join(&document) {
                        Ok(()) => self.provider().answer().await,
                        Err(why) => Answer::Unknown { why },
                    }
                }
                answer => answer,
            }
        })
    }

    fn changed(&mut self) -> Later<'_, ()> {
        match &mut self.chosen {
            Chosen::Files(files) => files.changed(),
            Chosen::Fleet(fleet) => fleet.changed(),
        }
    }

    fn judged(&mut self, verdict: Verdict) {
        self.provider().judged(verdict);
    }
}

impl DocumentProvider for Undecided {
    fn start(&mut self, daemon: DaemonView) {
        match &mut self.chosen {
            Chosen::Files(_) => self.daemon = Some(daemon),
            Chosen::Fleet(fleet) => fleet.start(daemon),
        }
    }

    fn trial(&self) -> Option<NodeTrial> {
        match &self.chosen {
            Chosen::Files(_) => None,
            Chosen::Fleet(fleet) => fleet.trial(),
        }
    }

    fn tried(&mut self, assignment: &Accepted, rolled_back: Option<&str>) {
        self.provider().tried(assignment, rolled_back);
    }

    fn postponed(&mut self, why: &str) {
        self.provider().postponed(why);
    }

    fn fleet(&self) -> Option<fleet::FleetSettings> {
        match &self.chosen {
            Chosen::Files(_) => None,
            Chosen::Fleet(fleet) => fleet.fleet(),
        }
    }

    /// It may still be a fleet.
    fn is_open_ended(&self) -> bool {
        true
    }
}
