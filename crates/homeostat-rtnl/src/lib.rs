//! The rtnl source: links, addresses, routes, nexthops, rules, neighbours and forwarding entries, owned by marks in the
//! kernel.
//!
//! Links are looked up by name: a desired object on a link that does not exist waits for it, unless the same
//! desired state creates it. What is ours carries our protocol number in the kernel itself (a link: our owner's
//! name in its alias); what carries another is never written.
//!
//! # One call
//!
//! [`Network`] is a namespace, by its path or its descriptor. A call takes a desired state and what was applied before,
//! writes the smallest difference, and returns a typed report and what is applied now. [`Network::reconcile`] makes one
//! pass, [`Network::converge`] waits for what takes a while, [`Network::plan`] writes nothing; [`blocking`] has the same
//! for programs without an async runtime.
//!
#![doc = concat!("```no_run\n", include_str!("../examples/connect.rs"), "```")]
//!
//! # The source
//!
//! Start at [`Rtnl`] for the source, at [`DesiredState::builder`] for what is declared. Each kind of object
//! (`address`, `route`, `nexthop`, `rule`, `neighbour`, `link`) has its key, its model, its netlink messages and
//! its section of the document in the module of its name. The flow over all kinds is `observe`, `plan`, `apply`
//! (with `requests`); `subscription` and `events` say when to look again, and keep the `shadow` by which a few
//! routes are observed without a dump.
//!
//! ```
//! use homeostat_rtnl::{Address, DesiredState, Net, Object, Route, RouteKey};
//!
//! let mut builder = DesiredState::builder();
//! let address = Object::Address(Address::default());
//! builder.add("address 192.0.2.1/24 dev eth0".parse()?, address)?;
//! builder.route(RouteKey::new("0.0.0.0/0".parse::<Net>()?), Route::via("192.0.2.254".parse()?))?;
//! let desired = builder.build()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod apply;
mod builder;
mod desired;
mod events;
mod fdb;
mod find;
mod key;
mod link;
mod message;
mod moment;
mod neighbour;
mod net;
mod network;
mod nexthop;
mod number;
mod object;
mod observe;
#[cfg(feature = "document")]
mod other_programs;
mod plan;
#[cfg(feature = "document")]
mod registration;
mod relations;
mod release;
mod requests;
mod route;
mod rule;
#[cfg(feature = "document")]
pub mod section;
mod shadow;
mod shared_map;
#[cfg(feature = "document")]
mod show;
mod snapshot;
mod source;
mod step;
mod subscription;
#[cfg(feature = "document")]
mod table_names;
mod unused;
#[cfg(feature = "document")]
mod values;
#[cfg(feature = "document")]
mod words;

pub use address::cascade::Cascade;
pub use address::{Address, AddressKey, AddressMarks, Lifetime};
pub use apply::Writer;
pub use builder::{Builder, DesiredError, Impossible};
pub use desired::DesiredState;
pub use fdb::{Fdb, FdbKey, FdbTable, Remote};
pub use homeostat_core::{Finding, WaitsOn};
pub use homeostat_kit::{Applied, Change, Plan, Report, Verdict};
pub use homeostat_netns::Netns;
pub use ipnet::IpNet;
pub use key::Key;
pub use link::kinds::*;
pub use link::matching::LinkMatch;
pub use link::model::{
    BridgeSettings, Configured, Field, Incarnation, Link, LinkRef, PortSettings, Setting, Settings,
};
pub use link::port::PortOption;
pub use link::sysctls::SysctlSet;
pub use link::vlans::{VlanFlags, VlanRange, Vlans};
pub use link::vnis::{VniRange, Vnis};
pub use link::{IfIndex, LinkName, Links};
pub use moment::Moment;
pub use neighbour::{Mac, Neighbour, NeighbourKey};
pub use net::{Family, Net};
pub use network::{Error, Network, blocking};
pub use nexthop::{Member, Nexthop, NexthopId, Unusual};
pub use number::{Metric, ParseError, Protocol, Scope, Table, Tos};
pub use object::Object;
pub use observe::{ListedObject, Reader};
#[cfg(feature = "document")]
pub use registration::REGISTRATION;
pub use route::encap::{Encap, Seg6Mode};
pub use route::rare::{Bit, Millis, PathMetrics, Preference, Rare, RareAttributes};
pub use route::{Hop, Route, RouteKey, RouteKind};
pub use rule::{Dscp, IpProtocol, Mark, Ports, Rule, RuleAction, RuleKey, TunId, UidRange};
pub use source::Rtnl;
pub use step::{Act, Cycle, Delete, LinkStep, Phase, Step, Update};
