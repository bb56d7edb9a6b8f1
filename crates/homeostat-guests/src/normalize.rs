//! The normal form of options. The target rewrites them, so declared and observed values are both brought to normal
//! form before they are compared. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Kind;

/// The normal form of an option's text. Empty means that it is not set.
#[must_use]
pub fn normal(kind: Kind, option: &str, text: &str) -> String {
    match (stem(option), kind) {
        ("description", _) => description(text),
        ("tags", _) => join(tags(text)),
        ("nameserver" | "searchdomain", _) => {
            let words = text.split([',', ';', ' ', '\t']).filter(|word| !word.is_empty());
            words.collect::<Vec<_>>().join(" ")
        }
        ("cores" | "swap" | "sockets" | "tty" | "vcpus" | "balloon" | "shares", _) => number(text),
        ("cpuunits", _) => cpu_units(text),
        ("memory", _) => number(text.strip_prefix("current=").unwrap_or(text)),
        ("numa", _) if option != "numa" => pairs_in_order(text),
        (
            "onboot" | "protection" | "unprivileged" | "console" | "debug" | "acpi" | "kvm"
            | "tablet" | "numa" | "autostart" | "freeze" | "localtime",
            _,
        ) => boolean(text),
        ("net", _) => print(&interface(kind, text)),
        (
            "agent" | "amd-sev" | "audio" | "boot" | "cicustom" | "cpu" | "dev" | "efidisk"
            | "features" | "hostpci" | "ide" | "ipconfig" | "ivshmem" | "mp" | "rng" | "rootfs"
            | "sata" | "scsi" | "smbios" | "spice_enhancements" | "startup" | "tpmstate" | "usb"
            | "vga" | "virtio" | "virtiofs" | "watchdog",
            _,
        ) => pairs_in_order(text),
        // In other texts the order may mean something: arguments of a program, a password.
        _ => text.trim().to_owned(),
    }
}

/// An option without the number that some of them end in.
fn stem(option: &str) -> &str {
    option.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// The normal form of what is seen; an option that is not set has its default.
#[must_use]
pub fn seen(kind: Kind, option: &str, text: Option<&str>) -> String {
    match text {
        Some(text) => normal(kind, option, text),
        None => default(kind, option).unwrap_or_default().to_owned(),
    }
}

/// Whether a seen value is as declared, both in normal form. An interface for which no address is declared may have any:
/// the target generates one.
#[must_use]
pub fn agrees(kind: Kind, option: &str, wanted: &str, seen: &str) -> bool {
    if wanted == seen {
        return true;
    }
    // An option that is declared away has its default.
    if wanted.is_empty() {
        return default(kind, option) == Some(seen);
    }
    let Some(address) = address_of(kind, option) else { return false };
    let (wanted, mut seen) = (parse(wanted), parse(seen));
    if !wanted.contains_key(address) {
        seen.remove(address);
    }
    wanted == seen
}

/// Whether the target shows stars in place of a value.
pub(crate) fn is_hidden(seen: &str) -> bool {
    seen.len() > 3 && seen.bytes().all(|byte| byte == b'*')
}

/// What is sent so that an option becomes as declared: an interface keeps the address that it has.
#[must_use]
pub fn written(kind: Kind, option: &str, wanted: &str, seen: &str) -> String {
    let Some(address) = address_of(kind, option) else { return wanted.to_owned() };
    let (mut wanted, seen) = (parse(wanted), parse(seen));
    if let (false, Some(known)) = (wanted.contains_key(address), seen.get(address)) {
        wanted.insert(address.to_owned(), known.clone());
    }
    print(&wanted)
}

#[must_use]
pub fn tags(text: &str) -> BTreeSet<String> {
    let tags = text.split([',', ';', ' ', '\n', '\t']).filter(|tag| !tag.is_empty());
    tags.map(str::to_lowercase).collect()
}

/// Tags as they are written.
pub(crate) fn join(tags: BTreeSet<String>) -> String {
    tags.into_iter().collect::<Vec<_>>().join(";")
}

/// Whether the target would take a text as a tag.
#[must_use]
pub fn is_tag(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(is_first) && text.chars().all(|c| is_first(c) || ['-', '+', '.'].contains(&c))
}

// Quirk `description-ends-a-line` (Proxmox VE 8): it is kept as comment lines of the file, so it reads back
// with one line end, however many it was given; and what counts as false in Perl, "0", is not kept.
fn description(text: &str) -> String {
    let text = text.trim_end_matches('\n');
    if text == "0" { String::new() } else { text.to_owned() }
}

fn number(text: &str) -> String {
    let text = text.trim();
    text.parse::<u64>().map_or_else(|_| text.to_owned(), |number| number.to_string())
}

// Quirk `cpuunits-clamped` (Proxmox VE 8): the share is brought into the bounds of version 2 of the cgroups.
fn cpu_units(text: &str) -> String {
    let text = text.trim();
    text.parse::<u64>().map_or_else(|_| text.to_owned(), |units| units.clamp(1, 10_000).to_string())
}

fn boolean(text: &str) -> String {
    match text.trim() {
        "yes" | "true" | "on" | "1" => "1".to_owned(),
        "no" | "false" | "off" | "0" => "0".to_owned(),
        other => other.to_owned(),
    }
}

fn default(kind: Kind, option: &str) -> Option<&'static str> {
    match (option, kind) {
        ("memory", _) | ("swap", Kind::Lxc) => Some("512"),
        ("onboot" | "protection" | "unprivileged" | "debug" | "numa" | "autostart", _) => Some("0"),
        ("console" | "acpi" | "kvm" | "tablet", _) | ("cores" | "sockets", Kind::Qemu) => Some("1"),
        ("tty", Kind::Lxc) => Some("2"),
        _ => None,
    }
}

/// The field of an interface that has its address; none for other options.
fn address_of(kind: Kind, option: &str) -> Option<&'static str> {
    match kind {
        _ if stem(option) != "net" => None,
        Kind::Lxc => Some("hwaddr"),
        Kind::Qemu => Some("macaddr"),
    }
}

fn parse(text: &str) -> BTreeMap<String, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn print(pairs: &BTreeMap<String, String>) -> String {
    let parts = pairs.iter().map(|(key, value)| format!("{key}={value}"));
    parts.collect::<Vec<_>>().join(",")
}

/// Every model that there is: one that we took for another key would never be as declared.
const MODELS: &str = "e1000 e1000-82540em e1000-82544gc e1000-82545em e1000e i82551 i82557b i82559er \
                      ne2k_isa ne2k_pci pcnet rtl8139 virtio vmxnet3";

// Quirk `net-printed-anew` (Proxmox VE 8): an interface reads back in an order of the target's own, with an
// address, and with the only type that there is.
fn interface(kind: Kind, text: &str) -> BTreeMap<String, String> {
    let mut net = parse(text);
    net.retain(|key, value| (kind, key.as_str(), value.as_str()) != (Kind::Lxc, "type", "veth"));
    // The model of a machine's interface can stand alone, with its address, or by name.
    let is_short = |key: &String, _: &mut String| {
        kind == Kind::Qemu && MODELS.split(' ').any(|model| model == key)
    };
    if let Some((model, address)) = net.extract_if(.., is_short).next() {
        net.insert("model".to_owned(), model);
        if !address.is_empty() {
            net.insert("macaddr".to_owned(), address);
        }
    }
    if let Some(address) = address_of(kind, "net").and_then(|field| net.get_mut(field)) {
        address.make_ascii_uppercase();
    }
    net
}

/// Pairs, perhaps after one word: their order means nothing.
fn pairs_in_order(text: &str) -> String {
    let text = text.trim();
    let mut parts: Vec<_> = text.split(',').map(str::trim).collect();
    let pairs = usize::from(parts.first().is_some_and(|first| !first.contains('=')));
    match parts.get_mut(pairs..) {
        Some(rest) if rest.iter().all(|part| part.contains('=')) => rest.sort_unstable(),
        _ => return text.to_owned(),
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: Kind, option: &str, text: &str, expected: &str) {
        let found = normal(kind, option, text);
        assert_eq!(found, expected, "{option} {text:?}");
        assert_eq!(normal(kind, option, &found), found, "a normal form stays as it is");
    }

    #[test]
    fn normal_forms() {
        let lxc = |option, text, expected| check(Kind::Lxc, option, text, expected);
        lxc("description", "web\n\n", "web");
        lxc("description", "two\nlines\n", "two\nlines");
        lxc("description", "\n  web", "\n  web");
        lxc("description", "0", "");
        lxc("tags", "Web, blue;web  a", "a;blue;web");
        lxc("nameserver", "10.0.0.1,  10.0.0.2", "10.0.0.1 10.0.0.2");
        lxc("cpuunits", "50000", "10000");
        lxc("cpuunits", "0", "1");
        lxc("memory", "0512", "512");
        lxc("onboot", "yes", "1");
        lxc(
            "net0",
            "name=eth0,hwaddr=bc:24:11:00:00:01,bridge=vmbr0,type=veth",
            "bridge=vmbr0,hwaddr=BC:24:11:00:00:01,name=eth0",
        );
        lxc("startup", "up=10,order=1", "order=1,up=10");
        lxc("rootfs", "local:disk,size=4G,acl=1", "local:disk,acl=1,size=4G");
        lxc("hostname", " web ", "web");
        let qemu = |option, text, expected| check(Kind::Qemu, option, text, expected);
        qemu("memory", "current=2048", "2048");
        qemu("net0", "virtio,bridge=vmbr0", "bridge=vmbr0,model=virtio");
        qemu(
            "net0",
            "virtio=bc:24:11:00:00:01,bridge=vmbr0",
            "bridge=vmbr0,macaddr=BC:24:11:00:00:01,model=virtio",
        );
        qemu("boot", "order=scsi0;net0", "order=scsi0;net0");
        qemu("numa0", "memory=512,cpus=0-1", "cpus=0-1,memory=512");
        qemu("scsi0", "local:disk,size=4G,cache=none", "local:disk,cache=none,size=4G");
    }

    #[test]
    fn a_text_is_not_taken_apart_although_it_looks_like_a_list_of_pairs() {
        let arguments = "-smbios type=1,serial=2 -smbios type=2,asset=1";
        check(Kind::Qemu, "args", arguments, arguments);
        check(Kind::Qemu, "cipassword", "x,z=1,a=2", "x,z=1,a=2");
    }

    #[test]
    fn an_address_that_nobody_declared_is_kept_and_is_no_difference() {
        let (wanted, seen) =
            ("bridge=vmbr1,name=eth0", "bridge=vmbr0,hwaddr=BC:24:11:00:00:01,name=eth0");
        assert!(!agrees(Kind::Lxc, "net0", wanted, seen));
        let sent = written(Kind::Lxc, "net0", wanted, seen);
        assert_eq!(sent, "bridge=vmbr1,hwaddr=BC:24:11:00:00:01,name=eth0");
        assert!(agrees(Kind::Lxc, "net0", wanted, &sent));
        let other = "bridge=vmbr1,hwaddr=02:00:00:00:00:01,name=eth0";
        assert!(!agrees(Kind::Lxc, "net0", other, &sent), "a declared address counts");
    }

    #[test]
    fn an_option_that_is_not_set_has_its_default() {
        assert_eq!(seen(Kind::Lxc, "memory", None), "512");
        assert_eq!(seen(Kind::Lxc, "onboot", None), "0");
        assert_eq!(seen(Kind::Lxc, "nameserver", None), "");
        assert!(agrees(Kind::Lxc, "onboot", "", "0"), "declared away, and by default off");
        assert!(!agrees(Kind::Lxc, "nameserver", "", "10.0.0.1"));
    }
}
