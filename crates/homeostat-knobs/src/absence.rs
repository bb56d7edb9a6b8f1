//! Why a declared knob does not exist or cannot be managed, what it waits on, and which key is similar. Pure.

use homeostat_core::{Failure, Retry, WaitsOn};
use strsim::levenshtein;

use crate::key::Key;
use crate::knob_file::Missing;

/// Why a knob is not there, or cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absence {
    /// Its link does not exist, or not yet.
    NoLink { link: String },
    /// Its control group does not exist, or not yet.
    NoGroup { group: String },
    /// The kernel has no such knob; `similar` is the nearest key that it has.
    NoKnob { similar: Option<String> },
    /// It is something else than a file with a value.
    NotAKnob { what: &'static str },
    /// It can be written, but not read, so it cannot be compared.
    WriteOnly,
    /// It belongs to the whole host, and the scope does not.
    HostWide { why: String },
    /// There is no cgroup v2 hierarchy.
    NoHierarchy,
}

impl Absence {
    /// Why there is no file, by how much of its path exists.
    pub(crate) fn of(key: &Key, missing: &Missing) -> Self {
        match key {
            Key::Sysctl(_) | Key::Sysfs(_)
                if let Some(link) = key.link()
                    && missing.depth == key.link_depth() =>
            {
                Absence::NoLink { link: link.to_owned() }
            }
            Key::Cgroup(file) if missing.depth < file.group().split('/').count() => {
                Absence::NoGroup { group: file.group().to_owned() }
            }
            _ => Absence::NoKnob { similar: similar(key, missing) },
        }
    }

    /// What it waits on, if it may come by itself.
    #[must_use]
    pub fn waits_on(&self) -> Option<WaitsOn> {
        match self {
            Absence::NoLink { link } => Some(WaitsOn::link(link.clone())),
            Absence::NoGroup { group } => Some(WaitsOn::Condition(format!("cgroup {group}"))),
            _ => None,
        }
    }

    /// The refusal in words.
    #[must_use]
    pub fn failure(&self, key: &Key) -> Failure {
        let refusal = |text: String| Failure::new(text, Retry::OnChange);
        match self {
            Absence::NoLink { link } => refusal(format!("there is no link `{link}`")),
            Absence::NoGroup { group } => refusal(format!("there is no cgroup `{group}`")),
            Absence::NoKnob { similar } => refusal("the kernel has no such knob".to_owned())
                .with_known_help(no_knob_help(key, similar.as_deref())),
            Absence::NotAKnob { what } => refusal(format!("it is {what}, not a knob")),
            Absence::WriteOnly => {
                refusal("it can be written but not read, so it cannot be compared".to_owned())
                    .with_help("it is a command: run it from a script or a timer")
            }
            Absence::HostWide { why } => refusal(format!("it belongs to the whole host: {why}"))
                .with_help("declare it in the document of the host"),
            Absence::NoHierarchy => refusal("there is no cgroup v2 hierarchy".to_owned())
                .with_help("mount it at /sys/fs/cgroup"),
        }
    }
}

/// The same key with its first missing part replaced by the nearest name.
fn similar(key: &Key, missing: &Missing) -> Option<String> {
    let path = key.path();
    let wrong = path.split('/').nth(missing.depth)?;
    let near = nearest(wrong, &missing.siblings)?;
    let parts = path.split('/').enumerate();
    let right: Vec<&str> =
        parts.map(|(depth, part)| if depth == missing.depth { near } else { part }).collect();
    let right = match key {
        Key::Sysctl(_) => Key::sysctl(&right.join("/")),
        Key::Cgroup(file) => Key::cgroup(file.group(), near),
        Key::Sysfs(_) => Key::sysfs(&right.join("/")),
    };
    right.ok().map(|key| key.to_string())
}

/// Knobs that come with a module.
const MODULES: [(&str, &str); 5] = [
    ("net/bridge/", "br_netfilter"),
    ("net/mpls/", "mpls_router"),
    ("net/netfilter/", "nf_conntrack"),
    ("net/nf_conntrack_max", "nf_conntrack"),
    ("net/sctp/", "sctp"),
];

fn no_knob_help(key: &Key, similar: Option<&str>) -> Option<String> {
    if let Some(similar) = similar {
        return Some(format!("did you mean `{similar}`?"));
    }
    match key {
        Key::Sysctl(path) => {
            let module = MODULES.iter().find(|(prefix, _)| path.as_str().starts_with(prefix));
            module.map(|(_, module)| {
                format!("a module may be missing: `modprobe {module}`, or declare it in `modules`")
            })
        }
        Key::Cgroup(_) => {
            Some("enable its controller in `cgroup.subtree_control` of the parent".to_owned())
        }
        Key::Sysfs(_) => Some("its device or its module may be missing".to_owned()),
    }
}

/// The name that differs from `wanted` in the fewest letters, if it is near enough to be meant.
pub(crate) fn nearest<'a>(wanted: &str, names: &'a [String]) -> Option<&'a str> {
    let most = (wanted.len() / 3).clamp(1, 3);
    let near = names.iter().map(|name| (levenshtein(wanted, name), name.as_str()));
    near.filter(|(edits, _)| *edits <= most).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absence(key: &Key, depth: usize, siblings: &[&str]) -> Absence {
        let siblings = siblings.iter().map(|name| (*name).to_owned()).collect();
        Absence::of(key, &Missing { depth, siblings })
    }

    #[test]
    fn links_and_groups_are_waited_for_and_nothing_else() {
        let rp_filter = Key::sysctl("net.ipv4.conf.eth0.rp_filter").unwrap();
        assert_eq!(absence(&rp_filter, 3, &[]).waits_on(), Some(WaitsOn::link("eth0")));
        assert_eq!(absence(&rp_filter, 1, &[]).waits_on(), None, "without IPv4 no link helps");
        assert_eq!(absence(&rp_filter, 4, &[]).waits_on(), None);
        let limit = Key::cgroup("machine/web", "memory.max").unwrap();
        assert_eq!(absence(&limit, 0, &[]).waits_on().unwrap().to_string(), "cgroup machine/web");
        assert_eq!(absence(&limit, 1, &[]).waits_on().unwrap().to_string(), "cgroup machine/web");
        assert_eq!(absence(&limit, 2, &[]).waits_on(), None);
        let threaded = Key::sysfs("class/net/eth0/threaded").unwrap();
        assert_eq!(absence(&threaded, 2, &[]).waits_on(), Some(WaitsOn::link("eth0")));
        assert_eq!(absence(&threaded, 3, &[]).waits_on(), None);
    }

    #[test]
    fn a_misspelt_knob_is_answered_with_the_nearest_one() {
        let key = Key::sysctl("net.ipv4.ip_forwrd").unwrap();
        let failure = absence(&key, 2, &["ip_forward", "tcp_rmem"]).failure(&key);
        let help = "did you mean `sysctl net.ipv4.ip_forward`?";
        assert_eq!(failure.help.as_deref(), Some(help));
        let key = Key::cgroup("web", "memory.maxx").unwrap();
        let failure = absence(&key, 1, &["memory.max"]).failure(&key);
        assert_eq!(failure.help.as_deref(), Some("did you mean `cgroup web memory.max`?"));
    }

    #[test]
    fn a_knob_of_a_module_is_answered_with_the_module() {
        let key = Key::sysctl("net.bridge.bridge-nf-call-iptables").unwrap();
        let help = absence(&key, 1, &["ipv4"]).failure(&key).help.unwrap();
        assert!(help.contains("modprobe br_netfilter"), "{help}");
        let key = Key::cgroup("web", "memory.max").unwrap();
        let help = absence(&key, 1, &[]).failure(&key).help.unwrap();
        assert!(help.contains("cgroup.subtree_control"), "{help}");
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let names = ["ip_forward", "ip_default_ttl", "."].map(str::to_owned);
        assert_eq!(nearest("ip_forwarding", &names), Some("ip_forward"));
        assert_eq!(nearest("ip_forwrd", &names), Some("ip_forward"));
        assert_eq!(nearest("tcp_rmem", &names), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
