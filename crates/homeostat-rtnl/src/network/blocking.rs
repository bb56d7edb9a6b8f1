//! The same calls for programs without an async runtime. Each runs on a thread of its own that ends with it, so it may
//! be called from anywhere; an async program that does so blocks one of its threads meanwhile.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use homeostat_kit::{Applied, Plan, Report};

use super::{Error, Network};
use crate::desired::DesiredState;
use crate::key::Key;

/// What would be done. It has no writer, so it cannot write.
pub fn plan(
    network: &Network,
    desired: impl Into<Arc<DesiredState>>,
    applied: &Applied,
) -> Result<Plan<Key>, Error> {
    let desired = desired.into();
    run(network, network.plan(desired, applied))
}

/// Makes the network as declared, in one pass. What has to wait is in the report.
pub fn reconcile(
    network: &Network,
    desired: impl Into<Arc<DesiredState>>,
    applied: &Applied,
) -> Result<(Report<Key>, Applied), Error> {
    let desired = desired.into();
    run(network, network.reconcile(desired, applied))
}

/// The same, with more passes while something waits or may be cured by another try, but not for longer than `within`.
pub fn converge(
    network: &Network,
    desired: impl Into<Arc<DesiredState>>,
    applied: &Applied,
    within: Duration,
) -> Result<(Report<Key>, Applied), Error> {
    let desired = desired.into();
    run(network, network.converge(desired, applied, within))
}

fn run<T: Send>(
    network: &Network,
    work: impl Future<Output = Result<T, Error>> + Send,
) -> Result<T, Error> {
    network.netns.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(Error::Runtime)?.block_on(work)
    })?
}
