//! The source against a real kernel, each test in a namespace of its own, judged by `nft`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod applying;
mod beside;
mod confirming;
mod corpus;
mod declared;
mod examples;
mod facts;
mod hints;
mod hooks;
mod included;
mod including;
mod interleaved;
mod keeping;
mod laws;
mod lines;
mod links;
mod moved;
mod named;
mod owning;
mod packets;
mod quirks;
mod random;
mod refusals;
mod refusing;
mod saboteur;
mod shadow;
mod storm;
mod transitions;
mod unannounced;
mod whole;
mod world;
