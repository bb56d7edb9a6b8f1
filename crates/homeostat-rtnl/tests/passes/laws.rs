//! The law suite over the objects of a real network namespace.

mod fdb;
mod links;
mod others;
mod routes;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::{Action, Ownership};
use homeostat_netlink::{Event, Family, Group, Listener, Options};
use homeostat_rtnl::{DesiredState, Key, Rtnl};
use homeostat_testkit::laws::{
    self, Ability, DesiredState as Which, Disturbance, Fault, Harness, Meter,
};
use homeostat_testkit::namespace::Namespace;
use homeostat_testkit::unreachable_kernel::UnreachableKernel;

use crate::bench::{Declared, block_on, desired};

/// Some kinds of objects: what is declared of them, and what `ip` does to them.
trait Objects: Send {
    /// The groups in which the kernel announces every write to them.
    const GROUPS: &'static [u32];

    /// A namespace in which the desired states can come true.
    fn prepare() -> Namespace;

    fn desired(which: Which) -> &'static [Declared<'static>];

    fn snapshot(namespace: &Namespace) -> BTreeMap<String, String>;

    fn disturb(namespace: &Namespace, how: Disturbance<'_, Key>);

    /// Makes the kernel refuse writes to a key, for a reason that it really has.
    fn refuse(namespace: &Namespace, key: &Key) -> Ability;

    fn mend(namespace: &Namespace);

    /// Whether the kernel reports this although nothing was written.
    fn is_by_itself(_event: &Event<'_>) -> bool {
        false
    }
}

struct Network<T> {
    namespace: Namespace,
    writes: Arc<Mutex<Writes>>,
    unreachable: Option<UnreachableKernel>,
    objects: PhantomData<T>,
}

/// Counts what the kernel announces, by whomever it was written.
struct Writes {
    listener: Listener,
    is_by_itself: fn(&Event<'_>) -> bool,
    count: u64,
}

impl Writes {
    fn count(&mut self) -> u64 {
        let Writes { listener, is_by_itself, count } = self;
        while listener.receive(&mut |event| *count += u64::from(!is_by_itself(&event))).unwrap() {}
        *count
    }
}

impl<T: Objects> Network<T> {
    fn new() -> Self {
        let namespace = T::prepare();
        let groups: Vec<_> = T::GROUPS.iter().copied().map(Group).collect();
        let listener = Listener::open(Family::Route, &groups, &Options::for_events()).unwrap();
        let writes = Writes { listener, is_by_itself: T::is_by_itself, count: 0 };
        let writes = Arc::new(Mutex::new(writes));
        Network { namespace, writes, unreachable: None, objects: PhantomData }
    }
}

impl<T: Objects> Harness for Network<T> {
    type Source = Rtnl;

    fn reset(&mut self) {
        *self = Network::new();
    }

    fn source(&self) -> Rtnl {
        Rtnl::here()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Marked
    }

    fn desired(&self, which: Which) -> DesiredState {
        desired(T::desired(which))
    }

    /// Creates fail if anything is on the key (`NLM_F_EXCL`). Links are written by their number, which no other link gets.
    /// Rules are deleted by all that they say, and changed by a create beside the old one. A route is deleted with its
    /// protocol, but `NLM_F_REPLACE` replaces whatever is on its key; to delete it first would leave a gap in which
    /// packets are lost, and to append the new one first would make one multipath route of both with IPv6. Without
    /// `NLM_F_CREATE` the request fails only if the key is free, which harms nobody.
    ///
    /// For the others the kernel (6.18) has no precondition: it replaces nexthops, neighbours and addresses by their keys,
    /// ignores the protocol of a neighbour or an address that is to be deleted, and refuses that of a nexthop
    /// (`owning::the_kernel_asks_for_the_protocol_only_where_routes_are_deleted`). It compares the label of an IPv4
    /// address that is to be deleted; that of most addresses is the name of their link, whoever they belong to.
    fn has_precondition(&self, key: &Key, action: Action) -> bool {
        match (action, key) {
            (Action::Create, _) | (_, Key::Link(_) | Key::Rule(_)) => true,
            (Action::Delete, key) => matches!(key, Key::Route(_)),
            (Action::Update | Action::Replace, _) => false,
        }
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        T::snapshot(&self.namespace)
    }

    fn meter(&self) -> Meter {
        let writes = self.writes.clone();
        Arc::new(move || writes.lock().unwrap_or_else(PoisonError::into_inner).count())
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        T::disturb(&self.namespace, how);
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, Key>) -> Ability {
        match fault {
            Fault::Blind => self.unreachable = Some(UnreachableKernel::new().unwrap()),
            // The kernel reports an object whole or not at all.
            Fault::Unreadable(_) => return Ability::Unable,
            Fault::Refuse(key) => return T::refuse(&self.namespace, key),
        }
        Ability::Done
    }

    fn mend(&mut self) {
        self.unreachable = None;
        T::mend(&self.namespace);
    }
}

/// Runs the suite; returns the laws of which a part was not checked.
fn check<T: Objects>() -> Vec<u8> {
    let verdict = block_on(async { laws::check(&mut Network::<T>::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    verdict.unchecked.iter().map(|(law, _)| *law).collect()
}
