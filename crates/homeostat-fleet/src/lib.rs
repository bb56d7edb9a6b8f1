//! Everything of a fleet that is pure: no I/O, no clock, no runtime. Records in, decisions out.
//!
//! ```text
//! operator     pack ─▶ chunks, manifest          Tree::new ─▶ root ─▶ Statement ──ssh-keygen──▶ SignedStatement
//! coordinator  Rollout + View ──decide──▶ Act { guards, puts }                        one transaction of the store
//! node         SignedStatement + Want ──judge──▶ Accept | Current | Plan | Refused    then a trial, then a Status
//! ```
//!
//! ```
//! use homeostat_fleet::chunks::{deflate, inflate, pack, Manifest};
//! use homeostat_fleet::merkle::{self, Class, Leaf, Tree};
//!
//! # fn main() -> Result<(), homeostat_fleet::Error> {
//! let new = pack([("host.toml", b"[[routes]]\n".as_slice())], &[]);
//! let old = pack([("host.toml", b"".as_slice())], &[]);
//! // One root, which operators sign, says what each of a thousand nodes gets, and what it falls back to.
//! let leaf = |number| -> Result<Leaf, homeostat_fleet::Error> {
//!     let node = format!("r{number}").parse()?;
//!     Ok(Leaf { node, document: new.document, fallback: old.document, class: Class::Reversible })
//! };
//! let leaves = (0..1000).map(leaf).collect::<Result<Vec<_>, _>>()?;
//! let tree = Tree::new(leaves.iter().map(Leaf::hash));
//! let proof = tree.proof(17).unwrap_or_default();
//! assert!(merkle::verify(&tree.root(), 1000, 17, &leaves[17].hash(), &proof));
//! // A node fetches chunks by their hashes, and checks everything.
//! let manifest = Manifest::of_document(&new.document, &new.manifest)?;
//! let content = manifest.files[0].assemble(|digest| {
//!     let stored = deflate(new.chunks.get(digest)?);
//!     inflate(&stored, digest).ok()
//! })?;
//! assert_eq!(content, b"[[routes]]\n");
//! # Ok(())
//! # }
//! ```
//!
//! - **[`Signature`] and [`AllowedSigners`]** verify what `ssh-keygen -Y sign` writes, by the list that OpenSSH uses: k distinct
//!   keys of n.
//! - **[`merkle`]** lets one signature cover a different document for each node.
//! - **[`records`]** are what the store has, as JSON, and **[`keys`]** say where.
//! - **[`judge`]** says whether a node may take what the store offers. The store is not trusted.
//! - **[`order`]** says whether one command may be carried out that a document lets only signed orders do.
//! - **[`node`]** is what a node keeps of it, and the status that follows.
//! - **[`chunks`]** cut documents so that one changed line of a million moves a few kilobytes.
//! - **[`decide`]** says what the coordinator does next: waves, limits, soak, stop and fallback, each act as one guarded
//!   transaction.

mod allowed_signers;
mod base64;
pub mod chunks;
pub mod decide;
mod digest;
mod error;
pub mod judge;
pub mod keys;
pub mod merkle;
mod name;
pub mod node;
pub mod order;
pub mod records;
mod signature;
mod time;

pub use allowed_signers::{AllowedSigners, Approval, Signer};
pub use digest::Digest;
pub use error::{Error, SignatureError};
pub use name::Name;
pub use signature::{PublicKey, Signature};
pub use time::Time;
