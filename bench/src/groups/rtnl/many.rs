//! Many rules, neighbours, nexthops and links: all of them made, and all of them deleted, by the program as users start
//! it. The floor sends the same requests, encoded before.

use anyhow::{Result, ensure};

use super::super::document::Document;
use super::super::network::TestNetwork;
use super::super::objects::Kind;
use super::super::wire::{Verb, send_all};
use super::fixture::fresh;
use crate::{Budget, Group, Run, Unit};

/// The program also starts, reads its document, observes twice and prints a report.
pub(super) fn groups() -> Vec<Group> {
    const FLOOR: &str = "floor";
    let pair = |made: &'static str, deleted: &'static str, load: Load| {
        let within = [Budget::Within(2.0, FLOOR)];
        let made = Group::new(made, Unit::Seconds)
            .with(FLOOR, move |run| floor(run, load, Verb::Add), &[])
            .with("homeostat", move |run| ours(run, load, Verb::Add), &within);
        let deleted = Group::new(deleted, Unit::Seconds)
            .with(FLOOR, move |run| floor(run, load, Verb::Delete), &[])
            .with("homeostat", move |run| ours(run, load, Verb::Delete), &within);
        [made, deleted]
    };
    let groups = [
        pair(
            "rtnl: apply of 10k rules",
            "rtnl: removal of 10k rules",
            Load { kind: Kind::Rule, size: 10_000 },
        ),
        pair(
            "rtnl: apply of 50k neighbours",
            "rtnl: removal of 50k neighbours",
            Load { kind: Kind::Neighbour, size: 50_000 },
        ),
        pair(
            "rtnl: apply of 10k nexthops",
            "rtnl: removal of 10k nexthops",
            Load { kind: Kind::Nexthop, size: 10_000 },
        ),
        pair(
            "rtnl: apply of 5k pairs of links",
            "rtnl: removal of 5k pairs of links",
            Load { kind: Kind::Pair, size: 5000 },
        ),
    ];
    groups.into_iter().flatten().collect()
}

#[derive(Clone, Copy)]
struct Load {
    kind: Kind,
    size: usize,
}

impl Load {
    /// The kernel waits for all CPUs with each link that it deletes: thousands take minutes, whoever asks.
    fn at(self, run: &Run, verb: Verb) -> Result<(Kind, usize)> {
        if self.kind == Kind::Pair && verb == Verb::Delete {
            run.leave_out_if_slow()?;
        }
        Ok((self.kind, run.size(self.size, 100)))
    }
}

fn floor(run: &mut Run, load: Load, verb: Verb) -> Result<()> {
    let (kind, size) = load.at(run, verb)?;
    let network = fresh()?;
    let socket = network.socket()?;
    if verb == Verb::Delete {
        send_all(&socket, &kind.sends(Verb::Add, size)?)?;
        expect(kind, &network, size)?;
    }
    let sends = kind.sends(verb, size)?;
    run.time(size, || send_all(&socket, &sends))?;
    expect(kind, &network, if verb == Verb::Add { size } else { 0 })
}

fn ours(run: &mut Run, load: Load, verb: Verb) -> Result<()> {
    let (kind, size) = load.at(run, verb)?;
    let network = fresh()?;
    let document = Document::new(&kind.document(size)?)?;
    let apply = || document.run(&["apply", "--yes", "--allow-mass-delete"]);
    if verb == Verb::Delete {
        apply()?;
        expect(kind, &network, size)?;
        document.rewrite("")?;
    }
    run.time(size, apply)?;
    expect(kind, &network, if verb == Verb::Add { size } else { 0 })
}

/// Fails unless the kernel has this many.
fn expect(kind: Kind, network: &TestNetwork, size: usize) -> Result<()> {
    let count = kind.count(network)?;
    ensure!(count == size, "{count} instead of {size} of {kind:?}");
    Ok(())
}
