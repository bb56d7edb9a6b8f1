//! Keeps any API the way its owner declared it: what a Kubernetes controller does, for an API of your choice.
//!
//! # From nothing to a running loop
//!
//! You have an API whose objects can be listed, created, updated and deleted; on this page they are lamps. The objects
//! that should exist are the *desired state*. A *pass* lists what exists, compares it with the desired state and writes
//! the difference. A *loop* decides when the next pass runs. You write the calls of the API; comparison, order, ownership,
//! retries and timing are here.
//!
//! *One:* say what an object is, and how it is listed and written. That is [`simple::Api`], and it is
//! all that you write. A key is one line of text that parses back; `String` will do. An object is a type of yours that
//! derives `Clone`, `PartialEq` and serde's `Serialize` and `Deserialize`: it is shown in plans, and recorded where
//! the target cannot say whose it is. Four things need thought:
//!
//! - A list is whole or it fails: "empty for now" would delete everything.
//! - A create never writes over what is there, and sets your mark in the same call.
//! - An update or delete touches an object only if it still is yours: `before` is what the pass saw. If the target holds
//!   something else by now, answer [`Moved`](simple::Refusal::Moved).
//! - No call blocks the thread: `std::fs` or a synchronous client goes into `spawn_blocking`
//!   ([how, and what to watch for](simple#calls-that-block)).
//!
//! *Two:* say how yours are distinguished from others' ([`strategy`]). There is no default, since a
//! wrong one deletes your neighbour's lamps.
//!
//! | the target | strategy |
//! |---|---|
//! | holds a text with each object: a tag, a label, a comment | [`Strategy::marker("me")`](Strategy::marker) |
//! | holds none, but you choose the names | [`Strategy::prefix("me-")`](Strategy::prefix): **every** name that begins so is ours, even if another program made it; a desired state with any other name is refused as a whole |
//! | neither | [`Strategy::Checkpoint`] with `Reconciler::state` or [`Applied`]: what we made is recorded |
//! | has no other owner at all | [`Strategy::Exclusive`] |
//!
//! Without marks, [`Strategy::seen`] is given `None`, and a create writes none.
//!
//! *Three:* say what should be there, as a map, and call [`reconcile()`] or a [`Reconciler`].
//!
//! # Depend on it
//!
//! ```toml
//! [dependencies]
//! homeostat-kit = "0.1"
//! serde = { version = "1", features = ["derive"] }
//! tokio = { version = "1", features = ["macros", "rt", "signal", "sync", "time"] }
//!
//! [dev-dependencies]
//! homeostat-testkit = "0.1"
//! ```
//!
//! A runtime that you build yourself needs `enable_time`. Everything works on a current-thread runtime. Without the
//! default feature `sqlite` there is no `Reconciler::state`, and no C code is built; ownership is then remembered by
//! marks, in a value ([`Applied`]), or in a [ledger](Reconciler::ledger) of yours. The traits beneath are in [`engine`],
//! which is `homeostat_engine`.
//!
//! # A whole program
//!
//! It can be pasted as it is: an API in memory, and one call for it. What is ours goes in and comes out as a value
//! ([`Applied`]), which the program keeps where it likes.
//!
#![doc = concat!(
    "```\n",
    include_str!("../examples/lamps/api.rs"),
    "\n",
    include_str!("../examples/lamps/reconcile.rs"),
    "```"
)]
//!
//! # A loop
//!
//! Replace `main` and the `use` line above it with this, and the same program keeps the lamps as they were sent last. A
//! state that is put is applied at once. What others change is healed at the next look at everything, every 5 seconds
//! unless [`Reconciler::resync`] says otherwise, or at once where [`simple::Api::watch`] announces it. A state that cannot
//! be used is refused as a whole, the one before stays in force, and [`provider::Sender::verdict`] says why. If the sender is dropped,
//! the last state stays. [`Reconciler::run`] returns when its second argument is ready: any future without a result, such as
//! `async { _ = tokio::signal::ctrl_c().await }`.
//!
#![doc = concat!(
    "```\n",
    "# include!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/examples/lamps/api.rs\"));\n",
    include_str!("../examples/lamps/keep.rs"),
    "```"
)]
//!
//! # How to call it
//!
//! | you want | call |
//! |---|---|
//! | to see what would be done | [`Reconciler::plan`] |
//! | one pass | [`Reconciler::reconcile`] |
//! | to wait for what takes a while, up to a deadline | [`Reconciler::converge`] |
//! | to keep it so, from a [`provider`], until a shutdown | [`Reconciler::run`] |
//! | no state at all: what is ours goes in and comes out as a value | [`reconcile()`] |
//! | commands, status, several sources in one program | [`engine::Loop`], which all of these run |
//!
//! All but `run` take the map by reference. Plans and reports print themselves (`{plan}`), and [`Report::is_converged`] says
//! whether all is well.
//!
//! # If you know kube-rs
//!
//! | in kube-rs | here |
//! |---|---|
//! | `Controller::run` | [`Reconciler::run`] |
//! | `reconcile`, in which you compare and write | none: you write single calls ([`simple::Api`]), and the comparison is made for you |
//! | custom resources, of which each starts a `reconcile` | the whole desired state, as a map; or records in a [`store`] that others write |
//! | `watcher`, `Controller::watches` | [`simple::Api::watch`]: keys that may have changed. It may lose some |
//! | the label selector of what you list, owner references, the field manager | [`Strategy`]: what is not ours is neither changed nor deleted |
//! | `Controller::owns` and garbage collection | what is ours and no longer declared is deleted; [`simple::Api::needs`] says in which order |
//! | `Action::requeue`, `error_policy` | [`simple::Refusal`] and [`Retry`]: pauses grow by themselves |
//! | the periodic relist | [`Reconciler::resync`] |
//! | `finalizer` | [`lifecycle`] |
//! | conditions in `status` | [`Report`], and [`Finding`] for each key |
//! | leader election | `homeostat_store::Holder::while_held` starts and stops a loop by a lease. Without it: one process for each owner. With `Reconciler::state`, a second one in the same directory fails at once, and its error names the first; without it, you vouch for it |
//!
//! # What to answer
//!
//! Reads return everything or a [`Failure`], which says when another try makes sense ([`Retry`]).
//! [`Strategy::seen`] says of each object whose it is, by its mark; a target that holds no marks
//! passes `None`. An API that judges by itself answers with an [`Owner`]: [`Owner::Kernel`] is what the target made by
//! itself and no desired state declares (a default entry), whatever the target is, and it is left alone.
//!
//! Writes return what the target holds now, or a [`simple::Refusal`]: it is gone, it is another owner's, it
//! changed meanwhile, it is a task, not now, the answer was lost, it failed. Each is handled in its own way; its page has
//! the table. With `?`, an `io::Error` of a connection becomes the right one: `Unknown` where the answer may be lost, else
//! `Failed`. It knows nothing of your objects, so answer for them yourself: a delete or update that finds nothing is `Gone`, a create
//! that finds something is `Moved` (look again) or `Conflict` (it is another's). A write that may have been done in part is
//! `Unknown`, never `Failed`. In a read, write `.map_err(Failure::soon)?`.
//!
//! # What else is here
//!
//! | you need | it is |
//! |---|---|
//! | hints, so that drift is healed at once | [`simple::Watch`], [`simple::Numbered`] for gaps |
//! | versions as conditions on writes, ids that are never used again | [`simple::Versioned`] |
//! | tasks, "retry later", answers that are not failures | [`simple::Refusal`] |
//! | an API that cannot list, or not all at once | [`simple::Listing`] |
//! | objects that need others | [`simple::Api::needs`] |
//! | a mark that the creating call cannot take | [`simple::TwoStep`] |
//! | a rate limit for calls | [`simple::Limit`] |
//! | tenants: everything below a name | [`simple::Api::name`] with [`Strategy::Prefix`] |
//! | one broken declaration that must not stop the others | [`simple::DesiredObjects::with_unknown`] |
//! | desired states that are checked before they are used | [`provider::Validated`] |
//! | a guard that holds even the last few deletes | [`simple::Api::FREE_DELETES`], [`Reconciler::delete_budget`] |
//! | fields that the target rewrites | [`normalize`] |
//! | desired states from a file or a channel | [`provider`] |
//! | a desired state of parts that come and go under names of their own | [`pieces`] |
//! | desired states from a store that others write | [`store`] |
//! | declarations that stay until they are cleaned up (finalizers) | [`lifecycle`] |
//! | proof that your source keeps the laws, also over crashes | `homeostat_testkit::laws`: `check` and `check_crashes`; its page has the test of these lamps |
//!
//! # What you can rely on
//!
//! - Nothing is deleted unless it is ours and was seen in this pass. An object that could not be read is left alone.
//! - A pass that would delete more than ten of our objects, and more than half of them, deletes none and says so, until
//!   [`Reconciler::allow_mass_delete`] permits it.
//! - A pass that finds nothing to do writes nothing, neither to the target nor to the disk.
//! - A call whose answer was lost is not sent again before the target was looked at.
//! - While no desired state can be read, the last good one stays in force.
//! - Nothing runs but the futures that you await. Dropping one stops it; nothing is written after that, except by what
//!   your API itself has handed to another thread ([blocking calls](simple#calls-that-block)) or has sent already.
//!
//! # Examples
//!
//! The repository has two examples: `homeostat-postgres` keeps roles and databases of a real server in one file, and
//! `homeostat-shapes` uses all of this against a real HTTP service. Its page about reconciliation says, scene by scene,
//! why each of it is needed.

#![warn(missing_docs)]

mod applied;
mod error;
pub mod finished_files;
pub mod lifecycle;
pub mod normalize;
pub mod once;
pub mod pieces;
pub mod provider;
mod reconciler;
pub mod report;
pub mod simple;
pub mod store;
pub mod strategy;
mod sys;

pub use applied::Applied;
pub use error::Error;
pub use homeostat_engine as engine;
pub use homeostat_engine::{
    Action, Agreement, Budget, Cause, Coverage, Event, EventKind, Failure, Finding, Hint, OnStop,
    Owner, Retry, Seen, Summary, WaitsOn,
};
pub use reconciler::{Objects, Reconciler, reconcile};
pub use report::{Change, Plan, Report, Verdict};
pub use simple::DeletePolicy;
pub use strategy::Strategy;
