//! The configuration of a guest: its digest, its pending options, and changes to it.

use std::collections::{BTreeMap, BTreeSet};

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest as sha};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::Call;
use crate::guest::{Guest, Kind};
use crate::parameters;
use crate::quirks;

/// Parameters of a change that are not options.
const NO_OPTIONS: [&str; 6] =
    ["background_delay", "delete", "digest", "revert", "skiplock", "force"];

/// The configuration of a new guest.
pub(crate) fn fresh(kind: Kind) -> BTreeMap<String, String> {
    let options: &[(&str, &str)] = match kind {
        Kind::Lxc => &[
            ("arch", "amd64"),
            ("hostname", "guest"),
            ("memory", "512"),
            ("ostype", "debian"),
            ("rootfs", "local-lvm:vm-disk-0,size=4G"),
            ("swap", "512"),
        ],
        Kind::Qemu => &[
            ("boot", "order=scsi0"),
            ("cores", "1"),
            ("memory", "512"),
            ("name", "guest"),
            ("scsi0", "local-lvm:vm-disk-0,size=4G"),
        ],
    };
    options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The digest of the file, pending section included.
pub(crate) fn digest(guest: &Guest) -> String {
    let text = format!("{:?}{:?}{:?}", guest.config, guest.pending, guest.lock);
    let sum = sha(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// The configuration with its pending options, unless the request asks for the current one.
pub(crate) fn read(guest: &Guest, call: &Call) -> Value {
    let digest = digest(guest);
    let mut guest = guest.clone();
    if call.parameter("current") != Some("1") {
        apply_pending(&mut guest);
    }
    let Guest { kind, config, lock, .. } = &guest;
    let options = config.iter().map(|(name, value)| (name.as_str(), typed(*kind, name, value)));
    let lock = lock.iter().map(|lock| ("lock", lock.as_str().into()));
    options.chain([("digest", digest.into())]).chain(lock).collect()
}

/// Some options are numbers in the answer; the memory of a virtual machine is a string.
fn typed(kind: Kind, name: &str, value: &str) -> Value {
    let is_number =
        ["cores", "swap", "cpuunits", "onboot", "protection", "unprivileged", "sockets"]
            .contains(&name)
            || (name == "memory" && kind == Kind::Lxc);
    let number = value.parse::<u64>().ok().filter(|_| is_number);
    number.map_or_else(|| Value::from(shown(name, value)), Value::from)
}

/// A password is never shown.
fn shown<'a>(name: &str, value: &'a str) -> &'a str {
    if name == "cipassword" { "**********" } else { value }
}

/// The options with both their current and their pending values.
pub(crate) fn pending(guest: &Guest) -> Value {
    let names: BTreeSet<_> = guest.config.keys().chain(guest.pending.keys()).collect();
    let rows = names.into_iter().map(|name| {
        let mut row = json!({ "key": name });
        if let Some(value) = guest.config.get(name) {
            row["value"] = shown(name, value).into();
        }
        match guest.pending.get(name) {
            Some(Some(value)) => row["pending"] = shown(name, value).into(),
            Some(None) => row["delete"] = 1.into(),
            None => {}
        }
        row
    });
    rows.collect()
}

/// Changes the configuration. On an error nothing is changed.
pub(crate) fn change(guest: &mut Guest, vmid: u32, call: &Call) -> Result<(), Answer> {
    let changes = changes(guest, call)?;
    if !guest.is_allowed("VM.Config.Options") {
        return Err(Answer::forbidden(vmid, "VM.Config.Options"));
    }
    if let Some(lock) = &guest.lock {
        return Err(Answer::died(format!("{} is locked ({lock})", guest.kind.called())));
    }
    if call.parameter("digest").is_some_and(|digest| digest != self::digest(guest)) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(Answer::died(text));
    }
    for (name, value) in changes {
        set(guest, name, value);
    }
    Ok(())
}

/// The new value of each option that a request sets or deletes.
fn changes(guest: &Guest, call: &Call) -> Result<Vec<(String, Option<String>)>, Answer> {
    let mut changes = Vec::new();
    let options = call.parameters.iter().filter(|(name, _)| !NO_OPTIONS.contains(&name.as_str()));
    for (name, value) in options {
        parameters::check_option(guest.kind, name)?;
        let stored = quirks::stored(guest, name, value)?;
        changes.push((name.clone(), Some(stored).filter(|value| !value.is_empty())));
    }
    let deletes = call.parameter("delete").unwrap_or_default();
    for name in deletes.split([',', ';', ' ']).filter(|name| !name.is_empty()) {
        parameters::check_option(guest.kind, name)?;
        if call.parameters.contains_key(name) {
            return Err(Answer::parameter(name, "duplicate parameter"));
        }
        changes.push((name.to_owned(), None));
    }
    Ok(changes)
}

/// Sets an option, at once or with the next start.
fn set(guest: &mut Guest, name: String, value: Option<String>) {
    guest.pending.remove(&name);
    if !guest.running || is_live(guest.kind, &name) {
        put(&mut guest.config, name, value);
    } else if guest.config.get(&name) != value.as_ref() {
        guest.pending.insert(name, value);
    }
}

/// Whether an option changes at once while the guest runs; the others wait for a restart.
fn is_live(kind: Kind, name: &str) -> bool {
    match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "description" | "tags" | "onboot" | "startup" | "protection" | "cpuunits" => true,
        "memory" | "swap" | "cores" | "cpulimit" | "net" => kind == Kind::Lxc,
        "name" => kind == Kind::Qemu,
        _ => false,
    }
}

/// Applies the pending options, as a start does.
pub(crate) fn apply_pending(guest: &mut Guest) {
    for (name, value) in std::mem::take(&mut guest.pending) {
        put(&mut guest.config, name, value);
    }
}

fn put(config: &mut BTreeMap<String, String>, name: String, value: Option<String>) {
    match value {
        Some(value) => config.insert(name, value),
        None => config.remove(&name),
    };
}
