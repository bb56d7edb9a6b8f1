//! `[[neighbours]]`.

use std::net::IpAddr;

use crate::diagnostic::Diagnostic;
use crate::fields::{Fields, Section, section};
use crate::name::Name;
use crate::net::Mac;
use crate::span::Spanned;

/// A permanent neighbour, or an address that this machine answers for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The link.
    pub dev: Spanned<Name>,
    /// The neighbour's address.
    pub to: Spanned<IpAddr>,
    /// Its hardware address; a proxy entry has none.
    pub mac: Option<Spanned<Mac>>,
    /// Whether this machine answers for the address.
    pub proxy: bool,
    /// Whether it may be taken from anybody.
    pub adopt: bool,
}

section!(Neighbour);

impl Section for Neighbour {
    const NAME: &'static str = "neighbour";
    const DOC: &'static str = "A permanent neighbour, or an address that this machine answers for";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let dev = fields.required("dev", "The link");
        let to = fields.required("to", "The neighbour's address");
        let mac = fields.optional("mac", "Its hardware address");
        let proxy = fields.flag("proxy", "Answer for this address instead of knowing it");
        let adopt = fields.flag("adopt", "Standing leave to take this entry from anybody");
        if proxy {
            fields.exclusive("proxy", "mac");
        } else if fields.lacks(&["mac", "proxy"]) {
            let missing = Diagnostic::new(fields.span(), "this neighbour has no hardware address");
            fields.report(missing.help("add `mac`, or `proxy = true`"));
        }
        Some(Self { dev: dev?, to: to?, mac, proxy, adopt })
    }
}
