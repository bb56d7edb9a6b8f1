//! `[fleet]`: the store that assigns this machine its documents, and on which terms it takes them. An `etcd://` argument
//! is the same section, written as a URL.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{
    Checker, Diagnostic, Document, Fields, Format, MachinePath, Number, Period, Record, Scopes,
    Section, SectionType, SourceSections, SourceSettings, Spanned, Text, ValueError, record,
    word_values,
};
use homeostat_etcd::{Config, Endpoint, TlsFiles};
use homeostat_fleet::Name;
use homeostat_fleet::keys::GROUP;
use homeostat_registry::DeclaredCheck;
use serde_json::{Value, json};

use super::window::Window;
use crate::checks::Check;
use crate::failure::helped;
use crate::provider::understand;
use crate::registry;

/// The sections of fleets. They belong to no source.
pub(crate) const SECTIONS: SourceSections =
    SourceSections::new(NAME, &[SectionType::of::<FleetSettings>()]);

const NAME: &str = "fleet";
const SCHEME: &str = "etcd://";

/// If the field is left out.
const LEASE: Duration = Duration::from_mins(1);
const SPREAD: Duration = Duration::from_secs(10);
/// The bounds of a lease: a shorter one is lost under load, a longer one hides a dead node.
const LEASES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(5);
/// The longest lease of a machine that acts for others.
const LONGEST_TURN_LEASE: Duration = Duration::from_secs(10);
/// A machine that cannot renew its lease for long loses it; those that take turns are few.
const LONGEST_TURN_SPREAD: Duration = Duration::from_secs(1);
const LONGEST_SPREAD: Duration = Duration::from_mins(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FleetSettings {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) fleet: Name,
    pub(super) node: Name,
    pub(super) group: Name,
    pub(super) tls: Option<TlsFiles>,
    pub(super) allowed_signers: PathBuf,
    /// How many distinct keys must have signed.
    pub(super) signatures: usize,
    /// The least; a statement may ask for more.
    pub(super) settle: Duration,
    pub(super) checks: Vec<Check>,
    pub(super) hold: bool,
    /// Without any, documents are taken at all times.
    pub(super) windows: Vec<Window>,
    pub(super) lease: Duration,
    pub(super) spread: Duration,
    pub(super) clock: ClockTrust,
}

/// How machines of a fleet take turns.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TurnSettings {
    pub(crate) store: Config,
    pub(crate) fleet: Name,
    pub(crate) node: Name,
    pub(crate) lease: Duration,
}

/// Whether times in signed statements are judged by this machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClockTrust {
    /// If the kernel says that it is synchronized.
    #[default]
    Synchronized,
    /// Always, as on a virtual machine whose host keeps its clock.
    Always,
}

word_values! { ClockTrust, "a rule for the clock":
"synchronized" = ClockTrust::Synchronized, "always" = ClockTrust::Always }

/// A member of the store.
struct Member(Endpoint);

impl Text for Member {
    const WHAT: &'static str = "an address of a member";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let parsed = text.parse().map(Member);
        parsed.map_err(|error: homeostat_etcd::EndpointError| ValueError::new(error.to_string()))
    }
}

impl Section for FleetSettings {
    const NAME: &'static str = NAME;
    const DOC: &'static str = "The fleet that assigns this machine its documents";
    const SCOPES: Scopes = Scopes::Host("a fleet assigns documents to machines");

    type Value = Self;
    const NEW: fn(Self::Value) -> Self = |settings| settings;

    fn check(document: &Document, checker: &mut Checker) {
        let Some(span) = document.host.place_of(NAME) else { return };
        if document.settings.source(NAME) != SourceSettings::default() {
            let unused = Diagnostic::new(span, "`[settings.fleet]` has no meaning");
            checker.report(unused.help("a fleet is no source: write its settings into `[fleet]`"));
        }
    }
}

record!(FleetSettings);

impl Record for FleetSettings {
    const NAME: &'static str = NAME;
    const DOC: &'static str = "The fleet that assigns this machine its documents";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let doc = "Members of the store: HOST, HOST:PORT or [IPV6]:PORT";
        let endpoints: Option<Spanned<Vec<Member>>> = fields.required("endpoints", doc);
        let fleet = fields.required("fleet", "The name of the fleet");
        let node = fields.optional("node", "The name of this machine; its host name if left out");
        let doc = "Whose documents are read from the store; `all` if left out";
        let group = fields.optional("group", doc);
        let doc = "Certificate of the authority that signed those of the members; without it nothing is encrypted";
        let ca: Option<MachinePath> = fields.optional("ca", doc);
        let certificate: Option<Spanned<MachinePath>> =
            fields.optional("certificate", "Certificate of this machine");
        let key: Option<Spanned<MachinePath>> =
            fields.optional("key", "Private key of the certificate");
        let doc = "Who may sign what this machine takes, as OpenSSH's ALLOWED SIGNERS";
        let allowed_signers: Option<MachinePath> = fields.required("allowed-signers", doc);
        let keys = Number { what: "a number of keys", least: 1, most: 32 };
        let doc = "How many of them must have signed; 1 if left out";
        let signatures = fields.number("signatures", doc, keys);
        let doc = "Least time that everything is as declared before a document is good";
        let settle: Option<Period> = fields.optional("settle", doc);
        let doc = "What must work before a document is good: ping:ADDRESS, tcp:ADDRESS:PORT, http://ADDRESS:PORT/PATH or `cmd:/PATH ARGUMENTS`";
        let checks: Option<Vec<DeclaredCheck>> = fields.optional("checks", doc);
        let checks = checks.map(|all| all.into_iter().map(|one| one.0).collect());
        let hold = fields.flag("hold", "Take no new document; `homeostat hold` does the same");
        let doc = "When new documents are taken, in UTC: \"02:00-04:00\", \"Sat,Sun 22:00-04:00\"";
        let windows = fields.optional("maintenance-windows", doc);
        let doc = "How long the store takes this machine for alive after its last sign of life; 1m if left out";
        let lease: Option<Spanned<Period>> = fields.optional("lease", doc);
        let doc = "After a lost connection the next one is made within this time; 10s if left out";
        let spread: Option<Spanned<Period>> = fields.optional("reconnect-spread", doc);
        let doc = "When times in statements are judged: `synchronized` if the kernel says so, or `always`";
        let clock = fields.optional("clock", doc);
        if let Some(members) = endpoints.as_ref().filter(|members| members.value.is_empty()) {
            fields.report(Diagnostic::new(members.span, "a store without members cannot be asked"));
        }
        if let Some(lease) = lease.filter(|lease| !LEASES.contains(&lease.get())) {
            let refused = Diagnostic::new(lease.span, "a lease lasts from 1s to 5m");
            fields.report(refused.help("with thousands of machines a minute is a good choice"));
        }
        if let Some(spread) = spread.filter(|spread| spread.get() > LONGEST_SPREAD) {
            fields.report(Diagnostic::new(spread.span, "reconnects are spread over at most 10m"));
        }
        let client = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate.value.0, key.value.0)),
            (None, None) => None,
            (Some(Spanned { span, .. }), None) => {
                fields.report(Diagnostic::new(span, "`certificate` needs its `key`"));
                None
            }
            (None, Some(Spanned { span, .. })) => {
                fields.report(Diagnostic::new(span, "`key` needs its `certificate`"));
                None
            }
        };
        let tls = ca.map(|MachinePath(ca)| {
            let files = TlsFiles::new(ca);
            client
                .into_iter()
                .fold(files, |files, (certificate, key)| files.with_client(certificate, key))
        });
        let members = |members: Spanned<Vec<Member>>| {
            members.value.into_iter().map(|Member(endpoint)| endpoint).collect()
        };
        Some(FleetSettings {
            endpoints: endpoints.map(members)?,
            fleet: fleet?,
            node: node.or_else(host_name)?,
            group: group.or_else(|| GROUP.parse().ok())?,
            tls,
            allowed_signers: allowed_signers?.0,
            signatures: signatures.unwrap_or(1_u16).into(),
            settle: settle.map_or(Duration::ZERO, Period::get),
            checks: checks.unwrap_or_default(),
            hold,
            windows: windows.unwrap_or_default(),
            lease: lease.map_or(LEASE, |lease| lease.get()),
            spread: spread.map_or(SPREAD, |spread| spread.get()),
            clock: clock.unwrap_or_default(),
        })
    }
}

impl FleetSettings {
    /// What a document says of a fleet.
    pub(crate) fn of(document: &Document) -> Option<&Self> {
        document.host.get::<Self>()
    }

    /// Where those take turns that share a target with this machine.
    pub(crate) fn turns(&self) -> TurnSettings {
        // A lease of a minute says that a machine is alive; a takeover should not take that long.
        TurnSettings {
            store: self.config().with_spread(self.spread.min(LONGEST_TURN_SPREAD)),
            fleet: self.fleet.clone(),
            node: self.node.clone(),
            lease: self.lease.min(LONGEST_TURN_LEASE),
        }
    }

    /// How its store is reached.
    pub(super) fn config(&self) -> Config {
        let config = Config::new(self.endpoints.clone(), self.node.as_str());
        let config = config.with_spread(self.spread);
        match &self.tls {
            Some(tls) => config.with_tls(tls.clone()),
            None => config,
        }
    }
}

/// Nothing if it is no name of a node.
fn host_name() -> Option<Name> {
    rustix::system::uname().nodename().to_str().ok()?.parse().ok()
}

/// Whether an argument names a store.
pub(crate) fn is_url(argument: &Path) -> bool {
    argument.to_string_lossy().starts_with("etcd:")
}

/// `etcd://HOST:PORT,HOST:PORT/FLEET/NODE?FIELD=VALUE&...` as the document that has this `[fleet]` and nothing else.
pub(crate) fn document_of_url(url: &Path, arguments: &[PathBuf]) -> Result<Document> {
    let text = url.to_string_lossy();
    let refused = |why: &str| {
        helped(
            format!("`{text}`: {why}"),
            "write etcd://HOST:PORT,HOST:PORT/FLEET/NODE?allowed-signers=FILE&ca=FILE&certificate=FILE&key=FILE",
        )
    };
    if arguments.len() > 1 {
        return Err(refused("a daemon takes its document from one place"));
    }
    let rest = text.strip_prefix(SCHEME).ok_or_else(|| refused("it has no `//`"))?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut parts = path.split('/');
    let [endpoints, fleet] = [parts.next(), parts.next()];
    let (node, more) = (parts.next(), parts.next());
    if more.is_some() {
        return Err(refused("there is more behind the name of the node"));
    }
    let fleet = fleet.filter(|fleet| !fleet.is_empty());
    let fleet = fleet.ok_or_else(|| refused("it names no fleet"))?;
    let endpoints: Vec<&str> = endpoints.unwrap_or_default().split(',').collect();
    let mut section = json!({ "endpoints": endpoints, "fleet": fleet });
    if let Some(node) = node.filter(|node| !node.is_empty()) {
        section["node"] = json!(node);
    }
    for (field, value) in form_urlencoded::parse(query.as_bytes()) {
        let value = match &*field {
            "checks" | "maintenance-windows" => {
                let mut list = section[&*field].as_array().cloned().unwrap_or_default();
                list.push(json!(value));
                Value::Array(list)
            }
            "signatures" => value.parse::<u16>().map_or(json!(value), Value::from),
            "hold" => value.parse::<bool>().map_or(json!(value), Value::from),
            _ => json!(value),
        };
        section[&*field] = value;
    }
    let written = json!({ NAME: section }).to_string();
    understand(registry::READER.parse(&text, Format::Json, &written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<FleetSettings> {
        let document = document_of_url(Path::new(url), &[url.into()])?;
        Ok(FleetSettings::of(&document).unwrap().clone())
    }

    #[test]
    fn a_url_is_read_as_the_section() {
        let url = "etcd://a:1,[2001:db8::1]:2/edge/r1?allowed-signers=/s&ca=/ca&certificate=/c&key=/k&signatures=2\
                   &checks=ping:192.0.2.1&checks=cmd:/bin/true%20x&settle=5s&maintenance-windows=Sat+02:00-04:00";
        let settings = read(url).unwrap();
        let endpoints: Vec<_> = settings.endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(endpoints, ["a:1", "[2001:db8::1]:2"]);
        assert_eq!((settings.fleet.as_str(), settings.node.as_str()), ("edge", "r1"));
        assert_eq!((settings.group.as_str(), settings.signatures), ("all", 2));
        assert_eq!(settings.checks.len(), 2);
        assert_eq!(settings.windows.len(), 1);
        assert_eq!(settings.settle, Duration::from_secs(5));
        assert_eq!(settings.tls, Some(TlsFiles::new("/ca").with_client("/c", "/k")));
        assert_eq!((settings.lease, settings.spread), (LEASE, SPREAD));
        assert!(!settings.hold);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_reason() {
        for (url, why) in [
            ("etcd:a/edge/r1", "it has no `//`"),
            ("etcd://a", "it names no fleet"),
            ("etcd://a/edge/r1/x", "more behind the name of the node"),
            ("etcd://a/edge/r1", "allowed-signers"),
            ("etcd://a:x/edge/r1?allowed-signers=/s", "is no address of a member"),
            ("etcd://a/edge/r%201?allowed-signers=/s", "is no name"),
            ("etcd://a/edge/r1?allowed-signers=/s&key=/k", "needs its `certificate`"),
            ("etcd://a/edge/r1?allowed-signers=/s&lease=1h", "from 1s to 5m"),
            ("etcd://a/edge/r1?allowed-signers=/s&signatures=0", "a number of keys"),
            ("etcd://a/edge/r1?allowed-signers=/s&maintenance-windows=x", "maintenance window"),
            ("etcd://a/edge/r1?allowed-signers=/s&colour=red", "colour"),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
