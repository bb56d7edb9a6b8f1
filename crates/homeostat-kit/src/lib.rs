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
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//!
//! use homeostat_engine::{Failure, Finding, Owner};
//! use homeostat_kit::simple::{Api, Listed, Refusal, Written};
//! use homeostat_kit::strategy::{Marker, Strategy};
//! use homeostat_kit::{Reconciler, Verdict};
//!
//! /// Lamps by name: how bright, and whose.
//! #[derive(Clone)]
//! struct Lamps {
//!     wall: Arc<Mutex<BTreeMap<String, (u8, String)>>>,
//!     strategy: Strategy,
//! }
//!
//! impl Api for Lamps {
//!     const NAME: &'static str = "lamps";
//!     type Key = String;
//!     type Object = u8;
//!
//!     async fn list(&self) -> Result<Listed<Self>, Failure> {
//!         let wall = self.wall.lock().unwrap();
//!         let seen = |(name, (light, mark)): (&String, &(u8, String))| {
//!             self.strategy.seen(name.clone(), *light, Some(mark.as_str()))
//!         };
//!         Ok(wall.iter().map(seen).collect())
//!     }
//!
//!     async fn create(&self, name: &String, light: &u8) -> Written<Self> {
//!         let mark = self.strategy.mark().unwrap_or_default();
//!         match self.wall.lock().unwrap().entry(name.clone()) {
//!             std::collections::btree_map::Entry::Vacant(free) => free.insert((*light, mark)),
//!             _ => return Err(Refusal::Conflict(Owner::foreign("whoever was first"))),
//!         };
//!         Ok(Some(*light))
//!     }
//!
//!     async fn update(&self, name: &String, _: &u8, light: &u8) -> Written<Self> {
//!         match self.wall.lock().unwrap().get_mut(name) {
//!             Some(lamp) => Ok(Some({ lamp.0 = *light; *light })),
//!             None => Err(Refusal::Gone),
//!         }
//!     }
//!
//!     async fn delete(&self, name: &String, _: &u8) -> Result<(), Refusal> {
//!         self.wall.lock().unwrap().remove(name).map(|_| ()).ok_or(Refusal::Gone)
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let strategy = Strategy::Marker(Marker::new("me")?);
//! let lamps = Lamps { wall: Arc::default(), strategy: strategy.clone() };
//! lamps.wall.lock().unwrap().insert("moon".into(), (1, "nature".into()));
//! let desired = BTreeMap::from([("desk", 80), ("moon", 9)].map(|(name, light)| (name.to_owned(), light)));
//!
//! let home = Reconciler::new(lamps.clone(), strategy).scope("home"); // And `.state(directory)`, to remember.
//! assert_eq!(home.plan(&desired).await?.summary().create, 1); // Nothing is written.
//! let report = home.reconcile(&desired).await?;
//! match report.verdict() {
//!     Verdict::Converged => println!("all is as declared"),
//!     Verdict::Open(open) => for (key, finding) in open {
//!         assert_eq!(key, "moon");
//!         assert!(matches!(finding, Finding::Conflict { .. }), "what is not ours is left alone");
//!     },
//!     Verdict::Broken(failure) => return Err(failure.clone().into()),
//! }
//! assert_eq!(lamps.wall.lock().unwrap()["desk"].0, 80);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
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
pub use reconciler::{Objects, Reconciler, reconcile};
pub use report::{Change, Plan, Report, Verdict};
pub use simple::DeletePolicy;
