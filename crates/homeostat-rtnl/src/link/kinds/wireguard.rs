//! An encrypted tunnel to peers that are known by their public keys. Its options are no part of the link's own messages:
//! `link::wireguard` reads and writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

#[cfg(feature = "document")]
use homeostat_document::Fields;
use homeostat_netlink::{Attr, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::link::kinds::behaviour::{Behaviour, OwnMac};
use crate::link::kinds::options::{OptionTable, Options};
use crate::link::wireguard::keys::{self, KeySource};
use crate::net::Net;
use crate::number::{ParseError, serde_as_text};
use crate::object::agrees;

/// Options of a WireGuard link. Secret keys are named by the place where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Wireguard {
    /// The file with its private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key_file: Option<PathBuf>,
    /// The credential of the service with its private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key_credential: Option<String>,
    /// The port on which it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_port: Option<u16>,
    /// The firewall mark of the packets of the tunnel; zero is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fwmark: Option<u32>,
    /// All its peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<BTreeMap<PublicKey, Peer>>,
}

/// A peer of a WireGuard link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Peer {
    /// The file with the key that both have beside their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preshared_key_file: Option<PathBuf>,
    /// The credential of the service with that key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preshared_key_credential: Option<String>,
    /// Where it is to be found at first. The kernel follows it to wherever it speaks from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SocketAddr>,
    /// Seconds between packets that keep the way open; zero is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<u16>,
    /// All networks that are behind it.
    pub allowed_ips: BTreeSet<Net>,
}

/// By which a peer is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&keys::text(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is = "no public key: 43 characters of base64 and `=`, as `wg pubkey` prints it";
        ParseError::unless(keys::parse(text).map(PublicKey), text, is)
    }
}

serde_as_text!(PublicKey);

pub(crate) const BEHAVIOUR: Behaviour = Behaviour { mac: OwnMac::None, ..Behaviour::PLAIN };

impl Wireguard {
    pub(crate) fn private_key(&self) -> Option<KeySource<'_>> {
        KeySource::new(self.private_key_file.as_ref(), self.private_key_credential.as_ref())
    }
}

impl Peer {
    pub(crate) fn preshared_key(&self) -> Option<KeySource<'_>> {
        KeySource::new(self.preshared_key_file.as_ref(), self.preshared_key_credential.as_ref())
    }

    /// Whether it is as declared.
    pub(crate) fn is_alike(&self, seen: &Self) -> bool {
        (self.preshared_key().is_none() || self.preshared_key() == seen.preshared_key())
            && agrees(self.endpoint.as_ref(), seen.endpoint.as_ref())
            && agrees(self.keepalive.as_ref(), seen.keepalive.as_ref())
            && self.allowed_ips == seen.allowed_ips
    }
}

impl Options for Wireguard {
    fn check(&mut self) -> Result<(), &'static str> {
        let peers = || self.peers.iter().flat_map(BTreeMap::values);
        let mut nets = BTreeSet::new();
        let is_twice = |net: &Net| !nets.insert(*net);
        match () {
            () if peers().flat_map(|peer| &peer.allowed_ips).any(is_twice) => {
                Err("a network is behind one of its peers only")
            }
            () if peers().any(|peer| peer.endpoint.is_some_and(|end| end.port() == 0)) => {
                Err("an endpoint has a port")
            }
            () => Ok(()),
        }
    }

    fn changes_in_place(&self, _seen: &Self) -> bool {
        true
    }

    /// Its own messages need to know all that is there.
    fn without(&self, _seen: &Self) -> Self {
        self.clone()
    }
}

impl OptionTable for Wireguard {
    fn is_alike(&self, seen: &Self) -> bool {
        let are_alike = |desired: &BTreeMap<PublicKey, Peer>, seen: &BTreeMap<PublicKey, Peer>| {
            let mut both = desired.iter().zip(seen);
            desired.len() == seen.len()
                && both.all(|((a, peer), (b, seen))| a == b && peer.is_alike(seen))
        };
        (self.private_key().is_none() || self.private_key() == seen.private_key())
            && agrees(self.listen_port.as_ref(), seen.listen_port.as_ref())
            && agrees(self.fwmark.as_ref(), seen.fwmark.as_ref())
            && match (&self.peers, &seen.peers) {
                (None, _) => true,
                (Some(desired), Some(seen)) => are_alike(desired, seen),
                (Some(_), None) => false,
            }
    }

    fn differing_from(&self, _seen: &Self) -> Self {
        self.clone()
    }

    fn put_attrs(&self, _data: &mut MessageWriter<'_>) {}

    fn read_attr(&mut self, _attr: &Attr<'_>) -> Result<(), Malformed> {
        Ok(())
    }

    #[cfg(feature = "document")]
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(section::read(fields))
    }
}

/// With more peers than this, a plan says how many more there are.
const MOST_SHOWN: usize = 20;

/// A change of a link with peers, each peer on a line of its own; nothing for any other link.
pub(crate) fn plan_text(before: Option<&Value>, after: Option<&Value>) -> Option<String> {
    let peers = |link: Option<&Value>| link?.get("peers")?.as_object().cloned();
    let is_tunnel = |link: &Value| link.get("kind").is_some_and(|kind| kind == "wireguard");
    if ![before, after].into_iter().flatten().any(is_tunnel) {
        return None;
    }
    let (was, now) = (peers(before), peers(after));
    let fields = |link: Option<&Value>| {
        let mut fields = link.and_then(Value::as_object).cloned().unwrap_or_default();
        fields.remove("peers");
        fields
    };
    let mut first = vec![changed(&fields(before), &fields(after))];
    let (was, mut lines) = (was.unwrap_or_default(), Vec::new());
    let (mut new, mut others, mut gone) = (0, 0, 0);
    for (key, peer) in now.iter().flatten() {
        let Some(peer) = peer.as_object() else { continue };
        match was.get(key).and_then(Value::as_object) {
            None => {
                new += 1;
                lines.push(format!("+ peer {key}  {}", changed(&Map::new(), peer)));
            }
            Some(was) if was != peer => {
                let text = changed(was, peer);
                others += usize::from(!text.is_empty());
                lines.extend((!text.is_empty()).then(|| format!("~ peer {key}  {text}")));
            }
            Some(_) => {}
        }
    }
    for key in was.keys().filter(|key| now.as_ref().is_some_and(|now| !now.contains_key(*key))) {
        gone += 1;
        lines.push(format!("- peer {key}"));
    }
    for (count, word) in [(new, "new"), (others, "changed"), (gone, "gone")] {
        let noun = if count == 1 { "peer" } else { "peers" };
        first.extend((count > 0).then(|| format!("{count} {noun} {word}")));
    }
    first.retain(|text| !text.is_empty());
    let hidden = lines.len().saturating_sub(MOST_SHOWN);
    lines.truncate(MOST_SHOWN);
    lines.extend((hidden > 0).then(|| format!("... and {hidden} more")));
    lines.insert(0, first.join(", "));
    Some(lines.join("\n"))
}

/// The fields that differ; what is not declared is left out.
fn changed(before: &Map<String, Value>, after: &Map<String, Value>) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => {
            let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            format!("[{}]", all.join(", "))
        }
        other => other.to_string(),
    };
    let differing = after.iter().filter(|(name, now)| before.get(*name) != Some(now));
    let differing = differing.map(|(name, now)| match before.get(name) {
        Some(was) => format!("{name} {} -> {}", text(was), text(now)),
        None => format!("{name} {}", text(now)),
    });
    differing.collect::<Vec<_>>().join(", ")
}

/// How a document writes them.
#[cfg(feature = "document")]
mod section {
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    use homeostat_document::{
        Diagnostic, Fields, MachinePath, Map, NamedRecord, Number, Period, Record, Spanned, Text,
        ValueError,
    };

    use super::{Peer, PublicKey, Wireguard};
    use crate::net::Net;
    use crate::rule::Mark;
    use crate::values::Destination;

    const PORT: Number<u16> = Number { what: "a port", least: 1, most: u16::MAX };

    pub(super) fn read(fields: &mut Fields<'_>) -> Wireguard {
        refuse_secret(fields, "private-key", "private-key-file");
        // The confirmed copies of a document have none of its keys.
        let private_key_file =
            fields.optional("private-key-file", "The file with its private key, of mode 0600");
        let private_key_credential = fields.optional(
            "private-key-credential",
            "The credential of the service with its private key",
        );
        fields.exclusive("private-key-file", "private-key-credential");
        let listen_port = fields.number("listen-port", "The port on which it listens", PORT);
        let mark: Option<Spanned<Mark>> =
            fields.optional("fwmark", "The firewall mark of the packets of the tunnel; 0 is none");
        if let Some(mark) = mark.filter(|mark| mark.value.mask != u32::MAX) {
            fields.report(Diagnostic::new(mark.span, "a mark of packets has no mask"));
        }
        let peers: Option<Map<DeclaredPeer>> =
            fields.optional("peers", "All its peers, by their public keys");
        let peers =
            peers.map(|Map(peers)| peers.into_iter().map(|one| (one.key, one.peer)).collect());
        let private_key_file = private_key_file.map(|MachinePath(path)| path);
        let private_key_credential = private_key_credential.map(|CredentialName(name)| name);
        let fwmark = mark.map(|mark| mark.value.value);
        Wireguard { private_key_file, private_key_credential, listen_port, fwmark, peers }
    }

    /// A secret does not belong into a document. The message does not show it.
    fn refuse_secret(fields: &mut Fields<'_>, word: &'static str, instead: &str) {
        if fields.has(word) {
            fields.conceal(word);
        }
        let help = format!("put the key into a file of mode 0600, and name that as `{instead}`");
        fields.refused_unseen(word, "a secret key is not written into a document", &help);
    }

    struct DeclaredPeer {
        key: PublicKey,
        peer: Peer,
    }

    impl NamedRecord for DeclaredPeer {
        const KEY: &'static str = "the public key of a peer";
    }

    impl Record for DeclaredPeer {
        const NAME: &'static str = "wireguard-peer";
        const DOC: &'static str = "A peer of a WireGuard link";

        fn read(fields: &mut Fields<'_>) -> Option<Self> {
            let key: Option<Spanned<PublicKey>> = fields.name();
            refuse_secret(fields, "preshared-key", "preshared-key-file");
            let file = fields.optional(
                "preshared-key-file",
                "The file with the key that both have beside their own, of mode 0600",
            );
            let credential = fields.optional(
                "preshared-key-credential",
                "The credential of the service with that key",
            );
            fields.exclusive("preshared-key-file", "preshared-key-credential");
            let endpoint: Option<Endpoint> = fields.optional(
                "endpoint",
                "Where it is found at first: once it has spoken, the kernel follows it",
            );
            let keepalive: Option<Keepalive> = fields.optional(
                "keepalive",
                "Time between packets that keep the way to it open; \"0s\" is none",
            );
            let nets: Option<Vec<Destination>> =
                fields.optional("allowed-ips", "All networks that are behind it");
            let allowed_ips: BTreeSet<Net> =
                nets.into_iter().flatten().map(|net| net.net).collect();
            let peer = Peer {
                preshared_key_file: file.map(|MachinePath(path)| path),
                preshared_key_credential: credential.map(|CredentialName(name)| name),
                endpoint: endpoint.map(|Endpoint(at)| at),
                keepalive: keepalive.map(|Keepalive(seconds)| seconds),
                allowed_ips,
            };
            Some(DeclaredPeer { key: key?.value, peer })
        }
    }

    impl Text for PublicKey {
        const WHAT: &'static str = "a public key";

        fn from_text(text: &str) -> Result<Self, ValueError> {
            text.parse().map_err(|_| {
                ValueError::is_not(text, Self::WHAT)
                    .help("it has 43 characters of base64 and `=`, as `wg pubkey` prints it")
            })
        }
    }

    struct CredentialName(String);

    impl Text for CredentialName {
        const WHAT: &'static str = "the name of a credential";

        fn from_text(text: &str) -> Result<Self, ValueError> {
            let is_name = !matches!(text, "" | "." | "..") && !text.contains(['/', '\0']);
            if is_name {
                Ok(CredentialName(text.to_owned()))
            } else {
                Err(ValueError::is_not(text, Self::WHAT))
            }
        }
    }

    struct Endpoint(SocketAddr);

    impl Text for Endpoint {
        const WHAT: &'static str = "an address with a port";

        fn from_text(text: &str) -> Result<Self, ValueError> {
            let at = text.parse().ok().filter(|at: &SocketAddr| at.port() != 0);
            at.map(Endpoint).ok_or_else(|| {
                ValueError::is_not(text, Self::WHAT).help(
                    "write \"192.0.2.1:51820\" or \"[2001:db8::1]:51820\"; names are not looked up",
                )
            })
        }
    }

    /// Whole seconds.
    struct Keepalive(u16);

    impl Text for Keepalive {
        const WHAT: &'static str = Period::WHAT;
        const ZERO: Option<&'static str> = Period::ZERO;

        fn from_text(text: &str) -> Result<Self, ValueError> {
            let period: Period = text.parse()?;
            let seconds = u16::try_from(period.get().as_secs()).ok();
            seconds.map(Keepalive).ok_or_else(|| {
                ValueError::is_not(text, "a time to keep a way open")
                    .help("it has at most 65535 seconds")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ONE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    const TWO: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

    fn wireguard(fields: Value) -> Wireguard {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn declared_peers_are_all_peers_and_undeclared_fields_are_any() {
        let peer = || json!({ "allowed-ips": ["10.0.0.0/24"], "endpoint": "192.0.2.1:1", "keepalive": 25 });
        let full = wireguard(json!({ "listen-port": 7, "fwmark": 0, "peers": { ONE: peer() } }));
        let both = wireguard(json!({ "peers": { ONE: peer(), TWO: { "allowed-ips": [] } } }));
        for (desired, is_alike) in [
            (json!({}), true),
            (json!({ "peers": {} }), false),
            (json!({ "peers": { ONE: { "allowed-ips": ["10.0.0.0/24"] } } }), true),
            (json!({ "peers": { ONE: { "allowed-ips": [] } } }), false),
            (json!({ "peers": { TWO: { "allowed-ips": ["10.0.0.0/24"] } } }), false),
            (
                json!({ "peers": { ONE: { "allowed-ips": ["10.0.0.0/24"], "keepalive": 0 } } }),
                false,
            ),
            (json!({ "private-key-file": "/key" }), false),
            (json!({ "listen-port": 8 }), false),
        ] {
            assert_eq!(wireguard(desired.clone()).is_alike(&full), is_alike, "{desired}");
        }
        assert!(!full.is_alike(&both) && !both.is_alike(&full));
    }

    #[test]
    fn a_network_is_behind_one_peer() {
        let behind = |nets: [&str; 2]| {
            let peers =
                json!({ ONE: { "allowed-ips": [nets[0]] }, TWO: { "allowed-ips": [nets[1]] } });
            wireguard(json!({ "peers": peers })).check()
        };
        assert!(behind(["10.0.0.0/24", "10.0.0.0/25"]).is_ok());
        assert!(behind(["10.0.0.0/24", "10.0.0.0/24"]).is_err());
    }

    #[test]
    fn a_plan_shows_each_peer_that_changes() {
        let link = |peers: Value| json!({ "kind": "wireguard", "listen-port": 7, "peers": peers });
        let before = link(json!({ ONE: { "allowed-ips": ["10.0.0.0/24"], "keepalive": 0 } }));
        let after = link(json!({
            ONE: { "allowed-ips": ["10.0.0.0/24"], "keepalive": 25 },
            TWO: { "allowed-ips": [] },
        }));
        let text = plan_text(Some(&before), Some(&after)).unwrap();
        let expected = format!(
            "1 peer new, 1 peer changed\n+ peer {TWO}  allowed-ips []\n~ peer {ONE}  keepalive 0 -> 25"
        );
        let mut lines: Vec<&str> = text.lines().collect();
        lines[1..].sort_unstable();
        assert_eq!(lines.join("\n"), expected);
        let text = plan_text(Some(&before), Some(&link(json!({})))).unwrap();
        assert_eq!(text, format!("1 peer gone\n- peer {ONE}"));
        assert_eq!(plan_text(Some(&json!({ "kind": "dummy" })), None), None);
        let many: Map<String, Value> =
            (0..30).map(|number| (number.to_string(), json!({}))).collect();
        let text = plan_text(None, Some(&link(Value::Object(many)))).unwrap();
        assert!(text.starts_with("kind wireguard, listen-port 7, 30 peers new\n"), "{text}");
        assert!(text.ends_with("\n... and 10 more"), "{text}");
    }
}
