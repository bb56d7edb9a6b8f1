//! `[[neighbours]]`.

use homeostat_document::{
    Checker, Definitions, Diagnostic, Document, Fields, Join, Json, Node, Record, Scope, Section,
    Shape, Spanned, Twins, record,
};
use serde_json::json;

use crate::neighbour::{Neighbour, NeighbourKey};
use crate::section::Declared;
use crate::show::plain;

/// `[[neighbours]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbours(pub Vec<Declared<NeighbourKey, Neighbour>>);

pub(crate) fn neighbours(
    scope: &Scope,
) -> impl Iterator<Item = &Declared<NeighbourKey, Neighbour>> {
    scope.get::<Neighbours>().into_iter().flat_map(|all| &all.0)
}

impl Section for Neighbours {
    const NAME: &'static str = "neighbours";
    const DOC: &'static str = "Permanent and proxy neighbours";
    const JOIN: Join = Join::Lists;

    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        Vec::read(node, checker).map(Self)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        Vec::<Declared<NeighbourKey, Neighbour>>::schema(definitions)
    }

    fn check(document: &Document, checker: &mut Checker) {
        for (_, scope) in document.scopes() {
            let mut twins = Twins::default();
            for one in neighbours(scope) {
                let key = one.key.value;
                let what = || format!("the neighbour {} on `{}`", key.ip(), key.link());
                twins.see(key, one.entry.span, checker, what);
            }
        }
    }
}

record!(Declared<NeighbourKey, Neighbour>);

impl Record for Declared<NeighbourKey, Neighbour> {
    const NAME: &'static str = "neighbour";
    const DOC: &'static str = "A permanent neighbour, or an address that this machine answers for";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let dev = fields.required("dev", "The link");
        let to = fields.required("to", "The neighbour's address");
        let mac = fields.optional("mac", "Its hardware address");
        let proxy = fields.flag("proxy", "Answer for this address instead of knowing it");
        let adopt = fields.flag("adopt", "ObservedAddress leave to take this entry from anybody");
        if proxy {
            fields.exclusive("proxy", "mac");
        } else if fields.lacks(&["mac", "proxy"]) {
            let missing = Diagnostic::new(fields.span(), "this neighbour has no hardware address");
            fields.report(missing.help("add `mac`, or `proxy = true`"));
        }
        let make = if proxy { NeighbourKey::proxy } else { NeighbourKey::new };
        let key = Spanned::new(make(dev?, to?), fields.span());
        Some(Self::new(key, Neighbour { mac }, adopt, fields.span()))
    }
}

/// A neighbour that is there, as an entry of the list.
pub(crate) fn show(key: &NeighbourKey, Neighbour { mac }: Neighbour) -> Json {
    Json::Object(plain([
        ("dev", json!(key.link())),
        ("to", json!(key.ip())),
        ("mac", json!(mac)),
        ("proxy", json!(key.is_proxy().then_some(true))),
    ]))
}
