//! What an author of a source needs beside the contract, so that keeping some API converged takes
//! one file.
//!
//! [`simple::Api`] is the small form of a source: list, create, update, delete. [`simple::Adapted`]
//! makes a whole `Source` of it. [`provider`] is where wishes come from. The package
//! `homeostat-shapes` shows it all, against a real HTTP service; the law suite of
//! `homeostat-testkit` judges the result.

pub mod lifecycle;
pub mod normalize;
pub mod pipeline;
pub mod provider;
pub mod simple;
pub mod strategy;
