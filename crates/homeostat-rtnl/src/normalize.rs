//! What a desired state means to the kernel, and when what is seen agrees with it. Pure.

use crate::links::normalize::BadLink;
use crate::model::Object;
use crate::nexthop;

/// Why a desired state can never be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's message is its documentation")]
pub enum Impossible {
    #[error("it leads nowhere: give it a gateway, a link or a type such as blackhole")]
    LeadsNowhere,
    #[error("a route of its type goes nowhere, so a gateway or a link has no place in it")]
    GoesNowhere,
    #[error("it has several ways, so a gateway or a link of its own has no place in it")]
    ManyWays,
    #[error("an IPv6 route cannot go via an IPv4 gateway")]
    GatewayFamily,
    #[error("the source address is of another family")]
    SourceFamily,
    #[error("IPv6 routes have no type of service")]
    TosOnIpv6,
    #[error("a weight is a number from 1 to 256")]
    Weight,
    #[error("it would be preferred for longer than it is valid")]
    PreferredBeyondValid,
    #[error("labels are for IPv4 only")]
    LabelOnIpv6,
    #[error("broadcast addresses are for IPv4 only")]
    BroadcastOnIpv6,
    #[error("a nexthop object says where it goes, so nothing else has a place beside it")]
    NexthopAndWay,
    #[error("a nexthop is a way, a hole or a group, with a number above zero")]
    NotANexthop,
    #[error("a nexthop needs a link, unless it is a hole or a group")]
    NexthopWithoutLink,
    #[error("the gateway is of another family")]
    NexthopFamily,
    #[error("the kernel derives the scope of a nexthop, and this is another")]
    NexthopScope,
    #[error("a hole has no gateway and no link")]
    HoleWithWay,
    #[error("a group has members and nothing else")]
    GroupWithWay,
    #[error("a group has each member once, and is none of its own")]
    GroupMember,
    #[error("`from` and `to` are of one family, the rule's")]
    RuleFamily,
    #[error("ports need an IP protocol that has them: tcp, udp, dccp or sctp")]
    PortsWithoutProtocol,
    #[error("ports are from 1 to 65534 in a rule, and go upwards")]
    RulePorts,
    #[error("the two lowest bits of a type of service are not for rules")]
    TosOfRule,
    #[error("only a rule that asks a table can suppress routes")]
    SuppressWithoutTable,
    #[error("a prefix of its family is not that long")]
    SuppressLength,
    #[error("an action that we do not know cannot be declared")]
    RuleAction,
    #[error("a neighbour has a hardware address, and a proxy entry has none")]
    NeighbourMac,
    #[error(transparent)]
    Link(BadLink),
}

/// Whether a declared attribute is as declared.
pub(crate) fn agrees<T: PartialEq>(desired: Option<&T>, seen: Option<&T>) -> bool {
    desired.is_none() || desired == seen
}

/// Whether a nexthop, rule or neighbour is as declared.
pub(crate) fn other_agrees(desired: &Object, seen: &Object) -> bool {
    match (desired, seen) {
        (Object::Nexthop(desired), Object::Nexthop(seen)) => nexthop::agrees(desired, seen),
        (desired, seen) => desired == seen,
    }
}
