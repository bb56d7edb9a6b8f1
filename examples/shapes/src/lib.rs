//! The teaching example: a foreign API, and what it takes to keep it as declared.
//!
//! [`service`] is a tiny real HTTP service that stores shapes and can be made to misbehave. It stands
//! for any API that homeostat does not know. [`source`] is all that an author writes to have it kept
//! converged: one file of about a hundred lines. [`document`] is the desired state as a person writes it,
//! [`declarations`] a store in which declarations live with their finalizers, and [`refs`] a ledger in that store.
//! [`pipeline`] renders a [`template`] and checks the text before it is a desired state. The project's page about
//! reconciliation explains it scenario by scenario; each is a test of this package.
//!
//! Start at [`source`].

pub mod client;
pub mod declarations;
pub mod document;
pub mod pipeline;
pub mod refs;
pub mod service;
pub mod shape;
pub mod source;
pub mod template;
