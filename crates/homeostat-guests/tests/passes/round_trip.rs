//! The law of every option with a form of its own: what was written reads back equal, once both are normal.

use std::collections::BTreeMap;

use homeostat_guests::{Kind, Wanted, normalize};
use homeostat_kit::normalize::{Broken, Field, Fields, Trust, broken};
use homeostat_pve_simulator::{Guest, Kind as Simulated, World};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::ground::{Ground, desired, options};

/// A guest of a kind, with its options as text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    kind: Kind,
    options: BTreeMap<&'static str, String>,
}

fn normal(mut sample: Sample, option: &'static str) -> Sample {
    let kind = sample.kind;
    if let Some(value) = sample.options.get_mut(option) {
        *value = normalize::normal(kind, option, value);
    }
    sample
}

fn agrees(wanted: &Sample, seen: &Sample, option: &str) -> bool {
    let Some(wanted_value) = wanted.options.get(option) else { return true };
    let seen = seen.options.get(option).map(String::as_str).unwrap_or_default();
    normalize::agrees(wanted.kind, option, wanted_value, seen)
}

macro_rules! fields {
    ($($name:literal),+) => {
        Fields::new(&[$(Field {
            name: $name,
            normalize: |sample| normal(sample, $name),
            agrees: |wanted, seen| agrees(wanted, seen, $name),
            trust: Trust::Proven,
        }),+])
    };
}

const FIELDS: Fields<Sample> = fields![
    "cores",
    "cpuunits",
    "description",
    "memory",
    "nameserver",
    "net0",
    "onboot",
    "searchdomain",
    "sockets",
    "startup",
    "swap",
    "tags"
];

fn lxc_net() -> impl Strategy<Value = String> {
    let mac =
        prop_oneof![Just(""), Just(",hwaddr=bc:24:11:00:00:01"), Just(",hwaddr=BC:24:11:AA:00:01")];
    let ip = prop_oneof![Just(""), Just(",ip=dhcp"), Just(",ip=10.0.0.2/24,gw=10.0.0.1")];
    (mac, ip, any::<bool>()).prop_map(|(mac, ip, is_last)| {
        if is_last {
            format!("bridge=vmbr0{ip}{mac},name=eth0")
        } else {
            format!("name=eth0,bridge=vmbr0{mac}{ip}")
        }
    })
}

fn qemu_net() -> impl Strategy<Value = String> {
    let model = prop_oneof![
        Just("virtio"),
        Just("virtio=bc:24:11:00:00:01"),
        Just("model=e1000"),
        Just("model=e1000-82545em"),
        Just("ne2k_isa=bc:24:11:00:00:03"),
        Just("macaddr=bc:24:11:00:00:02,model=virtio"),
    ];
    (model, any::<bool>()).prop_map(|(model, is_first)| {
        if is_first {
            format!("{model},bridge=vmbr0,firewall=1")
        } else {
            format!("firewall=1,bridge=vmbr0,{model}")
        }
    })
}

fn sample(kind: Kind) -> impl Strategy<Value = Sample> {
    let net = match kind {
        Kind::Lxc => lxc_net().boxed(),
        Kind::Qemu => qemu_net().boxed(),
    };
    let description = "[a-zA-Z0-9 &=+%üß;#\n]{1,30}".prop_filter("lost by the target", |text| {
        !["0", ""].contains(&text.trim_end_matches('\n'))
    });
    let tags = "[a-zA-Z0-9_][a-z0-9_.+-]{0,5}([,; ]{1,3}[a-zA-Z0-9_][a-z0-9_.+-]{0,5}){0,4}";
    let nameserver = "(10\\.0\\.0\\.[1-9][,; ]{1,3}){1,3}";
    let searchdomain = "[,; ]{0,2}([a-z]{1,8}(\\.[a-z]{2,3})?[,; ]{1,3}){1,3}";
    let texts = (description, nameserver, searchdomain, tags);
    (texts, net, any::<bool>(), numbers(kind)).prop_map(move |(texts, net, onboot, numbers)| {
        let (description, nameserver, searchdomain, tags) = texts;
        let mut options = BTreeMap::from([
            ("description", description),
            ("nameserver", nameserver),
            ("net0", net),
            ("onboot", if onboot { "yes" } else { "0" }.to_owned()),
            ("searchdomain", searchdomain),
            ("startup", "up=10,order=1".to_owned()),
            ("tags", tags),
        ]);
        options.extend(numbers);
        Sample { kind, options }
    })
}

/// Options that are numbers, with zeros before them now and then. Swap is a container's, sockets are a
/// machine's.
fn numbers(kind: Kind) -> impl Strategy<Value = BTreeMap<&'static str, String>> {
    let of_its_own = match kind {
        Kind::Lxc => ("swap", 0_u32..9000),
        Kind::Qemu => ("sockets", 1_u32..5),
    };
    let (name, values) = of_its_own;
    let numbers = (1_u32..300_000, 16_u32..9000, 1_u32..129, values, any::<bool>());
    numbers.prop_map(move |(units, memory, cores, value, is_padded)| {
        let zeros = if is_padded { "00" } else { "" };
        let numbers = [("cores", cores), ("cpuunits", units), ("memory", memory), (name, value)];
        numbers.map(|(name, number)| (name, format!("{zeros}{number}"))).into()
    })
}

/// Writes a sample by whole passes, and reads what the target holds.
async fn trip(sample: &Sample) -> Sample {
    let kind = if sample.kind == Kind::Lxc { Simulated::Lxc } else { Simulated::Qemu };
    let ground = Ground::new(World::default().with(101, Guest::new(kind, "pve1")));
    let texts: Vec<_> = sample.options.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let desired = desired([(101, Wanted { kind: sample.kind, ..options(&texts) })]);
    let mut process = ground.process();
    process.converge(&desired).await;
    let writes = ground.writes();
    for _ in 0..2 {
        process.pass(&desired).await;
    }
    assert_eq!(ground.writes(), writes, "three passes write once: {sample:?}");
    let mut held = ground.simulator.with(|world| world.guests[&101].config.clone());
    if let Some(tags) = held.get_mut("tags") {
        let own: Vec<_> = tags.split(';').filter(|tag| !tag.starts_with("homeostat-")).collect();
        *tags = own.join(";");
    }
    let read = |name: &&'static str| {
        let held = held.get(*name).map(String::as_str);
        (*name, normalize::seen(sample.kind, name, held))
    };
    Sample { kind: sample.kind, options: sample.options.keys().map(read).collect() }
}

#[tokio::test]
async fn every_option_reads_back_as_it_was_written() {
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    let mut runner = TestRunner::deterministic();
    for kind in [Kind::Lxc, Kind::Qemu] {
        for _ in 0..if is_soak { 500 } else { 12 } {
            let sample = sample(kind).new_tree(&mut runner).unwrap().current();
            let found = broken(&FIELDS, sample, async |sample| Ok(trip(&sample).await)).await;
            assert_eq!(found, Ok(Vec::<Broken<Sample>>::new()));
        }
    }
}
