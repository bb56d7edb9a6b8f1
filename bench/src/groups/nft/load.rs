//! Rulesets of a size: one table with a large set and many rules.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use homeostat_nft::{Compiler, DesiredState, Key, Mark, Nft, Ruleset};
use tempfile::TempDir;

use crate::{Run, program};

/// The table that all rulesets consist of.
pub(super) const TABLE: &str = "bench";
/// Its chain.
pub(super) const CHAIN: &str = "input";
/// Its set.
pub(super) const SET: &str = "big";

/// How much a ruleset holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) rules: usize,
    pub(super) elements: usize,
}

/// A block list and a firewall, which is large for most users.
pub(super) const ELEMENTS: Load = Load { rules: 1000, elements: 100_000 };
/// What programs write for many services.
pub(super) const RULES: Load = Load { rules: 10_000, elements: 0 };
/// A whole country's addresses.
pub(super) const MANY: Load = Load { rules: 1000, elements: 1_000_000 };

impl Load {
    /// As large as the run asks for.
    pub(super) fn at(self, run: &Run) -> Self {
        let quick = |full: usize| run.size(full, full.min(500));
        Load { rules: quick(self.rules), elements: quick(self.elements) }
    }

    /// How many things the kernel holds.
    pub(super) fn count(self) -> usize {
        self.rules + self.elements
    }

    /// In nft's own language.
    pub(super) fn text(self) -> Result<String> {
        let mut text = format!("table ip {TABLE} {{\n");
        if self.elements > 0 {
            writeln!(text, "set {SET} {{ type ipv4_addr; elements = {{")?;
            (0..self.elements).try_for_each(|at| writeln!(text, "{},", address(at)))?;
            writeln!(text, "}}; }}")?;
        }
        writeln!(text, "chain {CHAIN} {{ type filter hook input priority 0;")?;
        for at in 0..self.rules {
            let port = 1 + at % 60_000;
            writeln!(text, "ip saddr {} tcp dport {port} counter accept", address(at))?;
        }
        if self.elements > 0 {
            writeln!(text, "ip saddr @{SET} counter drop")?;
        }
        text.push_str("}\n}\n");
        Ok(text)
    }

    /// The desired state that declares it, in the calling thread's namespace.
    pub(super) fn desired(self) -> Result<Arc<DesiredState>> {
        let ruleset = Ruleset {
            text: self.text()?.into(),
            name: "bench.nft".to_owned(),
            directory: std::env::temp_dir(),
            root: "/".into(),
        };
        Ok(Arc::new(Compiler::default().compile(&ruleset, &source())?))
    }
}

/// The source in the calling thread's namespace.
pub(super) fn source() -> Nft {
    Nft::here(Mark::new("default"))
}

/// What hints name.
pub(super) fn key() -> Result<Key> {
    Ok(format!("table ip {TABLE}").parse()?)
}

/// The address of an element or rule by its number: in no order, as in a real list.
pub(super) fn address(number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or(u32::MAX).wrapping_mul(0x9e37_79b1);
    Ipv4Addr::from(number)
}

/// A ruleset as a file for `nft`.
pub(super) struct File {
    path: String,
    _directory: TempDir,
}

impl File {
    /// A file that replaces the ruleset, as users write it.
    pub(super) fn of(load: Load) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("bench.nft");
        let clear = format!("add table ip {TABLE}\ndelete table ip {TABLE}\n");
        std::fs::write(&path, clear + &load.text()?)?;
        let path = program::text(&path)?.to_owned();
        Ok(File { path, _directory: directory })
    }

    /// Loads it, on the thread that is in the namespace.
    pub(super) fn load(&self) -> Result<()> {
        program::run_quietly("nft", &["-f", &self.path])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn addresses_differ_by_number() {
        let all: BTreeSet<_> = (0..100_000).map(address).collect();
        assert_eq!(all.len(), 100_000);
    }
}
