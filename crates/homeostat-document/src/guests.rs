//! `[proxmox]` and `[guests.N]`: a cluster of Proxmox VE, and what its guests shall be.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::error::ValueError;
use crate::fields::{Fields, Keyed, Section, describe_section, read_named, section};
use crate::node::{Node, Value};
use crate::number::numbers;
use crate::shape::{Definitions, Shape, Text, check};
use crate::span::Spanned;
use crate::time::Period;
use crate::words::words;

/// The cluster, and how it is spoken with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxmox {
    /// Where its API is.
    pub endpoint: Spanned<String>,
    /// The file that holds the token.
    pub token_file: Spanned<PathBuf>,
    /// The server's certificate; without it, the system's authorities decide.
    pub fingerprint: Option<Spanned<String>>,
    /// How many tasks of ours run at once on a node.
    pub node_limit: Option<Spanned<NodeLimit>>,
    /// How long an answer may take.
    pub timeout: Option<Spanned<Period>>,
    /// How long a task may take.
    pub task_timeout: Option<Spanned<Period>>,
    /// How often it is asked whether any guest has changed.
    pub poll: Option<Spanned<Period>>,
}

/// What one guest shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its number.
    pub vmid: Spanned<Vmid>,
    /// What it is.
    pub kind: Spanned<GuestKind>,
    /// Where it is; without a node it may be on any.
    pub node: Option<Spanned<String>>,
    /// Whether it shall run.
    pub run: Option<Spanned<GuestRun>>,
    /// How it is stopped.
    pub stop: Option<Spanned<GuestStop>>,
    /// How long a shutdown may take.
    pub stop_timeout: Option<Spanned<Period>>,
    /// Options by their names in the API, each as text.
    pub options: Vec<GuestOption>,
    /// Whether it may be taken from whoever manages it.
    pub adopt: bool,
}

/// One option of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestOption {
    /// Its name in the API.
    pub name: Spanned<String>,
    /// Its value as text; empty if it shall not be set.
    pub value: String,
}

numbers! {
    /// How many tasks run at once on a node.
    NodeLimit(u16): 1..=1000, "a number of tasks";
    /// A number of processor cores.
    Cores(u16): 1..=8192, "a number of cores";
}

words! {
    /// What a guest is.
    GuestKind, "a kind of guest":
    /// A container.
    Lxc = "lxc",
    /// A virtual machine.
    Qemu = "qemu",
}

words! {
    /// Whether a guest runs.
    GuestRun, "a state of a guest":
    /// It does.
    Running = "running",
    /// It does not.
    Stopped = "stopped",
}

words! {
    /// How a guest is stopped.
    GuestStop, "a way to stop a guest":
    /// Asked to shut down, and stopped after the timeout.
    Graceful = "graceful",
    /// Asked to shut down, and left running if it does not.
    Shutdown = "shutdown",
    /// At once.
    Immediate = "immediate",
}

/// The number of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vmid(u32);

impl Vmid {
    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Text for Vmid {
    const WHAT: &'static str = "the number of a guest, 100 to 999999999";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let number = text.parse::<u32>().ok().filter(|number| number.to_string() == text);
        let number = number.filter(|number| (100..=999_999_999).contains(number));
        number.map(Self).ok_or_else(|| {
            ValueError::is_not(text, "the number of a guest").help("it is from 100 to 999999999")
        })
    }
}

impl Section for Proxmox {
    const NAME: &'static str = "proxmox";
    const DOC: &'static str = "A cluster of Proxmox VE, and how it is spoken with";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let endpoint = fields.required("endpoint", "Where its API is: https://pve.example:8006");
        let token_file = fields.required(
            "token-file",
            "A file for its owner alone that holds the token: USER@REALM!NAME=SECRET",
        );
        let fingerprint = fields.optional(
            "fingerprint",
            "SHA-256 of the server's certificate; without it, the system's authorities decide",
        );
        let node_limit =
            fields.optional("node-limit", "Tasks of ours at once on a node; 2 if left out");
        let timeout = fields.optional("timeout", "How long an answer may take; 10s if left out");
        let task_timeout =
            fields.optional("task-timeout", "How long a task may take; 15m if left out");
        let poll = fields.optional(
            "poll",
            "How often it is asked whether any guest has changed; 5s if left out",
        );
        let token = "the token is never in the document";
        fields.refused_unseen(
            "token",
            token,
            "put it into a file of mode 0600, and name that as `token-file`",
        );
        Some(Self {
            endpoint: endpoint?,
            token_file: token_file?,
            fingerprint,
            node_limit,
            timeout,
            task_timeout,
            poll,
        })
    }
}

section!(Proxmox);

impl Section for Guest {
    const NAME: &'static str = "guest";
    const DOC: &'static str = "What one guest shall be; only what is declared is kept";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let vmid = fields.name();
        let kind = fields.required("kind", "What it is");
        let node: Option<Spanned<NodeName>> =
            fields.optional("node", "Where it is; without a node it may be on any");
        let node = node.map(|node| node.map(|NodeName(name)| name));
        let run = fields.optional("run", "Whether it runs");
        let stop = fields.optional("stop", "How it is stopped; graceful if left out");
        let stop_timeout =
            fields.optional("stop-timeout", "How long a shutdown may take; 60s if left out");
        let cores: Option<Spanned<Cores>> = fields.optional("cores", "Processor cores");
        let memory: Option<Spanned<Memory>> = fields.optional("memory", "Memory: \"512M\", \"4G\"");
        let description: Option<Spanned<String>> = fields.optional("description", "Notes about it");
        let tags: Option<Vec<Spanned<Tag>>> = fields.optional("tags", "All of its tags");
        let at = |fields: &Fields<'_>, name: &str| Spanned::new(name.to_owned(), fields.at(name));
        let mut options = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            let name = at(fields, name);
            options.extend(value.map(|value| GuestOption { name, value }));
        };
        add("cores", cores.map(|cores| cores.to_string()));
        add("memory", memory.map(|memory| memory.0.to_string()));
        add("description", description.map(|text| text.value));
        let joined = |tags: Vec<Spanned<Tag>>| {
            tags.into_iter().map(|tag| tag.value.0).collect::<Vec<_>>().join(";")
        };
        add("tags", tags.map(joined));
        let more: Option<Vec<GuestOption>> =
            fields.keyed("config", "Other options by their names in the API");
        refuse_twins(fields, more.iter().flatten());
        options.extend(more.into_iter().flatten());
        let adopt = fields.flag("adopt", "Standing leave to take this guest from another owner");
        Some(Self { vmid: vmid?, kind: kind?, node, run, stop, stop_timeout, options, adopt })
    }
}

/// Options that have a field of their own.
const OWN: [&str; 4] = ["cores", "memory", "description", "tags"];

fn refuse_twins<'a>(fields: &mut Fields<'_>, more: impl Iterator<Item = &'a GuestOption>) {
    for option in more.filter(|option| OWN.contains(&option.name.as_str())) {
        let message = format!("`{}` has a field of its own", option.name.value);
        let help = "write it beside `kind`, not in `config`";
        fields.report(crate::diagnostic::Diagnostic::new(option.name.span, message).help(help));
    }
}

impl Keyed for Guest {
    const KEY: &'static str = "the number of a guest";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        read_named(key, node, checker)
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        describe_section::<Self>(definitions)
    }
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

/// One tag.
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
