//! The inputs and facts of a set: read once, or followed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use homeostat_core::{Failure, Phase, Retry};
use homeostat_netns::Netns;
use homeostat_render::{
    Credentials, Facts, FactsWatch, FileReader, InputSpec, InputState, InputTasks, Inputs, Value,
};

use crate::check::Network;
use crate::recipe::Recipe;

/// So long a program that reads inputs once waits for them.
const PATIENCE: Duration = Duration::from_secs(10);

/// The values of the inputs of one set. Clones share them, so that they outlive readers and bindings.
#[derive(Clone, Debug, Default)]
pub struct LiveInputs(Arc<Mutex<Live>>);

#[derive(Debug, Default)]
pub(crate) struct Live {
    specs: BTreeMap<String, InputSpec>,
    pub(crate) inputs: Inputs,
    /// Whether accepted values are kept: a loop writes the set.
    is_kept: bool,
    /// The generation that a program did not take over, and why.
    pub(crate) refused: Option<(String, String)>,
    /// What happened to the set since the last call of `phases`.
    pub(crate) phases: Vec<Phase>,
}

impl LiveInputs {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Live> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// Has these inputs, and no others. Those that are the same keep what is known of them.
    pub(crate) fn declare(&mut self, specs: &BTreeMap<String, InputSpec>, set: &str, kept: &Path) {
        if self.specs == *specs {
            return;
        }
        self.inputs = Inputs::default();
        self.inputs.keep_accepted(self.is_kept);
        for (name, spec) in specs {
            self.inputs.add(name.clone(), spec.kept(kept, set, name));
        }
        self.specs.clone_from(specs);
    }

    /// Called once the set may be written: from then on, accepted values are kept for the next start.
    pub(crate) fn keep_accepted(&mut self) {
        self.is_kept = true;
        self.inputs.keep_accepted(true);
    }

    fn states(&self) -> Vec<(String, InputState)> {
        self.inputs.states().map(|(name, state)| (name.to_owned(), state)).collect()
    }
}

/// Follows the inputs and facts of a set.
#[derive(Debug)]
pub(crate) struct Following {
    specs: BTreeMap<String, InputSpec>,
    tasks: InputTasks,
    /// Whether templates name facts.
    has_facts: bool,
    /// Nothing where the network does not exist.
    facts: Option<FactsWatch>,
}

impl Following {
    /// Begins to ask; the answers come later. Needs a runtime.
    pub(crate) fn start(recipe: &Recipe, network: &Network) -> Result<Self, Failure> {
        let mut tasks = InputTasks::new(FileReader::for_daemon(), Credentials::from_environment());
        for (name, spec) in &recipe.inputs {
            tasks.start(name.clone(), spec.clone());
        }
        let has_facts = recipe.templates.names_facts();
        let facts = if has_facts { open_facts(network)? } else { None };
        Ok(Following { specs: recipe.inputs.clone(), tasks, has_facts, facts })
    }

    pub(crate) fn is_of(&self, recipe: &Recipe) -> bool {
        self.specs == recipe.inputs && self.has_facts == recipe.templates.names_facts()
    }

    pub(crate) fn facts(&self) -> Option<Arc<Facts>> {
        self.facts.as_ref().map(FactsWatch::facts)
    }

    /// Takes the answers that have come. True if an input does not stand as before.
    pub(crate) fn deliver(&self, live: &LiveInputs) -> bool {
        let mut live = live.lock();
        let before = live.states();
        self.tasks.deliver(&mut live.inputs) || before != live.states()
    }

    /// Waits until an input or a fact is not what it was. Dropping the future loses nothing.
    pub(crate) async fn changed(&mut self, live: &LiveInputs) -> Result<(), Failure> {
        loop {
            let facts = async {
                match &mut self.facts {
                    Some(facts) => facts.changed().await.map(drop),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = facts => {
                    return changed.map_err(|error| Failure::from_error(&error, Retry::Soon));
                }
                () = self.tasks.changed() => {}
            }
            if self.deliver(live) {
                return Ok(());
            }
        }
    }
}

/// What was read once.
pub(crate) struct Read {
    pub(crate) answers: BTreeMap<String, Result<Value, String>>,
    pub(crate) facts: Option<Arc<Facts>>,
}

/// Reads all inputs, and the facts where templates name them. It takes no longer than it has patience: one that has not
/// answered by then has no answer.
pub(crate) fn read_once(recipe: &Recipe, network: &Network) -> Result<Read, Failure> {
    let has_facts = recipe.templates.names_facts();
    if recipe.inputs.is_empty() && !has_facts {
        return Ok(Read { answers: BTreeMap::new(), facts: None });
    }
    // The caller may have no runtime, or one that cannot wait here.
    let read = thread::scope(|scope| scope.spawn(|| read_here(recipe, network, has_facts)).join());
    read.unwrap_or_else(|_| Err(Failure::new("the inputs could not be read", Retry::Soon)))
}

fn read_here(recipe: &Recipe, network: &Network, has_facts: bool) -> Result<Read, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::soon(&error))?;
    runtime.block_on(async {
        let facts = if has_facts { open_facts(network)? } else { None };
        let mut tasks = InputTasks::new(FileReader::once(), Credentials::from_environment());
        for (name, spec) in &recipe.inputs {
            tasks.start(name.clone(), spec.clone());
        }
        let mut answers = tasks.first_answers(recipe.inputs.len(), PATIENCE).await;
        for name in recipe.inputs.keys() {
            let silent = || Err(format!("it did not answer within {} s", PATIENCE.as_secs()));
            answers.entry(name.clone()).or_insert_with(silent);
        }
        Ok(Read { answers, facts: facts.map(|facts| facts.facts()) })
    })
}

/// Nothing if the network does not exist: then what names facts waits for it.
fn open_facts(network: &Network) -> Result<Option<FactsWatch>, Failure> {
    let opened = match network {
        Network::In(netns) => FactsWatch::open(netns),
        Network::Here => {
            let here =
                Netns::current().map_err(|error| Failure::from_error(&error, Retry::Soon))?;
            FactsWatch::open(&here)
        }
        Network::Missing(_) => return Ok(None),
    };
    opened.map(Some).map_err(|error| Failure::from_error(&error, Retry::Soon))
}
