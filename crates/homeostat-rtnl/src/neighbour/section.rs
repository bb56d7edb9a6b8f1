//! `[[neighbours]]`.

use homeostat_document::{Diagnostic, Fields, Json, Record, Spanned};
use serde_json::json;

use crate::neighbour::{Neighbour, NeighbourKey};
use crate::section::{Declared, list_section};
use crate::show::plain;

list_section! {
    Neighbours of Declared<NeighbourKey, Neighbour> as neighbours,
    "neighbours", "Permanent and proxy neighbours",
    each of neighbours: |one| one.entry.span, format!("the neighbour {} on `{}`", one.key.ip, one.key.link)
}

impl Record for Declared<NeighbourKey, Neighbour> {
    const NAME: &'static str = "neighbour";
    const DOC: &'static str = "A permanent neighbour, or an address that this machine answers for";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let dev = fields.required("dev", "The link");
        let to = fields.required("to", "The neighbour's address");
        let mac = fields.optional("mac", "Its hardware address");
        let proxy = fields.flag("proxy", "Answer for this address instead of knowing it");
        let adopt = fields.flag("adopt", "Take this entry over from any owner");
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
        ("dev", json!(key.link)),
        ("to", json!(key.ip)),
        ("mac", json!(mac)),
        ("proxy", json!(key.is_proxy.then_some(true))),
    ]))
}
