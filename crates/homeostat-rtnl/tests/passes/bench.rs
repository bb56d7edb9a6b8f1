//! A namespace with two ends of a cable in it, and passes over it.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use homeostat_engine::{
    Alone, Config, Desired as _, Edit, Entry, Explain, Finding, Focus, Hint, Ledger as _,
    LedgerKey, LedgerPage, MassDelete, MemoryLedger, Observer, Original, Ownership, PassInput,
    Plan, Record, Report, Slot, Source as _, Stage, pass,
};
use homeostat_rtnl::{
    Address, Bridge, Builder, DesiredError, DesiredState, Family, Fdb, Field, Hop, Key, Lifetime,
    Link, LinkKind, LinkRef, Macvlan, Member, Neighbour, Nexthop, Object, PortOption, Protocol,
    RareAttributes, Remote, Route, RouteKind, Rtnl, Rule, RuleAction, Setting, Table, Veth,
    VlanRange, VniRange, Vxlan, Writer,
};
use homeostat_testkit::entries::entry_lines;
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;
use tokio::runtime::Runtime;

/// A declared object: its key, and its attributes as `ip` writes them.
pub(crate) type Declared<'a> = (&'a str, &'a str);

pub(crate) fn desired(entries: &[Declared<'_>]) -> DesiredState {
    try_desired(entries).unwrap()
}

pub(crate) fn try_desired(entries: &[Declared<'_>]) -> Result<DesiredState, DesiredError> {
    let mut builder = DesiredState::builder();
    for (key, attrs) in entries {
        add(&mut builder, key.parse().unwrap(), attrs)?;
    }
    builder.build()
}

pub(crate) fn add(builder: &mut Builder, key: Key, attrs: &str) -> Result<(), DesiredError> {
    let object = match &key {
        Key::Address(_) => Object::Address(address(attrs)),
        Key::Route(_) => Object::Route(route(attrs)),
        Key::Nexthop(_) => Object::Nexthop(nexthop(attrs)),
        Key::Rule(_) => Object::Rule(rule(attrs)),
        Key::Neighbour(_) => Object::Neighbour(neighbour(attrs)),
        Key::Fdb(_) => Object::Fdb(fdb(attrs)),
        Key::Link(_) => Object::Link(Box::new(link(attrs))),
        Key::LinkField(_, field) => Object::Setting(setting(*field, attrs).into()),
        other => panic!("{other}"),
    };
    builder.add(key, object).map(|_| ())
}

/// `KIND [word value]...`.
fn link(attrs: &str) -> Link {
    let words: Vec<&str> = attrs.split_whitespace().collect();
    let (kind, words) = words.split_first().unwrap();
    let peer = words.chunks(2).find(|pair| pair[0] == "peer").map(|pair| pair[1]);
    let id = words.chunks(2).find(|pair| pair[0] == "id").map(|pair| pair[1]);
    let mut link = Link::new(match *kind {
        "veth" => LinkKind::Veth(Veth { peer: link_ref(peer.unwrap()) }),
        "bridge" => LinkKind::Bridge(Bridge::default()),
        "ifb" => LinkKind::Ifb,
        "macvlan" => LinkKind::Macvlan(Macvlan::default()),
        "vxlan" => {
            let id = id.unwrap().parse().unwrap();
            LinkKind::Vxlan(Vxlan { id, port: Some(4789), ..Vxlan::default() })
        }
        other => panic!("{other}"),
    });
    for pair in words.chunks(2) {
        match pair[0] {
            "up" => link.up = Some(pair[1] == "on"),
            "mtu" => link.mtu = Some(pair[1].parse().unwrap()),
            "master" => link.master = Some(pair[1].parse().unwrap()),
            "parent" => link.parent = Some(link_ref(pair[1])),
            "alias" => link.alias = Some(pair[1].to_owned()),
            "mac" => link.mac = Some(pair[1].parse().unwrap()),
            "peer" | "id" => {}
            "vnis" => match &mut link.kind {
                LinkKind::Vxlan(vxlan) => {
                    let ranges = pair[1].split(',').map(|range| range.parse::<VniRange>().unwrap());
                    vxlan.vnis = Some(ranges.collect::<Vec<_>>().into());
                }
                other => panic!("{other:?}"),
            },
            "external" => match &mut link.kind {
                LinkKind::Vxlan(vxlan) => vxlan.external = Some(pair[1] == "on"),
                other => panic!("{other:?}"),
            },
            "filtering" => bridge(&mut link).vlan_filtering = Some(pair[1] == "on"),
            "pvid" => bridge(&mut link).vlan_default_pvid = Some(pair[1].parse().unwrap()),
            other => panic!("{other}"),
        }
    }
    link
}

fn bridge(link: &mut Link) -> &mut Bridge {
    match &mut link.kind {
        LinkKind::Bridge(bridge) => bridge,
        other => panic!("{other:?}"),
    }
}

/// `NAME` or `NAME@NAMESPACE`.
fn link_ref(text: &str) -> LinkRef {
    match text.split_once('@') {
        Some((name, space)) => LinkRef::in_namespace(name.parse().unwrap(), space),
        None => LinkRef::here(text.parse().unwrap()),
    }
}

fn setting(field: Field, value: &str) -> Setting {
    match field {
        Field::Mtu | Field::TxQueueLen | Field::Port(PortOption::Cost | PortOption::Priority) => {
            Setting::Number(value.parse().unwrap())
        }
        Field::Up | Field::Port(_) => Setting::Flag(value == "on"),
        Field::Mac | Field::Master | Field::Alias | Field::Name => Setting::Text(value.to_owned()),
        Field::Vlans => {
            let ranges = value.split(',').map(str::trim).filter(|range| !range.is_empty());
            Setting::Vlans(ranges.map(|range| range.parse::<VlanRange>().unwrap()).collect())
        }
    }
}

fn address(attrs: &str) -> Address {
    let mut address = Address::default();
    let words: Vec<&str> = attrs.split_whitespace().collect();
    for pair in words.chunks(2) {
        let seconds = || Some(Lifetime::Seconds(pair[1].parse().unwrap()));
        match pair[0] {
            "scope" => address.scope = Some(pair[1].parse().unwrap()),
            "label" => address.label = Some(pair[1].to_owned()),
            "broadcast" => address.broadcast = Some(pair[1].parse().unwrap()),
            "noprefixroute" => address.noprefixroute = Some(pair[1] == "on"),
            "valid" => address.valid = seconds(),
            "preferred" => address.preferred = seconds(),
            other => panic!("{other}"),
        }
    }
    address
}

/// Rare attributes as in a record: `encap {"mpls":[16]}`.
fn route(attrs: &str) -> Route {
    let (mut route, mut rare) = (Route::default(), serde_json::Map::new());
    let words: Vec<&str> = attrs.split_whitespace().collect();
    for pair in words.chunks(2) {
        match pair[0] {
            "via" => route.via = Some(pair[1].parse().unwrap()),
            "dev" => route.dev = Some(pair[1].parse().unwrap()),
            "src" => route.src = Some(pair[1].parse().unwrap()),
            "mtu" => route.mtu = Some(pair[1].parse().unwrap()),
            "scope" => route.scope = Some(pair[1].parse().unwrap()),
            "onlink" => route.onlink = Some(pair[1] == "on"),
            "type" => route.kind = kind(pair[1]),
            "nhid" => route.nexthop = Some(pair[1].parse().unwrap()),
            "hop" => route.hops.push(hop(pair[1])),
            word => _ = rare.insert(word.to_owned(), value(pair[1])),
        }
    }
    let rare: RareAttributes = serde_json::from_value(Value::Object(rare)).unwrap();
    Route { rare: rare.into(), ..route }
}

/// `on`, `off`, JSON or a word.
fn value(text: &str) -> Value {
    match text {
        "on" | "off" => Value::Bool(text == "on"),
        _ => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
    }
}

fn nexthop(attrs: &str) -> Nexthop {
    let mut nexthop = Nexthop::default();
    let words: Vec<&str> = attrs.split_whitespace().collect();
    for pair in words.chunks(2) {
        match pair[0] {
            "via" => nexthop.via = Some(pair[1].parse().unwrap()),
            "dev" => nexthop.dev = Some(pair[1].parse().unwrap()),
            "family" if pair[1] == "inet6" => nexthop.family = Some(Family::V6),
            "onlink" => nexthop.onlink = Some(pair[1] == "on"),
            "scope" => nexthop.scope = Some(pair[1].parse().unwrap()),
            "blackhole" => nexthop.blackhole = pair[1] == "on",
            "member" => nexthop.group.push(member(pair[1])),
            other => panic!("{other}"),
        }
    }
    nexthop
}

/// `ID*WEIGHT`.
fn member(text: &str) -> Member {
    let (id, weight) = text.split_once('*').unwrap();
    Member { id: id.parse().unwrap(), weight: weight.parse().unwrap() }
}

fn rule(attrs: &str) -> Rule {
    let mut rule = Rule::table(Table::MAIN);
    let words: Vec<&str> = attrs.split_whitespace().collect();
    for pair in words.chunks(2) {
        match pair[0] {
            "table" => rule.action = RuleAction::Table(pair[1].parse().unwrap()),
            "action" => rule.action = serde_json::from_value(Value::from(pair[1])).unwrap(),
            "goto" => rule.action = RuleAction::Goto(pair[1].parse().unwrap()),
            "suppress" => rule.suppress_prefixlength = Some(pair[1].parse().unwrap()),
            other => panic!("{other}"),
        }
    }
    rule
}

/// A hardware address, or nothing for a proxy entry.
fn neighbour(attrs: &str) -> Neighbour {
    Neighbour { mac: (!attrs.is_empty()).then(|| attrs.parse().unwrap()) }
}

/// `sticky`, `local` or `dst IP [port N] [vni N]`.
fn fdb(attrs: &str) -> Fdb {
    let words: Vec<&str> = attrs.split_whitespace().collect();
    match words.as_slice() {
        [] => Fdb::default(),
        ["sticky"] => Fdb { sticky: true, ..Fdb::default() },
        ["local"] => Fdb { local: true, ..Fdb::default() },
        ["dst", ip, options @ ..] => {
            let mut remote = Remote::new(ip.parse().unwrap());
            for pair in options.chunks(2) {
                match pair[0] {
                    "port" => remote.port = Some(pair[1].parse().unwrap()),
                    "vni" => remote.vni = Some(pair[1].parse().unwrap()),
                    other => panic!("{other}"),
                }
            }
            Fdb::to(remote)
        }
        other => panic!("{other:?}"),
    }
}

fn kind(word: &str) -> RouteKind {
    serde_json::from_value(Value::from(word)).unwrap()
}

/// `GATEWAY*WEIGHT`.
fn hop(text: &str) -> Hop {
    let (via, weight) = text.split_once('*').unwrap();
    let via = Some(via.parse().unwrap());
    Hop { via, dev: None, weight: weight.parse().unwrap(), onlink: None, encap: None }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

/// A fresh namespace with the link `va`, whose other end is `vb`, both up.
pub(crate) fn cable() -> Namespace {
    let namespace = Namespace::enter().unwrap();
    for args in
        ["link set lo up", "link add va type veth peer name vb", "link set va up", "link set vb up"]
    {
        ip(&namespace, args);
    }
    namespace
}

/// Waits until the kernel has seen to something: a worker of its own follows carriers, when it gets the processor.
#[track_caller]
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let deadline = UNIX_EPOCH.elapsed().unwrap() + Duration::from_mins(1);
    while !so() {
        assert!(UNIX_EPOCH.elapsed().unwrap() < deadline, "{what} never came");
    }
}

pub(crate) fn ip(namespace: &Namespace, args: &str) {
    let args: Vec<&str> = args.split_whitespace().collect();
    namespace.ip(&args).unwrap();
}

/// What `ip -j` prints, a list. That a link is still coming up is left out.
pub(crate) fn listed(namespace: &Namespace, args: &str) -> Vec<Value> {
    let args: Vec<&str> = args.split_whitespace().collect();
    let Value::Array(mut list) = namespace.ip_json(&args).unwrap() else { panic!("no list") };
    for flags in list.iter_mut().filter_map(|one| one.get_mut("flags")?.as_array_mut()) {
        flags.retain(|flag| flag != "linkdown");
    }
    list
}

/// The addresses of `va` as `IP/LEN`, in the kernel's order. Link-local ones come when they like.
pub(crate) fn addresses(namespace: &Namespace) -> Vec<String> {
    let links = listed(namespace, "address show dev va");
    let addresses = links.iter().flat_map(|link| link["addr_info"].as_array().unwrap());
    let shown = addresses.filter(|a| !a["local"].as_str().unwrap().starts_with("fe80"));
    shown.map(|a| format!("{}/{}", a["local"].as_str().unwrap(), a["prefixlen"])).collect()
}

fn place() -> LedgerKey {
    LedgerKey::new("test", "rtnl", "test")
}

/// The source in the namespace that the thread is in, and everything that a pass needs.
pub(crate) struct Bench {
    source: Rtnl,
    observer: Observer<Rtnl>,
    writer: Writer,
    book: LedgerPage<Rtnl>,
    pub(crate) config: Config<Key>,
    /// One for all passes and hints: what waits for events belongs to it.
    runtime: Runtime,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::of(Rtnl::here())
    }

    pub(crate) fn with_protocol(protocol: u8) -> Self {
        Self::of(Rtnl::here().with_protocol(Protocol::new(protocol).unwrap()))
    }

    pub(crate) fn of(source: Rtnl) -> Self {
        let observer = Observer::open(&source, "test").unwrap();
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let book = LedgerPage::open(Arc::new(MemoryLedger::default()), place()).unwrap();
        let mut config = Config::default();
        config.guards.mass_delete = MassDelete::Allow;
        Bench { source, observer, writer, book, config, runtime: runtime() }
    }

    /// Leaves the ledger as a crash does after the intents of a desired state, and before any write.
    pub(crate) fn intend(&mut self, desired: &DesiredState) {
        let ledger = MemoryLedger::default();
        let edits = (0..desired.len()).map(|at| {
            let wrote = desired.object(Slot::at(at));
            let (original, stage) = (Original::Absent, Stage::Intent);
            let record = Record::new(wrote, original, stage);
            let record = serde_json::to_string(&record).unwrap();
            Edit::Put { key: desired.key(Slot::at(at)).to_string(), record }
        });
        ledger.write(&place(), &edits.collect::<Vec<_>>()).unwrap();
        self.book = LedgerPage::open(Arc::new(ledger), place()).unwrap();
    }

    fn order<'a>(&'a self, desired: &DesiredState, focus: Focus<Key>) -> PassInput<'a, Rtnl> {
        let desired = Arc::new(desired.clone());
        let ownership = &Ownership::Marked;
        PassInput { source: &self.source, desired, ownership, focus, config: &self.config }
    }

    pub(crate) fn pass(&mut self, desired: &DesiredState) -> Report<Rtnl> {
        self.pass_over(desired, Focus::All)
    }

    pub(crate) fn focused(&mut self, desired: &DesiredState, keys: &[&str]) -> Report<Rtnl> {
        let keys: BTreeSet<Key> = keys.iter().map(|key| key.parse().unwrap()).collect();
        self.pass_over(desired, Focus::Keys(keys))
    }

    fn pass_over(&mut self, desired: &DesiredState, focus: Focus<Key>) -> Report<Rtnl> {
        let Bench { source, observer, writer, book, config, runtime } = self;
        let desired = Arc::new(desired.clone());
        let ownership = &Ownership::Marked;
        let order = PassInput { source, desired, ownership, focus, config };
        runtime.block_on(pass::pass(&order, observer, writer, book)).unwrap()
    }

    /// Everything that the ledger holds.
    pub(crate) fn records(&self) -> String {
        format!("{:#?}", self.book.holdings().records)
    }

    /// What was received so far, if it is a hint: the kernel queues events before a write returns.
    pub(crate) fn hint(&mut self) -> Option<Hint<Key>> {
        let Bench { observer, runtime, .. } = self;
        let hint = async { tokio::time::timeout(Duration::ZERO, observer.hint()).await.ok() };
        runtime.block_on(hint).transpose().unwrap()
    }

    /// The keys of the hints that were received, in their order; none, if there was none.
    pub(crate) fn hinted(&mut self) -> Vec<String> {
        let mut all = BTreeSet::new();
        while let Some(hint) = self.hint() {
            match hint {
                Hint::Keys(keys) => all.extend(keys.keys().cloned()),
                Hint::Lost => return vec!["lost".to_owned()],
            }
        }
        all.iter().map(Key::to_string).collect()
    }

    /// What passes do about the hints that were received, until none is left. A look at everything may be asked for, since the
    /// kernel reports the state of links some time after they have changed.
    pub(crate) fn heal(&mut self, desired: &DesiredState) -> Vec<String> {
        let mut done = Vec::new();
        while let Some(hint) = self.hint() {
            let focus = match hint {
                Hint::Keys(keys) => Focus::Keys(keys.keys().cloned().collect()),
                Hint::Lost => Focus::All,
            };
            done.extend(explained(&self.pass_over(desired, focus)));
        }
        done
    }

    pub(crate) fn plan(&self, desired: &DesiredState) -> Plan<Rtnl> {
        let mut observer = Observer::open(&self.source, "test").unwrap();
        let order = self.order(desired, Focus::All);
        block_on(pass::plan(&order, &mut observer, self.book.holdings())).unwrap()
    }

    /// One pass converges, and the next writes nothing.
    pub(crate) fn converge(&mut self, desired: &DesiredState) -> Vec<String> {
        let report = self.pass(desired);
        assert!(report.is_converged(), "{:#?}", explained(&report));
        let done = explained(&report);
        self.assert_quiet(desired);
        done
    }

    pub(crate) fn assert_quiet(&mut self, desired: &DesiredState) {
        let report = self.pass(desired);
        assert!(report.is_converged(), "{:#?}", explained(&report));
        assert_eq!(report.plan().steps.len(), 0, "{:#?}", explained(&report));
    }
}

/// Everything that a plan or a report contains, one line each.
pub(crate) fn explained(explain: &dyn Explain) -> Vec<String> {
    entry_lines(explain, line)
}

fn line(entry: Entry) -> String {
    match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => {
            format!("{} {}", line.action.sign(), line.key)
        }
        Entry::Finding {
            key,
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
        } => {
            format!("failed {key}: {failure}")
        }
        Entry::Finding { key, finding: Finding::Pending { on } } => format!("pending {key}: {on}"),
        Entry::Finding { key, finding: Finding::Conflict { owner, .. } } => {
            format!("conflict {key}: {owner}")
        }
        Entry::Finding { key, finding: Finding::Matched { owner } } => {
            format!("matched {key}: {owner}")
        }
        Entry::Finding { key, finding: Finding::Held { why, .. } } => format!("held {key}: {why}"),
        other => format!("{other:?}"),
    }
}
