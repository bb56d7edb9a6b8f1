//! The sections of the document: `[proxmox]` and `[guests.N]`.

use std::path::PathBuf;
use std::time::Duration;

use homeostat_document::{
    Checker, Definitions, Diagnostic, Document, Fields, Join, Json, Keyed, Map, NamedRecord, Node,
    Number, Period, Record, Scope, Scopes, Section, SectionType, Shape, SourceSections, Spanned,
    Text, Value, ValueError, check, record, word_values,
};
use serde_json::json;

use crate::desired::{DesiredError, DesiredState, normal_option};
use crate::endpoint::Endpoint;
use crate::model::{Kind, Run, Stop, Vmid, Wanted};
use crate::source::Timeouts;
use crate::tls::{Fingerprint, Trust};

/// All that guests add to documents.
pub const SECTIONS: SourceSections = SourceSections {
    commands: &["guest-start", "guest-stop", "guest-shutdown"],
    ..SourceSections::new("guests", &[SectionType::of::<Proxmox>(), SectionType::of::<Guests>()])
};

/// `[proxmox]`: the cluster, and how its API is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxmox {
    pub endpoint: Endpoint,
    /// The name by which machines of a fleet know that they share the cluster.
    pub cluster: Option<String>,
    /// The file that holds the token.
    pub token_file: PathBuf,
    /// How its certificate is verified.
    pub trust: Trust,
    /// How many tasks of ours run at once on a node.
    pub node_limit: u16,
    pub timeouts: Timeouts,
}

impl Proxmox {
    /// The same on all machines that share the cluster: its declared name, or else its endpoint.
    #[must_use]
    pub fn cluster_name(&self) -> String {
        self.cluster.clone().unwrap_or_else(|| self.endpoint.to_string())
    }
}

/// `[guests]`: what guests shall be, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guests(pub Vec<Guest>);

/// The declaration of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    pub vmid: Vmid,
    /// What is declared; its options are as they were written.
    pub wanted: Wanted,
    /// The names of its options, in the order of writing.
    pub options: Vec<Spanned<String>>,
}

pub fn guests(scope: &Scope) -> impl Iterator<Item = &Guest> {
    scope.get::<Guests>().into_iter().flat_map(|all| &all.0)
}

/// What a scope declares.
pub fn desired(scope: &Scope) -> Result<DesiredState, DesiredError> {
    DesiredState::new(guests(scope).map(|guest| (guest.vmid, guest.wanted.clone())))
}

/// Reports every option that cannot be declared: each by itself, so that each mistake has its place.
pub fn resolve(scope: &Scope, checker: &mut Checker) {
    for guest in guests(scope) {
        for name in &guest.options {
            let value = guest.wanted.options.get(&name.value).map_or("", String::as_str);
            if let Err(error) = normal_option(guest.wanted.kind, name, value) {
                let at = match error {
                    DesiredError::Secret(_) => Diagnostic::unseen,
                    _ => Diagnostic::new,
                };
                let wrong = at(name.span, error.to_string());
                checker.report(wrong.maybe_help(error.help().map(str::to_owned)));
            }
        }
    }
}

impl Section for Proxmox {
    const NAME: &'static str = "proxmox";
    const DOC: &'static str = "A cluster of Proxmox VE";
    const SCOPES: Scopes = Scopes::Host("a cluster belongs to the host, not to a namespace");
    const JOIN: Join = Join::Tables(&[]);

    type Value = Self;
    const NEW: fn(Self::Value) -> Self = |proxmox| proxmox;
}

record!(Proxmox);

impl Section for Guests {
    const NAME: &'static str = "guests";
    const DOC: &'static str = "Guests of the cluster by number";
    const SCOPES: Scopes = Scopes::Host("guests belong to the host, not to a namespace");
    const JOIN: Join = Join::Tables(&["*", "*/config"]);

    type Value = Map<Guest>;
    const NEW: fn(Self::Value) -> Self = |Map(guests)| Self(guests);

    fn check(document: &Document, checker: &mut Checker) {
        let Some(span) = document.host.place_of(Self::NAME) else { return };
        if !document.host.states(<Proxmox as Section>::NAME) {
            let missing = Diagnostic::new(span, "there is no `[proxmox]` for these guests");
            checker.report(missing.help("say where the cluster is: `endpoint` and `token-file`"));
        }
    }
}

/// If `node-limit` is left out.
const NODE_LIMIT: u16 = 2;

/// The shortest timeout or interval.
const LEAST: Duration = Duration::from_millis(100);

impl Record for Proxmox {
    const NAME: &'static str = "proxmox";
    const DOC: &'static str = "A cluster of Proxmox VE, and how it is spoken with";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let endpoint = fields.required("endpoint", "Where its API is: https://pve.example:8006");
        let doc = "A name for the cluster, the same on all machines of a fleet that take turns in acting on it; \
                   the endpoint if left out";
        let cluster: Option<Spanned<String>> = fields.optional("cluster", doc);
        if let Some(name) = cluster.as_ref().filter(|name| name.is_empty() || name.contains('/')) {
            let refused = Diagnostic::new(name.span, "a name is not empty and has no `/`");
            fields.report(refused.help("write a short word, such as \"east\""));
        }
        let doc = "A file for its owner alone that holds the token: USER@REALM!NAME=SECRET";
        let token_file = fields.required("token-file", doc);
        let doc =
            "SHA-256 of the server's certificate; without it, the system's authorities decide";
        let fingerprint: Option<Fingerprint> = fields.optional("fingerprint", doc);
        let tasks = Number { what: "a number of tasks", least: 1, most: 1000 };
        let doc = "Tasks of ours at once on a node; 2 if left out";
        let node_limit = fields.number("node-limit", doc, tasks);
        let usual = Timeouts::default();
        let doc = "How long an answer may take; 10s if left out";
        let answer = time(fields, "timeout", doc).unwrap_or(usual.answer);
        let doc = "How long a task may take; 15m if left out";
        let task = time(fields, "task-timeout", doc).unwrap_or(usual.task);
        let doc = "How often it is asked whether any guest has changed; 5s if left out";
        let poll = time(fields, "poll", doc).unwrap_or(usual.poll);
        let doc = "How long after a lost answer its task may still begin, so that nothing is sent \
                   again; the timeout and 20s if left out";
        let late_task = time(fields, "task-delay", doc);
        let late_task = late_task.unwrap_or(answer.saturating_add(Timeouts::TASK_DELAY));
        let timeouts = Timeouts { answer, task, poll, late_task };
        let help = "put it into a file of mode 0600, and name that as `token-file`";
        fields.refused_unseen("token", "the token is never in the document", help);
        let trust = fingerprint.map_or(Trust::System, Trust::Pinned);
        let node_limit = node_limit.unwrap_or(NODE_LIMIT);
        Some(Self {
            endpoint: endpoint?,
            cluster: cluster.map(|name| name.value),
            token_file: token_file?,
            trust,
            node_limit,
            timeouts,
        })
    }
}

fn time(fields: &mut Fields<'_>, name: &'static str, doc: &str) -> Option<Duration> {
    let time: Spanned<Period> = fields.optional(name, doc)?;
    if time.get() < LEAST {
        let message = "less than 100ms is too short for a cluster";
        fields.report(Diagnostic::new(time.span, message));
    }
    Some(time.get())
}

impl Text for Endpoint {
    const WHAT: &'static str = "text";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|error: crate::BadEndpoint| ValueError::new(error.to_string()))
    }
}

impl Text for Fingerprint {
    const WHAT: &'static str = "text";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|error: crate::BadFingerprint| {
            let help = "`pvenode cert info` prints it, or the web interface under Certificates";
            ValueError::new(error.to_string()).help(help)
        })
    }
}

word_values! { Kind, "a kind of guest": "lxc" = Kind::Lxc, "qemu" = Kind::Qemu }

word_values! { Run, "a state of a guest": "running" = Run::Running, "stopped" = Run::Stopped }

word_values! { Stop, "a way to stop a guest":
    "graceful" = Stop::Graceful(Stop::USUAL_TIMEOUT),
    "shutdown" = Stop::Shutdown(Stop::USUAL_TIMEOUT),
    "immediate" = Stop::Immediate,
}

impl Text for Vmid {
    const WHAT: &'static str = "the number of a guest, 100 to 999999999";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let number = text.parse::<u32>().ok().filter(|number| number.to_string() == text);
        let number = number.filter(|number| Vmid::VALID.contains(number));
        number.map(Self).ok_or_else(|| {
            ValueError::is_not(text, "the number of a guest").help("it is from 100 to 999999999")
        })
    }
}

impl Record for Guest {
    const NAME: &'static str = "guest";
    const DOC: &'static str = "A guest; only what is declared of it is managed";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let vmid = fields.name().map(|vmid: Spanned<Vmid>| vmid.value);
        let kind = fields.required("kind", "What it is");
        let node: Option<Spanned<NodeName>> =
            fields.optional("node", "Where it is; without a node it may be on any");
        let node = node.map(|node| node.value.0);
        let run = fields.optional("run", "Whether it runs");
        let stop = fields.optional("stop", "How it is stopped; graceful if left out");
        let stop_timeout: Option<Period> =
            fields.optional("stop-timeout", "How long a shutdown may take; 60s if left out");
        let stop = match (stop.unwrap_or_default(), stop_timeout.map(Period::get)) {
            (Stop::Graceful(_), Some(timeout)) => Stop::Graceful(timeout),
            (Stop::Shutdown(_), Some(timeout)) => Stop::Shutdown(timeout),
            (stop, _) => stop,
        };
        let count = Number { what: "a number of cores", least: 1, most: 8192 };
        let cores: Option<u16> = fields.number("cores", "Processor cores", count);
        let memory: Option<Spanned<Memory>> = fields.optional("memory", "Memory: \"512M\", \"4G\"");
        let description: Option<Spanned<String>> = fields.optional("description", "Notes about it");
        let tags: Option<Vec<Spanned<Tag>>> = fields.optional("tags", "All of its tags");
        let mut given = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            let name = Spanned::new(name.to_owned(), fields.at(name));
            given.extend(value.map(|value| GuestOption { name, value }));
        };
        add("cores", cores.map(|cores| cores.to_string()));
        add("memory", memory.map(|memory| memory.0.to_string()));
        add("description", description.map(|text| text.value));
        let joined = |tags: Vec<Spanned<Tag>>| {
            tags.into_iter().map(|tag| tag.value.0).collect::<Vec<_>>().join(";")
        };
        add("tags", tags.map(joined));
        let more: Option<Map<GuestOption>> =
            fields.optional("config", "Other options by their names in the API");
        let more = more.map_or_else(Vec::new, |more| more.0);
        let has_field = |name: &str| ["cores", "memory", "description", "tags"].contains(&name);
        for GuestOption { name, .. } in more.iter().filter(|option| has_field(&option.name)) {
            let message = format!("`{}` has a field of its own", name.value);
            let help = "write it next to `kind`, not in `config`";
            fields.report(Diagnostic::new(name.span, message).help(help));
        }
        given.extend(more);
        let adopt = fields.flag("adopt", "Take this guest over from another owner");
        let names = given.iter().map(|option| option.name.clone()).collect();
        let options = given.into_iter().map(|option| (option.name.value, option.value)).collect();
        let wanted = Wanted { kind: kind?, node, run, stop, options, adopt };
        Some(Self { vmid: vmid?, wanted, options: names })
    }
}

/// One option as it is written.
struct GuestOption {
    name: Spanned<String>,
    /// Its value as text; empty if it shall not be set.
    value: String,
}

impl NamedRecord for Guest {
    const KEY: &'static str = "the number of a guest";
}

impl Keyed for GuestOption {
    const KEY: &'static str = "the name of an option in the API, such as `onboot`";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        let value = match &node.value {
            Value::Text(text) => text.clone(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) if is_decimal(number) => number.clone(),
            Value::Bool(value) => u8::from(*value).to_string(),
            other => {
                let is_number = matches!(other, Value::Float(_));
                let help = is_number.then(|| "write it without an exponent".to_owned());
                checker.expected("text, a plain number, `true` or `false`", node, help);
                return None;
            }
        };
        Some(Self { name: key.clone(), value })
    }

    fn entry_schema(_: &mut Definitions) -> Json {
        json!({ "type": ["string", "number", "boolean"],
            "description": "its value; an empty text if it shall not be set" })
    }
}

/// A number as the API writes it, without an exponent.
fn is_decimal(text: &str) -> bool {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split_once('.').is_some_and(|(whole, part)| is_digits(whole) && is_digits(part))
}

/// The name of a node: that of a host.
struct NodeName(String);

impl Text for NodeName {
    const WHAT: &'static str = "the name of a node";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let is_name = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if text.is_empty() || !is_name(text) {
            let help = "it has letters, digits and hyphens: \"pve1\"";
            return Err(ValueError::is_not(text, Self::WHAT).help(help));
        }
        Ok(Self(text.to_owned()))
    }
}

struct Tag(String);

impl Text for Tag {
    const WHAT: &'static str = "a tag";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let parts = |c: char| c.is_whitespace() || [',', ';'].contains(&c);
        if text.is_empty() || text.contains(parts) {
            let help = "the target would take it for none, or for several: write one text for each";
            return Err(ValueError::is_not(text, Self::WHAT).help(help));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Memory in MiB.
struct Memory(u64);

const MEMORY: &str = "an amount of memory such as \"512M\" or \"4G\", or a number of MiB";

impl Shape for Memory {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        match &node.value {
            Value::Int(number) => check(megabytes(&number.to_string()), node, checker).map(Self),
            Value::Text(text) => check(megabytes(text), node, checker).map(Self),
            _ => {
                checker.expected(MEMORY, node, None);
                None
            }
        }
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "type": ["string", "integer"], "description": MEMORY })
    }
}

fn megabytes(text: &str) -> Result<u64, ValueError> {
    let wrong = || ValueError::is_not(text, "an amount of memory").help("write \"512M\" or \"4G\"");
    let (number, factor) = match text.strip_suffix(['M', 'G']) {
        Some(number) if text.ends_with('G') => (number, 1024),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<u64>().ok().filter(|_| is_plain);
    let amount = number.and_then(|number| number.checked_mul(factor));
    amount.filter(|amount| *amount >= 16).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_mebibytes_or_has_a_unit() {
        for (text, expected) in [("512", 512), ("512M", 512), ("4G", 4096)] {
            assert_eq!(megabytes(text).unwrap(), expected, "{text}");
        }
        for text in ["", "M", "-1", "+5", "1.5G", "512K", "512 M", "8", "99999999999999999999G"] {
            assert!(megabytes(text).is_err(), "{text}");
        }
    }
}
