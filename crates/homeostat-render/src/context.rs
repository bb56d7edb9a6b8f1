//! What a template sees: inputs, facts and values, with a record of what it has read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use minijinja::value::{Enumerator, Object, Value as Jinja};
use minijinja::{Error, ErrorKind};

use crate::facts::Facts;
use crate::generation;
use crate::value::{Secrecy, Value};

/// What a set is rendered from.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// By name. An input that has not answered yet is missing: a file that reads it waits.
    pub inputs: BTreeMap<String, Value>,
    /// Nothing while they are not known: a file that reads one waits.
    pub facts: Option<Arc<Facts>>,
    /// Plain data of the document, as `values`.
    pub values: Value,
    /// More names that templates have.
    pub names: BTreeMap<String, Value>,
}

/// What a file cannot be rendered without, or may not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Needs {
    #[error("the input `{0}` has not answered yet")]
    Input(String),
    #[error("the facts of this machine are not known yet")]
    Facts,
    #[error("the input `{0}` is secret, and the file is not")]
    Secrecy(String),
}

/// What one file has read so far.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) inputs: BTreeSet<String>,
    pub(crate) secret: bool,
    pub(crate) generation: bool,
    /// The first thing that it could not have. It may have been read where the engine cannot fail.
    pub(crate) needs: Option<Needs>,
}

/// The variables of one file's template.
#[derive(Debug)]
pub(crate) struct Root {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    data: Data,
    facts: FactValues,
    declared: Arc<BTreeMap<String, Secrecy>>,
    file: Secrecy,
    reads: Mutex<Reads>,
}

/// Facts as the engine takes them, made when they are read first.
#[derive(Debug, Default)]
struct FactValues {
    host: OnceLock<Jinja>,
    links: OnceLock<Jinja>,
    namespaces: OnceLock<Jinja>,
}

/// The variable `inputs`.
#[derive(Debug)]
struct Inputs(Arc<Shared>);

impl Root {
    pub(crate) fn new(
        data: &Data,
        declared: &Arc<BTreeMap<String, Secrecy>>,
        file: Secrecy,
    ) -> Self {
        let (data, declared) = (data.clone(), Arc::clone(declared));
        let (facts, reads) = (FactValues::default(), Mutex::default());
        Root { shared: Arc::new(Shared { data, facts, declared, file, reads }) }
    }

    /// The variables as the engine takes them.
    pub(crate) fn value(&self) -> Jinja {
        Jinja::from_object(Root { shared: Arc::clone(&self.shared) })
    }

    pub(crate) fn reads(&self) -> MutexGuard<'_, Reads> {
        self.shared.reads()
    }
}

impl Shared {
    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A value that fails where it is used.
    fn missing(&self, needs: Needs) -> Jinja {
        self.reads().needs.get_or_insert_with(|| needs.clone());
        let error = Error::new(ErrorKind::InvalidOperation, needs.to_string());
        Jinja::from(error.with_source(needs))
    }
}

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Jinja) -> Option<Jinja> {
        let Shared { data, facts, .. } = &*self.shared;
        let fact = |made: &OnceLock<Jinja>, make: fn(&Facts) -> Jinja| match &data.facts {
            Some(facts) => made.get_or_init(|| make(facts)).clone(),
            None => self.shared.missing(Needs::Facts),
        };
        match key.as_str()? {
            "inputs" => Some(Jinja::from_object(Inputs(Arc::clone(&self.shared)))),
            "values" => Some(data.values.jinja.clone()),
            "host" => Some(fact(&facts.host, Facts::host)),
            "links" => Some(fact(&facts.links, Facts::links)),
            "namespaces" => Some(fact(&facts.namespaces, Facts::namespaces)),
            "generation" => {
                self.shared.reads().generation = true;
                Some(Jinja::from(generation::PLACEHOLDER))
            }
            name => data.names.get(name).map(|value| value.jinja.clone()),
        }
    }
}

impl Object for Inputs {
    fn get_value(self: &Arc<Self>, key: &Jinja) -> Option<Jinja> {
        let Inputs(shared) = &**self;
        let name = key.as_str()?;
        let secrecy = *shared.declared.get(name)?;
        if secrecy == Secrecy::Secret && shared.file == Secrecy::Public {
            return Some(shared.missing(Needs::Secrecy(name.to_owned())));
        }
        let mut reads = shared.reads();
        reads.inputs.insert(name.to_owned());
        reads.secret |= secrecy == Secrecy::Secret;
        drop(reads);
        let value = shared.data.inputs.get(name).map(|value| value.jinja.clone());
        Some(value.unwrap_or_else(|| shared.missing(Needs::Input(name.to_owned()))))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.declared.keys().map(Jinja::from).collect())
    }
}
