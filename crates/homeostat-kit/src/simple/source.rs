//! Makes a whole source of an [`Api`]: its desired state, its step, and how both are bound to an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use educe::Educe;
use homeostat_engine::{
    Action, Agreement, Bound, Change, ChangeList, Coverage, Desired, Draft, DuplicateKey, Fails,
    Failure, Finding, HeldBy, LedgerKey, Line, Reversibility, ScopeLock, Slot, Source, Step, Table,
};

use super::Api;
use super::follow_up::FollowUps;
use super::reader::{ApiReader, Listing};
use super::two_step::Marking;
use super::writer::{ApiWriter, Limit, Limiter};
use crate::strategy::Strategy;

/// An API as a source. Clones share the API, its limit and what is under way: a loop that is given
/// another desired state keeps waiting for the tasks of the last one.
#[derive(Educe)]
#[educe(Clone)]
pub struct Adapted<A: Api> {
    api: Arc<A>,
    follow_ups: Arc<FollowUps<A::Key>>,
    limiter: Option<Limiter>,
    witness: Witness,
    on_delete: Option<Arc<DeletePolicies<A::Key>>>,
}

type DeletePolicies<K> = dyn Fn(&K) -> DeletePolicy + Send + Sync;

/// What a pass does with an object of ours that is no longer declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum DeletePolicy {
    #[default]
    Delete,
    /// It stays, and is reported as held until it is declared again or gone.
    Protect,
}

/// Whether the [ledger](crate::Reconciler::ledger) is a witness of the marks: whether it records, besides the mark in the
/// target, which objects are ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Witness {
    /// No: the mark alone decides, and nothing is recorded.
    #[default]
    None,
    /// Yes: that another program took a mark off is noticed, and reported as a conflict.
    Ledger,
}

impl<A: Api> Adapted<A> {
    /// Adapts an API.
    pub fn new(api: A) -> Self {
        Self::shared(Arc::new(api))
    }

    /// Adapts an API that others use too.
    pub fn shared(api: Arc<A>) -> Self {
        let witness = match A::MARKING {
            Marking::InCreate => Witness::None,
            // Between creating and marking only the intent in the ledger says whose it is.
            Marking::AfterCreate { .. } => Witness::Ledger,
        };
        let (limiter, on_delete) = (None, None);
        Adapted { api, follow_ups: Arc::default(), limiter, witness, on_delete }
    }

    /// Writes no more often than this.
    #[must_use]
    pub fn limited(mut self, limit: Limit) -> Self {
        self.limiter = Some(Limiter::new(limit));
        self
    }

    /// Has the ledger record what is marked in the target, too: see [`Witness`].
    #[must_use]
    pub fn witnessed(mut self) -> Self {
        self.witness = Witness::Ledger;
        self
    }

    /// Says for each key whether it may be deleted once it is no longer declared. It must be pure.
    #[must_use]
    pub fn on_delete(
        mut self,
        policy: impl Fn(&A::Key) -> DeletePolicy + Send + Sync + 'static,
    ) -> Self {
        self.on_delete = Some(Arc::new(policy));
        self
    }

    /// Why a change must not be made: it would delete what its policy protects, or what a declared object needs.
    fn holds(
        &self,
        desired: &DesiredObjects<A>,
        change: &Change<A::Key, A::Object>,
    ) -> Option<(HeldBy, String)> {
        let Change::Delete { key, .. } = change else { return None };
        if let Some(user) = desired.dependants.get(key).and_then(|users| users.first()) {
            let why = format!("`{user}`, which is declared, needs it: declare this one too");
            return Some((HeldBy::Needed, why));
        }
        let policy = self.on_delete.as_ref().map_or(DeletePolicy::Delete, |policy| policy(key));
        let why = "its delete policy protects it: declare it again, or delete it by hand";
        (policy == DeletePolicy::Protect).then(|| (HeldBy::DeletePolicy, why.to_owned()))
    }

    /// Binds a request to this source for an owner.
    pub fn bind(
        &self,
        strategy: &Strategy,
        desired: DesiredObjects<A>,
        ledger_key: LedgerKey,
    ) -> Result<Bound<Self>, BindRefused> {
        let mut keys = (0..desired.len()).map(|index| desired.key(Slot::at(index)));
        if let Some(key) = keys.find(|key| !strategy.admits(&A::name(key))) {
            return Err(BindRefused::OutsidePrefix { key: key.to_string() });
        }
        if let Some(key) = desired.needs_itself() {
            return Err(BindRefused::NeedsItself { key: key.to_string() });
        }
        let is_recorded =
            matches!(strategy, Strategy::Checkpoint) || self.witness == Witness::Ledger;
        if A::LISTING == Listing::KnownNames && !is_recorded {
            return Err(BindRefused::CannotList { name: A::NAME });
        }
        let bound = Bound::new(self.clone(), desired, strategy.ownership(), ledger_key);
        Ok(bound.with_nothing(DesiredObjects::default()))
    }
}

impl<A: Api> Source for Adapted<A> {
    const NAME: &'static str = A::NAME;
    const FAILS: Fails = Fails::Lanes;
    const COVERAGE: Coverage = A::COVERAGE;
    const FREE_DELETES: usize = A::FREE_DELETES;

    type Key = A::Key;
    type Object = A::Object;
    type Desired = DesiredObjects<A>;
    type Step = Write<A::Key, A::Object>;
    type Moment = ();
    type Reader = ApiReader<A>;
    type Writer = ApiWriter<A>;

    fn reader(&self) -> Result<ApiReader<A>, Failure> {
        Ok(ApiReader::new(Arc::clone(&self.api), Arc::clone(&self.follow_ups)))
    }

    fn writer(&self, _: &ScopeLock) -> Result<ApiWriter<A>, Failure> {
        let (api, follow_ups) = (Arc::clone(&self.api), Arc::clone(&self.follow_ups));
        Ok(ApiWriter { api, follow_ups, limiter: self.limiter.clone() })
    }

    fn is_same(&self, other: &Self) -> bool {
        let policy = |it: &Self| it.on_delete.as_ref().map(|policy| Arc::as_ptr(policy).addr());
        Arc::ptr_eq(&self.follow_ups, &other.follow_ups)
            && self.witness == other.witness
            && policy(self) == policy(other)
    }

    fn plan(
        &self,
        desired: &DesiredObjects<A>,
        (): &(),
        changes: ChangeList<A::Key, A::Object>,
    ) -> Draft<Self> {
        let mut draft = Draft::default();
        let changes: Vec<_> = changes.into_iter().collect();
        let users = users_of::<A>(desired, &changes);
        for change in changes {
            let key = change.key(desired);
            if let Some((by, why)) = self.holds(desired, &change) {
                draft.findings.push((key, Finding::Held { action: Action::Delete, by, why }));
                continue;
            }
            let needs = match &change {
                Change::Create { slot } | Change::Update { slot, .. } => {
                    A::needs(&key, &desired.object(*slot))
                }
                Change::Delete { .. } | Change::Release { .. } | Change::GiveBack { .. } => {
                    users.get(&key).cloned().unwrap_or_default()
                }
            };
            draft.steps.push(Write { change, needs, witness: self.witness });
        }
        draft
    }
}

/// Which keys need a key so far and will not any more, as they are deleted or changed: they come first.
fn users_of<A: Api>(
    desired: &DesiredObjects<A>,
    changes: &[Change<A::Key, A::Object>],
) -> BTreeMap<A::Key, Vec<A::Key>> {
    let mut users = BTreeMap::<_, Vec<_>>::new();
    for change in changes {
        let before = match change {
            Change::Create { .. } => continue,
            Change::Update { before, .. }
            | Change::Delete { before, .. }
            | Change::Release { before, .. }
            | Change::GiveBack { before, .. } => before,
        };
        let key = change.key(desired);
        for need in A::needs(&key, before) {
            users.entry(need).or_default().push(key.clone());
        }
    }
    users
}

/// Why an API, a strategy and a desired state do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindRefused {
    /// Once made, it would not be known as ours again.
    #[error(
        "`{key}` does not begin with the owner's prefix: once created, no owner could be recognized"
    )]
    OutsidePrefix {
        /// The declared key.
        key: String,
    },
    /// Objects that are no longer declared could not be found.
    #[error(
        "`{name}` cannot be listed, so only the ledger can tell what is ours: choose the checkpoint, \
         or have the ledger witness the marks"
    )]
    CannotList {
        /// The source.
        name: &'static str,
    },
    /// None of them could be created first.
    #[error("`{key}` needs itself, directly or through other keys")]
    NeedsItself {
        /// One of the declared keys that need each other.
        key: String,
    },
}

/// One owner at one place of an API: `owner` in `scope`.
#[must_use]
pub fn place<A: Api>(owner: &str, scope: &str) -> LedgerKey {
    LedgerKey::new(owner, A::NAME, scope)
}

/// What should exist in an API.
#[derive(Educe)]
#[educe(Clone, Default)]
pub struct DesiredObjects<A: Api> {
    table: Table<A::Key, A::Object>,
    adopt: BTreeSet<A::Key>,
    /// Keys whose declaration is not known, and why.
    unknown: BTreeMap<A::Key, String>,
    /// Which declared keys need a key.
    dependants: BTreeMap<A::Key, BTreeSet<A::Key>>,
}

impl<A: Api> DesiredObjects<A> {
    /// Sorts the desired states; refuses a key that stands there twice.
    pub fn new(
        desired_states: impl IntoIterator<Item = (A::Key, A::Object)>,
    ) -> Result<Self, DuplicateKey> {
        Ok(Self::of(Table::new(desired_states)?))
    }

    fn of(table: Table<A::Key, A::Object>) -> Self {
        let mut dependants = BTreeMap::<_, BTreeSet<_>>::new();
        for (key, object) in table.iter() {
            for need in A::needs(key, object).into_iter().filter(|need| need != key) {
                dependants.entry(need).or_default().insert(key.clone());
            }
        }
        DesiredObjects { table, adopt: BTreeSet::new(), unknown: BTreeMap::new(), dependants }
    }

    /// A declared key that can never be created, because it needs itself by way of others.
    fn needs_itself(&self) -> Option<&A::Key> {
        let mut unmet = BTreeMap::<&A::Key, usize>::new();
        let declared = |key: &A::Key| self.table.slot(key, None).is_some();
        for (_, users) in self.dependants.iter().filter(|(need, _)| declared(need)) {
            for user in users {
                *unmet.entry(user).or_default() += 1;
            }
        }
        let mut free: Vec<&A::Key> = self.table.iter().map(|(key, _)| key).collect();
        free.retain(|key| !unmet.contains_key(key));
        while let Some(key) = free.pop() {
            for user in self.dependants.get(key).into_iter().flatten() {
                if let Some(count) = unmet.get_mut(user) {
                    *count -= 1;
                    if *count == 0 {
                        unmet.remove(user);
                        free.push(user);
                    }
                }
            }
        }
        unmet.into_keys().next()
    }

    /// Says that the declarations of these keys are not known, and why: what the API holds there is neither changed nor
    /// deleted, and reported as unknown. The others do not wait for them.
    #[must_use]
    pub fn with_unknown(mut self, unknown: impl IntoIterator<Item = (A::Key, String)>) -> Self {
        self.unknown.extend(unknown);
        let known = self.table.iter().filter(|(key, _)| !self.unknown.contains_key(key));
        let known: BTreeMap<_, _> = known.cloned().collect();
        DesiredObjects { adopt: self.adopt, unknown: self.unknown, ..Self::of(known.into()) }
    }

    /// Gives permanent leave to take these keys from any owner.
    #[must_use]
    pub fn adopting(mut self, keys: impl IntoIterator<Item = A::Key>) -> Self {
        self.adopt.extend(keys);
        self
    }
}

impl<A: Api> From<BTreeMap<A::Key, A::Object>> for DesiredObjects<A> {
    fn from(objects: BTreeMap<A::Key, A::Object>) -> Self {
        Self::of(objects.into())
    }
}

impl<A: Api> From<&BTreeMap<A::Key, A::Object>> for DesiredObjects<A> {
    fn from(objects: &BTreeMap<A::Key, A::Object>) -> Self {
        objects.clone().into()
    }
}

impl<A: Api> From<&DesiredObjects<A>> for DesiredObjects<A> {
    fn from(objects: &DesiredObjects<A>) -> Self {
        objects.clone()
    }
}

impl<A: Api> PartialEq for DesiredObjects<A> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same_desired(other)
    }
}

impl<A: Api> Desired for DesiredObjects<A> {
    type Key = A::Key;
    type Object = A::Object;

    fn len(&self) -> usize {
        self.table.len()
    }

    fn slot(&self, key: &A::Key, near: Option<Slot>) -> Option<Slot> {
        self.table.slot(key, near)
    }

    fn key(&self, slot: Slot) -> A::Key {
        self.table.key(slot)
    }

    fn object(&self, slot: Slot) -> A::Object {
        self.table.object(slot)
    }

    fn compare(&self, slot: Slot, seen: &A::Object) -> Agreement {
        match A::MARKING {
            Marking::AfterCreate { is_marked } if !is_marked(seen) => Agreement::Differs,
            _ => A::compare(&self.table.object(slot), seen),
        }
    }

    fn identity(&self, seen: &A::Object) -> Option<String> {
        A::identity(seen)
    }

    fn name(&self, key: &A::Key) -> String {
        A::name(key)
    }

    fn unknown(&self, emit: &mut dyn FnMut(&A::Key, &str)) {
        self.unknown.iter().for_each(|(key, why)| emit(key, why));
    }

    fn is_same_desired(&self, other: &Self) -> bool {
        let mut slots = (0..self.len()).map(Slot::at);
        self.unknown == other.unknown
            && self.len() == other.len()
            && slots.all(|at| self.key(at) == other.key(at) && self.is_same(at, other, at))
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.table.is_same(slot, &other.table, there)
            && self.may_adopt(slot) == other.may_adopt(there)
    }

    fn dependants(&self, key: &A::Key, emit: &mut dyn FnMut(A::Key)) {
        self.dependants.get(key).into_iter().flatten().cloned().for_each(emit);
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        !self.adopt.is_empty() && self.adopt.contains(&self.table.key(slot))
    }
}

/// One call that writes.
#[derive(Clone, Debug)]
pub struct Write<K, O> {
    pub(super) change: Change<K, O>,
    /// The keys whose writes come first.
    needs: Vec<K>,
    witness: Witness,
}

impl<D: Desired> Step<D> for Write<D::Key, D::Object> {
    fn key(&self, desired: &D) -> D::Key {
        self.change.key(desired)
    }

    fn reversibility(&self, _desired: &D) -> Reversibility {
        // A deleted object can be made again as it was declared.
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        self.change.action()
    }

    fn needs(&self, _: &D, need: &mut dyn FnMut(D::Key)) {
        self.needs.iter().cloned().for_each(need);
    }

    fn is_recorded(&self) -> bool {
        self.witness == Witness::Ledger
    }

    fn explain(&self, desired: &D, emit: &mut dyn FnMut(Line)) {
        emit(self.change.line(desired));
    }
}
