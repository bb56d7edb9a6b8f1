//! A namespace, passes over it, and what `ip` says of its links.

use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Explain, Finding, Focus, Kind, LedgerKey, LedgerPage, MemoryLedger,
    Observer, Ownership, PassInput, Report, Source as _, pass,
};
use homeostat_rtnl::{DesiredState, Key, Link, LinkKind, LinkName, LinkRef, Object, Rtnl, Writer};
use homeostat_testkit::namespace::{Error, Namespace};
use serde_json::Value;

/// The name of the link under test.
pub(crate) const NAME: &str = "x0";

/// How a change is shown: to the link that is there, or by a new one.
pub(crate) const IN_PLACE: &str = "~";
pub(crate) const AGAIN: &str = "-/+";

pub(crate) fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

/// A link that stands on `low0`.
pub(crate) fn on_low(kind: LinkKind) -> Link {
    Link { parent: Some(LinkRef::here(name("low0"))), ..Link::new(kind) }
}

pub(crate) fn desired(links: &[(&str, Link)]) -> DesiredState {
    let mut builder = DesiredState::builder();
    for (text, link) in links {
        let link = Object::Link(Box::new(link.clone()));
        builder.add(Key::Link(name(text)), link).unwrap();
    }
    builder.build().unwrap()
}

pub(crate) struct Bench {
    pub(crate) namespace: Namespace,
    source: Rtnl,
    observer: Observer<Rtnl>,
    writer: Writer,
    book: LedgerPage<Rtnl>,
}

impl Bench {
    /// A fresh namespace with the veth pair `low0` and `low1`.
    pub(crate) fn new() -> Self {
        let namespace = Namespace::enter().unwrap();
        let source = Rtnl::here();
        let observer = Observer::open(&source, "test").unwrap();
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let place = LedgerKey::new("test", "rtnl", "test");
        let book = LedgerPage::open(Arc::new(MemoryLedger::default()), place).unwrap();
        let bench = Bench { namespace, source, observer, writer, book };
        bench.ip("link add low0 type veth peer name low1").unwrap();
        bench
    }

    pub(crate) fn ip(&self, args: &str) -> Result<(), Error> {
        let args: Vec<&str> = args.split_whitespace().collect();
        self.namespace.ip(&args)
    }

    /// Whether the running kernel makes such a link; `probe` is what follows `ip link add`.
    pub(crate) fn has(&self, probe: &str) -> bool {
        match self.ip(&format!("link add {probe}")) {
            Ok(()) => {
                let name = probe.split_whitespace().next().unwrap();
                self.ip(&format!("link del {name}")).unwrap();
                true
            }
            Err(error) => {
                let words = error.to_string();
                assert!(words.contains("Unknown device type"), "{words}");
                false
            }
        }
    }

    /// What `ip` says of a link.
    pub(crate) fn shown(&self, name: &str) -> Value {
        let links = self.namespace.ip_json(&["-d", "link", "show", "dev", name]).unwrap();
        links[0].clone()
    }

    /// What `ip` says of the options of the link under test.
    pub(crate) fn options(&self) -> Value {
        self.shown(NAME)["linkinfo"]["info_data"].clone()
    }

    pub(crate) fn pass(&mut self, desired: &DesiredState) -> Report<Rtnl> {
        let Bench { source, observer, writer, book, .. } = self;
        let (desired, config) = (Arc::new(desired.clone()), &Config::default());
        let order =
            PassInput { source, desired, ownership: &Ownership::Marked, focus: Focus::All, config };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(pass::pass(&order, observer, writer, book)).unwrap()
    }

    /// One pass converges, and the next writes nothing.
    pub(crate) fn converge(&mut self, desired: &DesiredState) -> Vec<String> {
        let report = self.pass(desired);
        assert!(report.is_converged(), "{:#?}", explained(&report));
        let done = explained(&report);
        let report = self.pass(desired);
        assert!(
            report.is_converged() && report.plan().steps.is_empty(),
            "{:#?}",
            explained(&report)
        );
        done
    }

    /// Passes until one is converged; a report that says so is true.
    pub(crate) fn settle(&mut self, desired: &DesiredState) {
        let mut done = Vec::new();
        let mut report = self.pass(desired);
        while !report.is_converged() {
            done.push(explained(&report));
            assert!(done.len() < 3, "not converged: {done:#?}");
            report = self.pass(desired);
        }
        let next = self.pass(desired);
        assert!(next.plan().steps.is_empty(), "{done:#?}, then {:#?}", explained(&next));
    }

    /// Makes the link under test, and takes it away again.
    pub(crate) fn check(&mut self, link: &Link, expected: &[(&str, Value)]) {
        let done = self.converge(&desired(&[(NAME, link.clone())]));
        assert_eq!(done, [format!("+ link {NAME}")]);
        let options = self.options();
        for (option, value) in expected {
            assert_eq!(&options[*option], value, "{option} in {options:#}");
        }
        self.clear();
    }

    /// Nothing is declared any more.
    pub(crate) fn clear(&mut self) {
        assert_eq!(self.converge(&desired(&[])), [format!("- link {NAME}")]);
        assert!(self.ip(&format!("link show dev {NAME}")).is_err());
    }

    /// Changes an option: in place, so that the link keeps its number, or by a new link.
    pub(crate) fn changes(&mut self, (from, to): (&Link, &Link), sign: &str) {
        self.converge(&desired(&[(NAME, from.clone())]));
        let before = self.shown(NAME)["ifindex"].clone();
        let done = self.converge(&desired(&[(NAME, to.clone())]));
        assert_eq!(done, [format!("{sign} link {NAME}")], "{from:?} -> {to:?}");
        assert_eq!(self.shown(NAME)["ifindex"] == before, sign == IN_PLACE, "{to:?}");
        self.clear();
    }

    /// A kind that the kernel lacks fails alone, in words that lead on.
    pub(crate) fn lacks(&mut self, link: &Link, module: &str) {
        let other = Link::new(LinkKind::Bridge(homeostat_rtnl::Bridge::default()));
        let report = self.pass(&desired(&[(NAME, link.clone()), ("br0", other)]));
        let lines = explained(&report);
        let kind = link.kind.name();
        let failed = format!("failed link {NAME}: the kernel has no links of kind `{kind}`");
        assert!(lines.iter().any(|line| line.starts_with(&failed)), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.ends_with(&format!("modprobe {module}"))),
            "{lines:#?}"
        );
        assert!(lines.contains(&"+ link br0".to_owned()), "{lines:#?}");
    }
}

/// Everything that a report contains, one line each.
pub(crate) fn explained(explain: &dyn Explain) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in
        [Kind::Applied, Kind::Failed, Kind::Pending, Kind::Conflict, Kind::Unknown, Kind::Held]
    {
        explain.explain(kind, &mut |entry| lines.push(line(entry)));
    }
    lines
}

fn line(entry: Entry) -> String {
    match entry {
        Entry::Applied(line, _) => format!("{} {}", line.action.sign(), line.key),
        Entry::Finding {
            key,
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
        } => {
            format!("failed {key}: {failure}; {}", failure.help.clone().unwrap_or_default())
        }
        Entry::Finding { key, finding: Finding::Pending { on } } => format!("pending {key}: {on}"),
        Entry::Finding { key, finding: Finding::Conflict { owner, .. } } => {
            format!("conflict {key}: {owner}")
        }
        Entry::Finding { key, finding: Finding::Held { why, .. } } => format!("held {key}: {why}"),
        other => format!("{other:?}"),
    }
}
