//! A source in a hundred lines: an API that can list, create, update and delete.
//!
//! An author implements [`Api`]; [`Adapted`] makes a `Source` of it that runs in *lanes*: the writes of one key come one
//! after the other, those of different keys side by side, so a key that fails or is slow delays no other.
//!
//! # The laws of an `Api`
//! 1. `list` returns everything, or fails. A page that could not be read is a failure of the whole
//!    list; an object that could not be read is `Seen::Unknown`. There is no "empty for now".
//! 2. Objects are normalized: what `create` and `update` were given is what `list` returns.
//! 3. `create` never writes over an object that is there, and sets the mark in the same call, or says that it cannot
//!    ([`Marking::AfterCreate`]).
//! 4. `update` and `delete` touch an object only if it still is ours.
//!
//! # Calls that block
//! The loop and all calls of a pass share one task. A call that blocks (`std::fs`, a synchronous client) stops them all,
//! and no deadline ends it: run it by `tokio::task::spawn_blocking`, and await that. When a call is dropped (its pass
//! exceeds the deadline, or the caller drops what it awaits), the closure goes on to its end, and may write after that.
//! So let the closure do one write that is whole by itself and carries its precondition: write a file under another name,
//! then `hard_link` it to create it, which fails if it is there, or `rename` it to replace it. The next pass looks before
//! it writes, and finds it.
//!
//! # A whole source
//! The program on the [front page](crate#a-whole-program) has one. Each write has its precondition in the same lock as
//! the write: another writer may change the object between list and write.
//! A target that is reached by a network has to check it itself: create-if-absent, an entity tag, a `WHERE` clause.

mod follow_up;
mod reader;
mod refusal;
mod source;
mod two_step;
mod versioned;
mod watch;
mod writer;

use std::collections::BTreeSet;
use std::future::Future;

use homeostat_engine::{Agreement, Coverage, Failure, Key, Object, Seen};

pub use reader::{ApiReader, Listing, Shards, whole};
pub use refusal::Refusal;
pub use source::{Adapted, BindRefused, DeletePolicy, DesiredObjects, Witness, Write, place};
pub use two_step::{Marking, TwoStep};
pub use versioned::Versioned;
pub use watch::{Notice, Notices, Numbered, Silent, Watch};
pub use writer::{ApiWriter, Bucket, Limit};

/// Everything that an API returned in one answer.
pub type Listed<A> = Vec<Seen<<A as Api>::Key, <A as Api>::Object>>;

/// The result of a write: what the target holds afterwards, if it says so.
pub type Written<A> = Result<Option<<A as Api>::Object>, Refusal>;

/// An API that keeps objects under keys. Its calls must not block the thread: see [calls that block](self#calls-that-block).
pub trait Api: Send + Sync + 'static {
    /// The name in plans, logs and settings.
    const NAME: &'static str;
    /// How many of the changes [`Api::watch`] reports.
    const COVERAGE: Coverage = Coverage::None;
    /// What [`Api::list`] and [`Api::list_shard`] can return.
    const LISTING: Listing = Listing::Whole;
    /// When an object gets its mark, where objects are marked.
    const MARKING: Marking<Self::Object> = Marking::InCreate;

    /// Up to this many deletes in a full pass are never held as a mass delete, whatever part of our objects they are. An
    /// API with few objects, each of which would be missed, says 0.
    const FREE_DELETES: usize = 10;

    /// Identity as the API sees it: any type that is ordered and hashed (`Ord`, `Hash`, `Clone`, `Debug`), and whose
    /// text (`Display`) is one line that parses back to it (`FromStr`). A `String` is one.
    type Key: Key;
    /// The managed part of an object: any type with `Clone`, `PartialEq`, and serde's `Serialize` and `Deserialize`
    /// without borrowed parts (`DeserializeOwned`). It is serialized where it is shown, and where the
    /// [ledger](crate::Reconciler::ledger) records it.
    type Object: Object;

    /// Everything that there is, each with its owner. Not called where nothing can be listed, or
    /// where the API is listed in parts.
    fn list(&self) -> impl Future<Output = Result<Listed<Self>, Failure>> + Send;

    /// Everything in one part of an API that is listed in parts.
    fn list_shard(
        &self,
        shard: usize,
    ) -> impl Future<Output = Result<Listed<Self>, Failure>> + Send {
        let _ = shard;
        self.list()
    }

    /// The part in which a key is listed.
    fn shard(key: &Self::Key) -> usize {
        let _ = key;
        0
    }

    /// What there is under these keys. An API that reads single objects cheaply does so here; the
    /// default lists everything.
    fn look(
        &self,
        keys: &BTreeSet<Self::Key>,
    ) -> impl Future<Output = Result<Listed<Self>, Failure>> + Send {
        let _ = keys;
        self.list()
    }

    /// Makes an object that is absent, with our mark.
    fn create(
        &self,
        key: &Self::Key,
        wanted: &Self::Object,
    ) -> impl Future<Output = Written<Self>> + Send;

    /// Changes an object of ours.
    fn update(
        &self,
        key: &Self::Key,
        before: &Self::Object,
        wanted: &Self::Object,
    ) -> impl Future<Output = Written<Self>> + Send;

    /// Takes an object over from any owner, if the desired state allows it. The default is an update.
    fn adopt(
        &self,
        key: &Self::Key,
        before: &Self::Object,
        wanted: &Self::Object,
    ) -> impl Future<Output = Written<Self>> + Send {
        self.update(key, before, wanted)
    }

    /// Removes an object of ours. [`Refusal::Gone`] counts as success.
    fn delete(
        &self,
        key: &Self::Key,
        before: &Self::Object,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// The keys that an object needs to exist: it is created after them, and deleted before them. What is not declared
    /// here may belong to another writer; only a key that is not as declared, and known to be so, is waited for. The
    /// dependent is tried again when something happens to what it needs, not by a timer.
    fn needs(key: &Self::Key, object: &Self::Object) -> Vec<Self::Key> {
        let _ = (key, object);
        Vec::new()
    }

    /// What a [name prefix](crate::strategy::Strategy::Prefix) is compared with: by default the whole text of the key. A
    /// key of several parts returns the one that says whose it is: `tenant-a/app` of `role tenant-a/app`, so that the
    /// prefix `tenant-a/` owns everything below it.
    fn name(key: &Self::Key) -> String {
        key.to_string()
    }

    /// Compares declared attributes only. The default compares the whole object; an attribute that
    /// a desired state may leave open needs more.
    fn compare(wanted: &Self::Object, seen: &Self::Object) -> Agreement {
        Agreement::when(wanted == seen)
    }

    /// What distinguishes this very object from a later one of the same name, where the API has it (an id
    /// that it gave). A record in the ledger is about one of them only.
    fn identity(seen: &Self::Object) -> Option<String> {
        let _ = seen;
        None
    }

    /// The state of a task that a write returned ([`Refusal::Task`]). The default knows none.
    fn task(&self, id: &str) -> impl Future<Output = Result<Progress, Failure>> + Send {
        let _ = id;
        std::future::ready(Ok(Progress::Lost))
    }

    /// Subscribes to hints: keys that may have changed, and are looked at at once. It is called before the first list,
    /// so that nothing is missed between the two. The default has none to give: drift is then found at the
    /// [resync](crate::Reconciler::resync), a pass on a timer that looks at everything. Hints may be lost, so there is
    /// one in any case.
    fn watch(&self) -> impl Future<Output = Result<Box<dyn Watch<Self::Key>>, Failure>> + Send {
        std::future::ready(Ok(Box::new(Silent) as Box<dyn Watch<Self::Key>>))
    }
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Progress {
    /// It goes on.
    Running,
    /// It has ended; a look shows whether it did what it should.
    Over,
    Failed(Failure),
    /// The target knows no such task; a look shows whether it ran.
    Lost,
}
