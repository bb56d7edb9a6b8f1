//! Tools for tests of sources.
//!
//! [`laws::check`] runs the laws of the contract over a source and names the one that is broken. [`memory`] is a
//! source over a target in memory with faults on demand. [`ledger`] wraps a ledger to count its writes, or to abort
//! the process at one of them. [`foreign_commits`] is another writer of nftables. [`namespace`] gives a kernel test a
//! network namespace, [`unreachable_kernel`] takes the kernel away from open sockets. [`script`] writes executable
//! scripts that replace other programs. [`booted`] is a machine with systemd, [`etcd`] has members of etcd. [`entries`] puts
//! plans and reports into lines, [`undoing`] judges what a source lists of how its steps are undone.

pub mod booted;
pub mod entries;
pub mod etcd;
pub mod foreign_commits;
pub mod laws;
pub mod ledger;
pub mod memory;
pub mod namespace;
pub mod script;
pub mod undoing;
pub mod unreachable_kernel;
