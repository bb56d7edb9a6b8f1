//! Text to wish: TOML, YAML or JSON becomes one spanned tree, and that a checked, typed
//! [`Document`] in which every value knows its place. All mistakes are reported together.
//!
//! It never looks at the machine: whether a link exists or a knob can be written is not its matter.
//! Start at [`load`] and [`Document`].

mod addresses;
mod attributes;
mod checker;
mod checks;
mod diagnostic;
mod document;
mod entries;
mod error;
mod fields;
mod files;
mod guests;
mod json;
mod key;
mod kinds;
mod knobs;
mod links;
mod load;
mod merge;
mod name;
mod neighbours;
mod net;
mod nexthops;
mod nftables;
mod node;
mod number;
mod options;
mod render;
mod route_list;
mod routes;
mod rules;
mod scalar;
mod schema;
mod settings;
mod shape;
mod span;
mod suggest;
mod time;
mod toml;
mod words;
mod yaml;

pub use addresses::{Address, Label};
pub use attributes::{
    IpProtocol, Mark, Metric, Mtu, NexthopId, Ports, Priority, Reach, RouteType, SuppressLength,
    Table, Tos, Weight,
};
pub use diagnostic::{Diagnostics, Finding};
pub use document::{Document, Namespace, Scope};
pub use error::ValueError;
pub use files::{Files, Location};
pub use guests::{
    Cores, Guest, GuestKind, GuestOption, GuestRun, GuestStop, NodeLimit, Proxmox, Vmid,
};
pub use key::{KeyError, knob_path, link_knob_path};
pub use kinds::{Kind, KindName};
pub use knobs::{Cgroup, Knob};
pub use links::{Alias, Link, LinkRef};
pub use load::{Format, Text, load, parse, restore};
pub use name::{DEFAULT_OWNER, HOST, Name, NamespaceName, OwnerName};
pub use neighbours::Neighbour;
pub use net::{Family, Mac, Prefix};
pub use nexthops::{Member, Nexthop};
pub use nftables::{Nftables, Ruleset};
pub use options::{
    Bond, BondMode, Bridge, BridgePriority, DefaultVlan, Gre, GreKey, HashPolicy, Ipvlan,
    IpvlanMode, LacpRate, LinkCount, Macvlan, MacvlanMode, Millis, Port, Tap, Ttl, Uid, Veth, Vlan,
    VlanId, VlanProtocol, Vni, Vrf, Vxlan,
};
pub use route_list::RouteLine;
pub use routes::{Hop, Route, RouteEntry, RouteFile};
pub use rules::{Rule, RuleType};
pub use schema::schema;
pub use settings::{DEFAULT_PROTOCOL, Mode, OnStop, Protocol, Settings, SourceSettings};
pub use span::{FileId, Span, Spanned};
pub use time::{Lifetime, Percent, Period};
