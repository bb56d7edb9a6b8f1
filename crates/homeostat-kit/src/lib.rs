//! Keeps any API the way its owner declared it. This is the front door for authors of sources.
//!
//! # From nothing to a running loop
//!
//! **A source is one subsystem that can be looked at and written to.** Say, lamps that can be listed,
//! switched on, changed and taken away. What should be there is a *desired state*; who looks, compares and
//! writes the difference makes a *pass*; who decides when is a *loop*. You bring the source; the rest
//! is here.
//!
//! *One:* say what an object is, and how it is listed and written. That is [`simple::Api`], and it is
//! all that you write. Two things need thought. A list is whole or it fails: "empty for now" would
//! delete everything. And a create never writes over what is there, and sets your mark in the same
//! call.
//!
//! *Two:* say how yours are distinguished from others' ([`strategy::Strategy`]). There is no default, since a
//! wrong one deletes your neighbour's lamps.
//!
//! *Three:* say what should be there, as a map, and call [`Reconciler`].
//!
//! This is a whole API, in memory:
//!
#![doc = concat!("```\n", include_str!("../examples/lamps/mod.rs"), "```")]
//!
//! # One call
//!
//! What is ours goes in and comes out as a value, which the program keeps where it likes.
//!
#![doc = concat!("```\n", include_str!("../examples/reconcile.rs"), "```")]
//!
//! # A loop
//!
#![doc = concat!("```\n", include_str!("../examples/keep.rs"), "```")]
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
//! | commands, status, several sources in one program | `homeostat_engine::Loop`, which all of these run |
//!
//! # What else is here
//!
//! | you need | it is |
//! |---|---|
//! | hints, so that drift is healed at once | [`simple::Watch`], [`simple::Numbered`] for gaps |
//! | versions as conditions on writes, ids that are never used again | [`simple::Versioned`] |
//! | tasks, "come back later", failures that are none | [`simple::Refusal`] |
//! | an API that cannot list, or not all at once | [`simple::Listing`] |
//! | objects that need others | [`simple::Api::needs`] |
//! | a mark that the creating call cannot take | [`simple::TwoStep`] |
//! | no more than so many calls | [`simple::Limit`] |
//! | tenants: everything below a name | [`simple::Api::name`] with [`strategy::Strategy::Prefix`] |
//! | one broken declaration that must not stop the others | [`simple::DesiredObjects::with_unknown`] |
//! | desired states that are checked before they are used | [`provider::Validated`] |
//! | a guard that holds even the last few deletes | [`simple::Api::FREE_DELETES`], [`Reconciler::delete_budget`] |
//! | fields that the target rewrites | [`normalize`] |
//! | desired states from a file or a channel | [`provider`] |
//! | proof that your source keeps the laws, also over crashes | `homeostat_testkit::laws` |
//!
//! Without the default feature `sqlite` there is no state directory, and no database is built.
//!
//! The package `homeostat-postgres` keeps roles and databases of a real server in one file. The package
//! `homeostat-shapes` uses all of it, against a real HTTP service, and shows two things on top: a template
//! that is checked before it is a desired state, and finalizers for declarations in a store. `docs/reconciliation.md`
//! says why each of it is needed.

#![warn(missing_docs)]

mod applied;
mod error;
pub mod finished_files;
pub mod normalize;
pub mod once;
pub mod provider;
mod reconciler;
pub mod report;
pub mod simple;
pub mod strategy;
mod sys;

pub use applied::Applied;
pub use error::Error;
pub use homeostat_engine::{
    Action, Agreement, Budget, Cause, Coverage, Event, EventKind, Failure, Finding, OnStop, Owner,
    Retry, Seen, Summary, WaitsOn,
};
pub use reconciler::{Objects, Reconciler, reconcile};
pub use report::{Change, Plan, Report, Verdict};
pub use simple::DeletePolicy;
