//! The document that an import makes, and what it leaves out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

/// Something that the document does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Where it is written.
    pub(super) place: String,
    pub(super) why: String,
}

/// The sections so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    links: BTreeMap<String, Map<String, Value>>,
    routes: Vec<Value>,
    rules: Vec<Value>,
    sysctl: Map<String, Value>,
    pub(super) left: Vec<Left>,
}

/// Reasons that all tools share.
pub(super) const DHCP: &str =
    "homeostat is no DHCP client; run one for this link beside it (docs/not-in-scope.md)";
pub(super) const RESOLVER: &str =
    "name servers are not imported; keep them where they are, or /etc/resolv.conf as a file";
pub(super) const COMMANDS: &str =
    "homeostat runs no commands when a link comes up; declare what the command makes";
pub(super) const UNKNOWN: &str = "homeostat has no word for it";
pub(super) const NO_NAME: &str =
    "a link is declared by the name that it has, and this does not say it";
pub(super) const WIRELESS: &str =
    "Wi-Fi and modems are kept by other programs; declare addresses for the link by its name";
pub(super) const KIND: &str = "links of this kind are not imported; write `[links.NAME]` yourself";

impl Draft {
    /// The table of a link.
    pub(super) fn link(&mut self, name: &str) -> &mut Map<String, Value> {
        self.links.entry(name.to_owned()).or_default()
    }

    pub(super) fn set(&mut self, link: &str, field: &str, value: impl Into<Value>) {
        self.link(link).insert(field.to_owned(), value.into());
    }

    pub(super) fn has_kind(&self, link: &str) -> bool {
        self.links.get(link).is_some_and(|link| link.contains_key("kind"))
    }

    /// Adds to a list of a link.
    pub(super) fn push(&mut self, link: &str, field: &str, value: Value) {
        let list = self.link(link).entry(field).or_insert_with(|| json!([]));
        if let Value::Array(list) = list
            && !list.contains(&value)
        {
            list.push(value);
        }
    }

    /// Sets a field in a table of a link.
    pub(super) fn set_in(&mut self, link: &str, table: &str, field: &str, value: Value) {
        let inside = self.link(link).entry(table).or_insert_with(|| json!({}));
        if let Value::Object(inside) = inside {
            inside.insert(field.to_owned(), value);
        }
    }

    pub(super) fn sysctl(&mut self, key: &str, value: i64) {
        self.sysctl.insert(key.to_owned(), json!(value));
    }

    pub(super) fn route(&mut self, route: Map<String, Value>) {
        let route = Value::Object(route);
        if !self.routes.contains(&route) {
            self.routes.push(route);
        }
    }

    /// A default route.
    pub(super) fn gateway(
        &mut self,
        via: &str,
        dev: &str,
        metric: Option<i64>,
        table: Option<i64>,
    ) {
        let mut route = Map::new();
        route.insert("to".to_owned(), json!(default_for(via)));
        route.insert("via".to_owned(), json!(via));
        route.insert("dev".to_owned(), json!(dev));
        for (field, value) in [("metric", metric), ("table", table)] {
            route.extend(value.map(|value| (field.to_owned(), json!(value))));
        }
        self.route(route);
    }

    pub(super) fn rule(&mut self, rule: Map<String, Value>) {
        self.rules.push(Value::Object(rule));
    }

    pub(super) fn leave(&mut self, place: impl Into<String>, why: impl Into<String>) {
        self.left.push(Left { place: place.into(), why: why.into() });
    }

    /// All of it, by the names of the document.
    pub(super) fn sections(&self) -> Map<String, Value> {
        let mut sections = Map::new();
        let mut add = |name: &str, value: Value, is_empty: bool| {
            if !is_empty {
                sections.insert(name.to_owned(), value);
            }
        };
        add("links", json!(self.links), self.links.is_empty());
        add("routes", json!(self.routes), self.routes.is_empty());
        add("rules", json!(self.rules), self.rules.is_empty());
        add("sysctl", json!(self.sysctl), self.sysctl.is_empty());
        sections
    }
}

/// How a document writes the default route of a gateway's family.
pub(super) fn default_for(via: &str) -> &'static str {
    if via.parse().is_ok_and(|via: IpAddr| via.is_ipv6()) { "::/0" } else { "default" }
}

/// The words of all these tools for yes and no.
pub(super) fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Number(number) => match number.as_i64()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "y" | "1" => Some(true),
            "no" | "false" | "off" | "n" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// A whole number, written as one or as a text.
pub(super) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        },
        _ => None,
    }
}

/// A text, also if it was written as a number.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
