//! `[[fdb]]`.

use homeostat_document::{Diagnostic, Fields, Json, Number, Record, Spanned};
use serde_json::json;

use crate::fdb::{Fdb, FdbKey, FdbTable, Remote, VLANS, VNIS};
use crate::neighbour::Mac;
use crate::section::{Declared, list_section};
use crate::show::plain;

list_section! {
    FdbEntries of Declared<FdbKey, Fdb> as fdb_entries,
    "fdb", "Static entries of the forwarding databases of bridges and VXLANs",
    each of fdb_entries: |one| one.entry.span, format!("the entry for {} on `{}`", one.key.mac, one.key.link)
}

const VLAN: Number<u16> = Number { what: "a VLAN id", least: *VLANS.start(), most: *VLANS.end() };
const PORT: Number<u16> = Number { what: "a port", least: 1, most: u16::MAX };
const VNI: Number<u32> =
    Number { what: "a VXLAN network id", least: *VNIS.start(), most: *VNIS.end() };

impl Record for Declared<FdbKey, Fdb> {
    const NAME: &'static str = "fdb-entry";
    const DOC: &'static str = "Where frames to an address go: to a port of a bridge or, with `dst`, to a remote end of a VXLAN";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let dev = fields.required("dev", "The port of a bridge, or the VXLAN");
        let mac = fields.required(
            "mac",
            "The address; of a VXLAN, 00:00:00:00:00:00 is every address without an entry of its own",
        );
        let vlan = fields.number("vlan", "The VLAN, where the bridge looks at VLANs", VLAN);
        let sticky =
            fields.flag("sticky", "Stay on this port, even if frames from there come by another");
        let local = fields.flag("local", "Take frames to this address instead of sending them on");
        let dst = fields.optional("dst", "The remote end of the VXLAN");
        let port = fields.number("port", "Its port, if not that of the VXLAN", PORT);
        let vni = fields.number("vni", "The network there, if not that of the VXLAN", VNI);
        let src_vni =
            fields.number("src-vni", "The network here, of a VXLAN that has several", VNI);
        let adopt = fields.flag("adopt", "Take this entry over from any owner");
        if fields.has("dst") {
            for name in ["vlan", "sticky", "local"] {
                fields.exclusive("dst", name);
            }
        } else if let Some(name) =
            ["port", "vni", "src-vni"].into_iter().find(|name| fields.has(name))
        {
            let why = format!("`{name}` is for an entry of a VXLAN");
            let diagnostic = Diagnostic::new(fields.at(name), why);
            fields.report(diagnostic.help("add `dst`, the remote end"));
        }
        if !fields.has("dst") && mac == Some(Mac([0; 6])) {
            let why = "the address of zeros stands for all addresses of a VXLAN";
            let diagnostic = Diagnostic::new(fields.value_at("mac"), why);
            fields.report(diagnostic.help("add `dst`, the remote end"));
        }
        fields.exclusive("sticky", "local");
        let (dev, mac) = (dev?, mac?);
        let (key, object) = match dst {
            Some(dst) => FdbKey::of_vxlan(dev, mac, src_vni).to(Remote { dst, port, vni }),
            None => (FdbKey::of_port(dev, mac, vlan), Fdb { remote: None, sticky, local }),
        };
        Some(Self::new(Spanned::new(key, fields.span()), object, adopt, fields.span()))
    }
}

/// An entry that is there, as an entry of the list.
pub(crate) fn show(key: &FdbKey, entry: &Fdb) -> Json {
    let (vlan, src_vni, remote) = match key.table {
        FdbTable::Bridge { vlan } => (vlan, None, None),
        FdbTable::Vxlan { src_vni, remote } => (None, src_vni, remote.or(entry.remote)),
    };
    let word = |is_so: bool| json!(is_so.then_some(true));
    Json::Object(plain([
        ("dev", json!(key.link)),
        ("mac", json!(key.mac)),
        ("vlan", json!(vlan)),
        ("sticky", word(entry.sticky)),
        ("local", word(entry.local)),
        ("dst", json!(remote.map(|remote| remote.dst))),
        ("port", json!(remote.and_then(|remote| remote.port))),
        ("vni", json!(remote.and_then(|remote| remote.vni))),
        ("src-vni", json!(src_vni)),
    ]))
}
