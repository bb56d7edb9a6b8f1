//! The lanes of a hundred thousand guests on a hundred nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Result, ensure};
use homeostat_engine::{Lanes, Limits};

use crate::{Budget, Group, Run, Unit};

/// Every guest is marked five times, and every pass is run to its end, two at a time on a node.
pub(super) fn group() -> Group {
    Group::new("lanes: marks merged and run, 100k guests", Unit::PerSecond)
        .with("queue without limits", queue, &[])
        .with("homeostat", lanes, &[Budget::AtLeast(1_000_000.0)])
}

const MARKS: usize = 5;
const NODES: usize = 100;

fn queue(run: &mut Run) -> Result<()> {
    let guests = run.size(100_000, 1000);
    let left = run.time(guests * MARKS, || {
        let (mut waiting, mut order) = (BTreeSet::new(), VecDeque::new());
        for guest in (0..MARKS).flat_map(|_| 0..guests) {
            if waiting.insert(guest) {
                order.push_back(guest);
            }
        }
        while let Some(guest) = order.pop_front() {
            waiting.remove(&guest);
        }
        waiting.len()
    });
    ensure!(left == 0, "{left} guests are left");
    Ok(())
}

fn lanes(run: &mut Run) -> Result<()> {
    let guests = run.size(100_000, 1000);
    let limits = Limits { total: 2 * NODES, per_node: 2 };
    let (left, most) = run.time(guests * MARKS, || {
        let mut lanes = Lanes::<usize, usize, ()>::new(limits);
        for guest in (0..MARKS).flat_map(|_| 0..guests) {
            lanes.mark(&guest, guest % NODES);
        }
        let mut running = BTreeMap::new();
        let mut most = 0;
        while !lanes.is_empty() {
            while let Some(start) = lanes.start() {
                running.insert(start.key, start.node);
            }
            most = most.max(running.len());
            while let Some((guest, _)) = running.pop_first() {
                lanes.end(&guest);
            }
        }
        (lanes.len(), most)
    });
    ensure!(left == 0 && most <= limits.total, "{left} guests are left, {most} ran at once");
    Ok(())
}
