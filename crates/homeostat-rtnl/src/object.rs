//! The managed part of objects, and how plans show it. In a desired state, what is not declared agrees with
//! anything.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::{self, Address, address_agrees};
use crate::builder::Impossible;
use crate::fdb::{self, Fdb};
use crate::key::Key;
use crate::link;
use crate::link::model::{Configured, Link, link_agrees};
use crate::neighbour::{self, Neighbour};
use crate::nexthop::{self, Nexthop};
use crate::route::{self, Route};
use crate::rule::{self, Rule};

/// The managed part of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Object {
    Route(Route),
    Nexthop(Nexthop),
    Rule(Rule),
    Neighbour(Neighbour),
    Fdb(Fdb),
    Link(Box<Link>),
    Address(Address),
    /// Of a field of a link.
    Setting(Configured),
}

impl Object {
    /// Brings a declared object to the form in which it is compared.
    pub(crate) fn normalize(&mut self, key: &Key) -> Result<(), Impossible> {
        match (key, self) {
            (Key::Address(key), Object::Address(desired)) => address::normalize(key, desired),
            (Key::Route(key), Object::Route(desired)) => route::normalize(key, desired),
            (Key::Nexthop(id), Object::Nexthop(desired)) => nexthop::normalize(*id, desired),
            (Key::Rule(key), Object::Rule(desired)) => rule::check(key, desired),
            (Key::Neighbour(key), Object::Neighbour(desired)) => neighbour::check(key, *desired),
            (Key::Fdb(key), Object::Fdb(desired)) => fdb::check(key, desired),
            (Key::Link(name), Object::Link(desired)) => link::model::normalize(*name, desired),
            (Key::LinkField(name, field), Object::Setting(desired)) => {
                link::model::check_setting(*name, *field, &desired.setting)
            }
            _ => Err(Impossible::OtherKind),
        }
    }

    /// Whether an object is as declared.
    pub(crate) fn agrees(&self, seen: &Object) -> bool {
        match (self, seen) {
            (Object::Address(desired), Object::Address(seen)) => address_agrees(desired, seen),
            (Object::Route(desired), Object::Route(seen)) => route::route_agrees(desired, seen),
            (Object::Nexthop(desired), Object::Nexthop(seen)) => nexthop::agrees(desired, seen),
            (Object::Link(desired), Object::Link(seen)) => link_agrees(desired, seen),
            (desired, seen) => desired == seen,
        }
    }
}

/// What every object of its kind has, unless something else was asked for.
const USUAL: [(&str, &str); 5] = [
    ("type", "unicast"),
    ("scope", "global"),
    ("pref", "medium"),
    ("valid", "forever"),
    ("preferred", "forever"),
];

/// An object in the words of a document.
pub(crate) fn explained(object: &Object) -> Value {
    if matches!(object, Object::Link(_) | Object::Setting(_)) {
        // A link that is down was asked to be.
        return bare(object);
    }
    match bare(object) {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().filter(is_worth_saying).collect())
        }
        other => other,
    }
}

/// The stored form of an object, without its kind: the key says that.
fn bare(object: &Object) -> Value {
    match serde_json::to_value(object).unwrap_or_default() {
        Value::Object(tagged) => tagged.into_iter().next().map_or(Value::Null, |(_, bare)| bare),
        other => other,
    }
}

fn is_worth_saying((name, value): &(String, Value)) -> bool {
    let usual = USUAL.iter().any(|(usual, text)| usual == name && value.as_str() == Some(text));
    !usual && *value != Value::Bool(false) && !value.is_null()
}

/// Whether the kernel's value is the declared one. Undeclared agrees with anything.
pub(crate) fn agrees<T: PartialEq>(desired: Option<&T>, seen: Option<&T>) -> bool {
    desired.is_none() || desired == seen
}

#[cfg(test)]
mod model_tests {
    use std::net::IpAddr;

    use super::*;
    use crate::link::LinkName;
    use crate::neighbour::Mac;
    use crate::net::Family;
    use crate::nexthop::{Member, NexthopId};
    use crate::number::{Scope, Table};
    use crate::rule::RuleAction;

    #[test]
    fn what_is_recorded_of_an_object_reads_back_as_the_same_kind() {
        let member = Member { id: NexthopId(7), weight: 256 };
        let (link, gateway) = ("va".parse::<LinkName>().unwrap(), IpAddr::from([10, 0, 0, 2]));
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

#[cfg(test)]
mod explained_tests {
    use serde_json::json;

    use super::*;
    use crate::address::{Address, Lifetime};
    use crate::link::model::Setting;
    use crate::number::Scope;
    use crate::route::{Route, RouteKind};

    #[test]
    fn what_goes_without_saying_is_not_said() {
        let seen = Route { onlink: Some(false), ..Route::via([10, 0, 0, 1].into()) };
        assert_eq!(explained(&Object::Route(seen)), json!({ "via": "10.0.0.1" }));
        let hole = Route::of_kind(RouteKind::BLACKHOLE);
        assert_eq!(explained(&Object::Route(hole)), json!({ "type": "blackhole" }));
        let proxy = Object::Neighbour(crate::neighbour::Neighbour::proxy());
        assert_eq!(explained(&proxy), json!({}));
        let address = Address {
            scope: Some(Scope::GLOBAL),
            valid: Some(Lifetime::Forever),
            preferred: Some(Lifetime::Seconds(9)),
            noprefixroute: Some(false),
            ..Address::default()
        };
        let down = Object::Setting(Setting::Flag(false).into());
        assert_eq!(explained(&down), json!(false));
        let said = json!({ "preferred": { "seconds": 9 } });
        assert_eq!(explained(&Object::Address(address)), said);
    }
}
