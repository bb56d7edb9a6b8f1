//! The rtnl source: links, addresses, routes, nexthops, rules and neighbours, owned by marks in the
//! kernel.
//!
//! Links are looked up by name: a desired state on a link that is not there waits for it, unless the same
//! desired state makes it. What is ours carries our protocol number in the kernel itself (a link: our owner's
//! name in its alias); what carries another is never written.
//!
//! Start at [`Rtnl`] for the source, at [`DesiredState::builder`] for what is declared. The flow is `observe`
//! (with `decode`), `plan`, `apply` (with `requests` and `encode`); `hints` tells when to look again, and
//! keeps the `shadow` by which a few routes are looked at without a dump.
//! What is special about `nexthop`, `rule` and `neighbour` is in the module of that name.
//!
//! ```
//! use homeostat_rtnl::{Address, AddressKey, LinkName, Net, Route, RouteKey, Desired state};
//!
//! let mut builder = Desired state::builder();
//! let address = AddressKey::new(LinkName::new("eth0")?, "192.0.2.1".parse()?, 24);
//! builder.address(address.ok_or("no such prefix length")?, Address::default())?;
//! builder.route(RouteKey::new("0.0.0.0/0".parse::<Net>()?), Route::via("192.0.2.254".parse()?))?;
//! let desired state = builder.build()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod apply;
mod builder;
mod cascade;
mod decode;
mod desired;
mod encode;
mod everything;
mod explained;
mod family;
mod hints;
mod key;
mod link;
mod links;
mod marks;
mod model;
mod moment;
mod muffler;
mod neighbour;
mod net;
mod nexthop;
mod normalize;
mod notices;
mod number;
mod observe;
mod plan;
mod print;
mod recent;
mod requests;
mod route;
mod row;
mod rule;
#[cfg(feature = "document")]
pub mod section;
mod sent;
mod shadow;
#[cfg(feature = "document")]
mod show;
mod source;
mod step;
#[cfg(feature = "document")]
mod values;

pub use address::{Address, Label, Lifetime};
pub use apply::Writer;
pub use builder::{Builder, DesiredError};
pub use cascade::Cascade;
pub use desired::DesiredState;
pub use everything::Found;
pub use family::Family;
pub use key::{AddressKey, Key, NotAKey, RouteKey};
pub use link::{IfIndex, LinkName, Links, NotALinkName};
pub use links::field::{Configured, Field, NotAField, Setting};
pub use links::kinds::{
    Bond, Bridge, Centis, Gre, Ipvlan, LinkKind, Macvlan, NotATime, Tap, Veth, Vlan, Vrf, Vxlan,
};
pub use links::model::{Incarnation, Link, LinkRef, Settings};
pub use links::normalize::BadLink;
pub use links::step::{Act, Cycle, LinkStep};
pub use links::words::{BondMode, HashPolicy, IpvlanMode, LacpRate, MacvlanMode, VlanProtocol};
pub use marks::AddressMarks;
pub use model::Object;
pub use moment::Moment;
pub use neighbour::{Mac, Neighbour, NeighbourKey, NotAMac};
pub use net::{Net, NotANet};
pub use nexthop::{Member, Nexthop, NexthopId, Unusual};
pub use normalize::Impossible;
pub use number::{Metric, Protocol, Scope, Table, Tos, UnknownNumber};
pub use observe::Reader;
pub use route::{Hop, Route, RouteKind};
pub use rule::{IpProtocol, Mark, Ports, Rule, RuleAction, RuleKey};
pub use source::Rtnl;
pub use step::{Delete, Phase, Step, Update, Way};
