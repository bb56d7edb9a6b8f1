//! One call makes the network of a namespace as declared: a desired state and what was applied before go in, a typed
//! report and what is applied now come out.

pub mod blocking;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::{Finding, Ownership, Retry, Source as _, WaitsOn};
use homeostat_engine::{
    Bound, Cascades, Config, LedgerKey, LoopDeps, MassDelete, MemoryLedger, NetnsLock,
};
use homeostat_kit::once::{self, Until};
use homeostat_kit::{Applied, Plan, Report};
use homeostat_netns::{Identity, Netns};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::number::Protocol;
use crate::source::Rtnl;

/// Why a call came to nothing at all. What became of single objects is in its report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Links are absent, and they are [required](Network::requiring_links): nothing was written.
    #[error("nothing was written: there is no link {}", links.join(", "))]
    UnknownLinks {
        /// Their names.
        links: Vec<String>,
    },
    /// The namespace could not be opened or entered.
    #[error(transparent)]
    Netns(#[from] homeostat_netns::Error),
    /// The kernel could not be asked, or another process writes under the same owner or mark.
    #[error(transparent)]
    Call(#[from] homeostat_kit::Error),
    /// The runtime of a blocking call could not be started.
    #[error("cannot start a runtime")]
    Runtime(#[source] std::io::Error),
}

impl Error {
    /// When another try makes sense.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Error::UnknownLinks { .. } => Retry::OnChange,
            Error::Netns(_) | Error::Runtime(_) => Retry::Soon,
            Error::Call(error) => error.retry(),
        }
    }
}

impl From<homeostat_engine::Error> for Error {
    fn from(error: homeostat_engine::Error) -> Self {
        Error::Call(error.into())
    }
}

/// The network of one namespace, as one owner keeps it. Each call looks, writes the smallest difference and ends; nothing
/// goes on behind it. Programs without an async runtime call the functions of [`blocking`].
#[derive(Clone, Debug)]
pub struct Network {
    source: Rtnl,
    netns: Arc<Netns>,
    place: LedgerKey,
    config: Config<Key>,
    requires_links: bool,
}

impl Network {
    /// That of the namespace at a path such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn at(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        Ok(Self { place: place(&path.display().to_string()), ..Self::of(Netns::at(path)?) })
    }

    /// That of the calling thread's namespace.
    pub fn here() -> Result<Self, Error> {
        Ok(Self::of(Netns::current()?))
    }

    /// That of an open namespace.
    #[must_use]
    pub fn of(netns: impl Into<Arc<Netns>>) -> Self {
        let netns = netns.into();
        let source = Rtnl::of(Arc::clone(&netns));
        let (mut config, requires_links) = (Config::default(), false);
        config.guards.options.mass_delete = "`Network::allow_mass_delete`";
        config.guards.options.cascades = "`Network::allow_cascades`";
        config.ways_out.foreign = "it is left alone, unless it is declared by `Builder::adopt`";
        config.ways_out.lost_mark = "it is taken back if it is declared by `Builder::adopt`";
        Network { source, netns, place: place("network"), config, requires_links }
    }

    /// Names the owner. Two owners in one namespace need two names and two [protocols](Self::protocol).
    #[must_use]
    pub fn owner(mut self, owner: &str) -> Self {
        owner.clone_into(&mut self.place.owner);
        self.source = self.source.with_owner(owner);
        self
    }

    /// Marks what is ours with another protocol number than 76.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.source = self.source.with_protocol(protocol);
        self
    }

    /// Writes nothing at all, and fails with [`Error::UnknownLinks`], while a link is absent that the desired state names
    /// and does not create. Otherwise only what needs the link waits, and the report says so.
    #[must_use]
    pub fn requiring_links(mut self) -> Self {
        self.source = self.source.requiring_links();
        self.requires_links = true;
        self
    }

    /// Allows a call to delete most of what is ours, which is otherwise held back.
    #[must_use]
    pub fn allow_mass_delete(mut self) -> Self {
        self.config.guards.mass_delete = MassDelete::Allow;
        self
    }

    /// Allows a call to remove what takes objects of other owners along, which is otherwise held back: a link with what
    /// sits on it, a nexthop with the routes that use it.
    #[must_use]
    pub fn allow_cascades(mut self) -> Self {
        self.config.guards.cascades = Cascades::Allow;
        self
    }

    /// What would be done. It has no writer, so it cannot write.
    pub async fn plan(
        &self,
        desired: impl Into<Arc<DesiredState>>,
        applied: &Applied,
    ) -> Result<Plan<Key>, Error> {
        let bound = self.bind(desired.into())?;
        let ledger = applied.to_ledger(&bound.ledger_key)?;
        let plan = once::plan(&bound, &ledger).await?;
        self.refuse_unknown(&plan.findings)?;
        Ok(plan)
    }

    /// Makes the network as declared, in one pass. What has to wait is in the report.
    pub async fn reconcile(
        &self,
        desired: impl Into<Arc<DesiredState>>,
        applied: &Applied,
    ) -> Result<(Report<Key>, Applied), Error> {
        self.call(desired.into(), applied, Until::Passed).await
    }

    /// The same, with more passes while something waits or may be cured by another try, but not for longer than
    /// `within`: a link that is awaited may come.
    pub async fn converge(
        &self,
        desired: impl Into<Arc<DesiredState>>,
        applied: &Applied,
        within: Duration,
    ) -> Result<(Report<Key>, Applied), Error> {
        self.call(desired.into(), applied, Until::Converged(within)).await
    }

    async fn call(
        &self,
        desired: Arc<DesiredState>,
        applied: &Applied,
        until: Until,
    ) -> Result<(Report<Key>, Applied), Error> {
        let bound = self.bind(desired)?;
        let place = bound.ledger_key.clone();
        let ledger: Arc<MemoryLedger> = Arc::new(applied.to_ledger(&place)?);
        let names = NetnsLock::names(&place.owner, self.source.protocol.0);
        let lock = Arc::new(self.netns.run(|| NetnsLock::take(&names))??);
        let deps = LoopDeps::new(lock, ledger.clone());
        let report = once::reconcile(bound, deps, until).await;
        if report.applied.is_empty() {
            self.refuse_unknown(&report.findings)?;
        }
        Ok((report, Applied::of(&*ledger, &place)?))
    }

    fn bind(&self, desired: Arc<DesiredState>) -> Result<Bound<Rtnl>, Error> {
        let identity = Identity::of(&self.netns)?.to_string();
        let place = self.place.clone().with_identity(identity);
        let bound = Bound::new(self.source.clone(), desired, Ownership::Marked, place);
        Ok(bound.with_config(self.config.clone()))
    }

    /// A source that requires all links writes nothing while one is absent, and names the absent ones.
    fn refuse_unknown(&self, findings: &[(Key, Finding)]) -> Result<(), Error> {
        let absent = |(_, finding): &(Key, Finding)| match finding {
            Finding::Pending { on: WaitsOn::Link { name, .. } } if self.requires_links => {
                Some(name.clone())
            }
            _ => None,
        };
        let mut links: Vec<String> = findings.iter().filter_map(absent).collect();
        links.sort();
        links.dedup();
        if links.is_empty() { Ok(()) } else { Err(Error::UnknownLinks { links }) }
    }
}

fn place(scope: &str) -> LedgerKey {
    LedgerKey::new("default", Rtnl::NAME, scope)
}
