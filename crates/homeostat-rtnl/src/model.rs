//! The managed part of objects. In a desired state, what is not declared agrees with anything.

use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::links::field::Configured;
use crate::links::model::Link;
use crate::neighbour::Neighbour;
use crate::nexthop::Nexthop;
use crate::route::Route;
use crate::rule::Rule;

/// The managed part of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Object {
    /// Of a route.
    Route(Route),
    /// Of a nexthop.
    Nexthop(Nexthop),
    /// Of a rule.
    Rule(Rule),
    /// Of a neighbour.
    Neighbour(Neighbour),
    /// Of a link.
    Link(Box<Link>),
    /// Of an address.
    Address(Address),
    /// Of a field of a link.
    Setting(Configured),
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::family::Family;
    use crate::link::LinkName;
    use crate::neighbour::Mac;
    use crate::nexthop::{Member, NexthopId};
    use crate::number::{Scope, Table};
    use crate::rule::RuleAction;

    #[test]
    fn what_is_recorded_of_an_object_reads_back_as_the_same_kind() {
        let member = Member { id: NexthopId(7), weight: 256 };
        let (link, gateway) = (LinkName::new("va").unwrap(), IpAddr::from([10, 0, 0, 2]));
        let rule = Rule { suppress_prefixlength: Some(0), ..Rule::table(Table(1000)) };
        for object in [
            Object::Address(Address::default()),
            Object::Address(Address { scope: Some(Scope::LINK), ..Address::default() }),
            Object::Route(Route::default()),
            Object::Route(Route::through(NexthopId(7))),
            Object::Nexthop(Nexthop::default()),
            Object::Nexthop(Nexthop { scope: Some(Scope::LINK), ..Nexthop::via(gateway, link) }),
            Object::Nexthop(Nexthop::blackhole(Family::V6)),
            Object::Nexthop(Nexthop::group(vec![member])),
            Object::Rule(rule),
            Object::Rule(Rule::of(RuleAction::L3mdev)),
            Object::Rule(Rule::of(RuleAction::Other(3))),
            Object::Neighbour(Neighbour::at(Mac([2, 0, 0, 0, 0, 9]))),
            Object::Neighbour(Neighbour::proxy()),
        ] {
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), object, "{text}");
        }
    }
}
