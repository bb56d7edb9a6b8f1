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
//! *Three:* bind a desired state, and run the loop.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//!
//! use homeostat_engine::{
//!     Alone, Control as _, Events, Failure, Loop, LoopDeps, MemoryLedger, OnStop, Owner, Pace,
//! };
//! use homeostat_kit::simple::{Adapted, Api, DesiredObjects, Listed, Refusal, Written, place};
//! use homeostat_kit::strategy::{Marker, Strategy};
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
//!
//! let desired = DesiredObjects::new([("desk".to_owned(), 80), ("door".to_owned(), 20)])?;
//! let bound = Adapted::new(lamps.clone()).bind(&strategy, desired, place::<Lamps>("me", "home"))?;
//! let means = LoopDeps {
//!     lock: Arc::new(Alone::i_am_the_only_writer()),
//!     ledger: Arc::new(MemoryLedger::default()),
//!     events: Events::default(),
//! };
//! let (kept, handle) = Loop::new(bound, means, Pace::of::<Adapted<Lamps>>(1));
//! let running = tokio::spawn(kept.run());
//!
//! handle.wait_for(|status| status.is_converged).await?;
//! lamps.wall.lock().unwrap().remove("desk");          // Another program does...
//! assert!(handle.pass().await??.is_converged());      // ...and the next look puts it back.
//! assert_eq!(lamps.wall.lock().unwrap()["desk"].0, 80);
//! assert_eq!(lamps.wall.lock().unwrap()["moon"].0, 1, "what is not ours is left alone");
//! handle.stop(OnStop::Leave).await;
//! running.await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # What else is here
//!
//! | you need | it is |
//! |---|---|
//! | hints, so that drift is healed at once | [`simple::Watch`], [`simple::Numbered`] for gaps |
//! | versions as conditions on writes, ids that are never used again | [`simple::Versioned`] |
//! | tasks, "come back later", failures that are none | [`simple::Refusal`] |
//! | an API that cannot list, or not all at once | [`simple::Listing`] |
//! | no more than so many calls | [`simple::Limit`] |
//! | fields that the target rewrites | [`normalize`] |
//! | desired states from a file or a channel | [`provider`] |
//! | proof that your source keeps the laws | `homeostat_testkit::laws` |
//!
//! The package `homeostat-shapes` uses all of it, against a real HTTP service, and shows two things on top: a template
//! that is checked before it is a desired state, and finalizers for declarations in a store. `docs/reconciliation.md`
//! says why each of it is needed.

#![warn(missing_docs)]

pub mod finished_files;
pub mod normalize;
pub mod provider;
pub mod simple;
pub mod strategy;
mod sys;
