//! The built binary against the running kernel: each test in a network namespace of its own, which
//! the program takes for the host, with a state directory of its own.
//!
//! What the kernel holds is read from `/proc/sys` or asked of `ip`, never of our own reader. The
//! expected texts stand in the tests; `SNAPSHOTS=overwrite` writes them anew. Start at [`world`].
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside of `#[test]` clippy cannot know"
)]
#![expect(
    clippy::needless_raw_string_hashes,
    reason = "expected texts are written by the snapshot tool, which always puts them"
)]

mod apply;
mod bad;
mod balancer;
mod booted;
mod browser;
mod cards;
mod checks;
mod clusters;
mod colours;
mod commands;
mod confirmed;
mod control;
mod daemon;
mod doctor;
mod documents;
mod dump;
mod examples;
mod exclusive;
mod failing;
mod file_inputs;
mod files;
mod firewall;
mod first_host;
mod fleet;
mod followed;
mod forwarding;
mod guards;
mod guests;
mod half_written;
mod healthy;
mod holder;
mod hostile_cluster;
mod http;
mod import;
mod included;
mod journals;
mod keeping;
mod kernel;
mod killed;
mod ledger;
mod lock;
mod lost;
mod manual;
mod many;
mod modes;
mod names;
mod network;
mod nft;
mod optional;
mod orders;
mod owners;
mod package;
mod page;
mod parked;
mod patterns;
mod pieces;
mod plan;
mod program;
mod provider;
mod queues;
mod random_network;
mod random_trials;
mod reading;
mod rendered;
mod resolver;
mod restart;
mod restored_at_boot;
mod retries;
mod sabotaged_files;
mod sandbox;
mod saved;
mod services;
mod show;
mod silence;
mod soak;
mod spaces;
mod started;
mod stuck;
mod systemd;
mod table;
mod tables;
mod terminal;
mod torment;
mod trial;
mod trial_clock;
mod trial_faults;
mod trial_kills;
mod turns;
mod undone;
mod uninstall;
mod unit;
mod unsaid;
mod words;
mod world;
