//! One table as core sees it: its whole content, or what a ledger keeps of it.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::model::{Inside, Rule, Table};

/// A table. A ledger keeps only a digest of the content, which is enough to tell it from others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Object {
    digest: Digest,
    #[serde(skip)]
    pub(crate) table: Option<Arc<Table>>,
}

/// What tells one content from another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Digested", into = "Digested")]
struct Digest {
    known: OnceLock<String>,
    /// Taken only if somebody asks: most tables are compared whole.
    of: Option<Arc<Table>>,
}

#[derive(Serialize, Deserialize)]
struct Digested(String);

impl From<Digested> for Digest {
    fn from(Digested(text): Digested) -> Self {
        Digest { known: OnceLock::from(text), of: None }
    }
}

impl From<Digest> for Digested {
    fn from(digest: Digest) -> Self {
        Digested(digest.text().to_owned())
    }
}

impl Digest {
    fn text(&self) -> &str {
        self.known.get_or_init(|| self.of.as_ref().map_or_else(String::new, |table| digest(table)))
    }
}

impl Object {
    pub(crate) fn new(table: Arc<Table>) -> Self {
        let digest = Digest { known: OnceLock::new(), of: Some(Arc::clone(&table)) };
        Object { digest, table: Some(table) }
    }

    /// A digest of the content.
    pub(crate) fn print(&self) -> &str {
        self.digest.text()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.print() == other.print()
    }
}

/// FNV-1a, twice with different beginnings: stable across versions and machines.
struct Fnv([u64; 2]);

impl Fnv {
    fn take(&mut self, bytes: &[u8]) {
        let len = (bytes.len() as u64).to_le_bytes();
        for byte in len.iter().chain(bytes) {
            for (at, sum) in self.0.iter_mut().enumerate() {
                let byte = u64::from(*byte) ^ (at as u64) << 8;
                *sum = (*sum ^ byte).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }
}

fn digest(table: &Table) -> String {
    let mut sum = Fnv([0xcbf2_9ce4_8422_2325, 0x6c62_272e_07bb_0142]);
    sum.take(&table.flags.to_le_bytes());
    for (name, chain) in &table.chains {
        sum.take(name.as_bytes());
        sum.take(&chain.definition);
        sum.take(&chain.policy.unwrap_or(u32::MAX).to_le_bytes());
        rules(&chain.rules, &mut sum);
    }
    for (name, set) in &table.sets {
        sum.take(name.as_bytes());
        sum.take(&set.definition);
        set.elements.places().for_each(|at| sum.take(set.elements.unit(at)));
    }
    for (id, object) in &table.objects {
        sum.take(id.name.as_bytes());
        sum.take(&id.kind.to_le_bytes());
        sum.take(&object.definition);
    }
    for (name, definition) in &table.flowtables {
        sum.take(name.as_bytes());
        sum.take(definition);
    }
    let [high, low] = sum.0;
    format!("{high:016x}{low:016x}")
}

fn rules(rules: &[Rule], sum: &mut Fnv) {
    for rule in rules {
        sum.take(&rule.expressions);
        sum.take(rule.userdata.as_deref().unwrap_or_default());
        for inside in &rule.inside {
            match inside {
                Inside::Set(set) => {
                    sum.take(&set.definition);
                    set.elements.places().for_each(|at| sum.take(set.elements.unit(at)));
                }
                Inside::Chain(inner) => self::rules(inner, sum),
            }
        }
    }
}
