//! The source against a real kernel, each test in a namespace of its own, judged by `nft`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod applying;
mod corpus;
mod declared;
mod facts;
mod hints;
mod laws;
mod links;
mod moved;
mod owning;
mod quirks;
mod random;
mod refusing;
mod whole;
mod world;
