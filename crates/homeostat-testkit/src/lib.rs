//! What tests of sources are made of.
//!
//! [`laws::check`] runs the laws of the contract over anybody's source and names the one that is
//! broken. [`memory`] is a source over a target in memory that can be told to misbehave. [`ledger`]
//! wraps a ledger to count its writes, or to die at one of them. [`namespace`] gives a kernel test
//! a network of its own, [`blindfold`] takes the kernel out of its reach, and [`deaf`] keeps its
//! hints away. [`script`] writes programs that stand in the place of others.

pub mod blindfold;
pub mod deaf;
pub mod laws;
pub mod ledger;
pub mod memory;
pub mod namespace;
pub mod script;
