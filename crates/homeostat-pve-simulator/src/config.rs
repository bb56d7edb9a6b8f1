//! The configuration of a guest: its digest, its pending options, and changes to it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest as sha};
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::call::Call;
use crate::guest::{Guest, Kind};
use crate::parameters;
use crate::quirks;

/// Parameters of a change that are not options.
const NO_OPTIONS: [&str; 6] =
    ["background_delay", "delete", "digest", "revert", "skiplock", "force"];

/// Options that change at once while the guest runs; the others wait for a restart.
const LIVE_LXC: [&str; 11] = [
    "description",
    "tags",
    "onboot",
    "startup",
    "protection",
    "memory",
    "swap",
    "cores",
    "cpulimit",
    "cpuunits",
    "net",
];
const LIVE_QEMU: [&str; 7] =
    ["description", "tags", "onboot", "startup", "protection", "name", "cpuunits"];

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
    sum.as_ref().iter().fold(String::new(), |mut all, byte| {
        let _ = write!(all, "{byte:02x}");
        all
    })
}

/// The configuration with its pending options, unless the request asks for the current one.
pub(crate) fn read(guest: &Guest, call: &Call) -> Answer {
    let mut options = guest.config.clone();
    if call.parameter("current") != Some("1") {
        for (name, value) in &guest.pending {
            match value {
                Some(value) => options.insert(name.clone(), value.clone()),
                None => options.remove(name),
            };
        }
    }
    let mut answer: Map<String, Value> = options
        .iter()
        .map(|(name, value)| (name.clone(), typed(guest.kind, name, value)))
        .collect();
    answer.insert("digest".to_owned(), digest(guest).into());
    if let Some(lock) = &guest.lock {
        answer.insert("lock".to_owned(), lock.clone().into());
    }
    Answer::data(answer)
}

/// Some options are numbers in the answer; the memory of a virtual machine is a string.
fn typed(kind: Kind, name: &str, value: &str) -> Value {
    let is_number =
        ["cores", "swap", "cpuunits", "onboot", "protection", "unprivileged", "sockets"]
            .contains(&name)
            || (name == "memory" && kind == Kind::Lxc);
    let number = value.parse::<u64>().ok().filter(|_| is_number);
    number.map_or_else(|| Value::from(value), Value::from)
}

/// The options with both their current and their pending values.
pub(crate) fn pending(guest: &Guest) -> Answer {
    let names = guest.config.keys().chain(guest.pending.keys());
    let names: std::collections::BTreeSet<_> = names.collect();
    let rows = names.into_iter().map(|name| {
        let mut row = json!({ "key": name });
        if let Some(value) = guest.config.get(name) {
            row["value"] = value.as_str().into();
        }
        match guest.pending.get(name) {
            Some(Some(value)) => row["pending"] = value.as_str().into(),
            Some(None) => row["delete"] = 1.into(),
            None => {}
        }
        row
    });
    Answer::data(rows.collect::<Vec<_>>())
}

/// Changes the configuration. On an error nothing is changed.
pub(crate) fn change(guest: &mut Guest, call: &Call) -> Result<(), Answer> {
    let (sets, deletes) = wanted(guest, call)?;
    if !guest.is_allowed("VM.Config.Options") {
        return Err(Answer::forbidden(0, "VM.Config.Options"));
    }
    if let Some(lock) = &guest.lock {
        return Err(Answer::died(format!("{} is locked ({lock})", guest.kind.called())));
    }
    if call.parameter("digest").is_some_and(|digest| digest != self::digest(guest)) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(Answer::died(text));
    }
    for (name, value) in sets {
        set(guest, &name, Some(value).filter(|value| !value.is_empty()));
    }
    for name in deletes {
        set(guest, &name, None);
    }
    Ok(())
}

type Wanted = (Vec<(String, String)>, Vec<String>);

fn wanted(guest: &Guest, call: &Call) -> Result<Wanted, Answer> {
    let mut sets = Vec::new();
    for (name, value) in &call.parameters {
        if NO_OPTIONS.contains(&name.as_str()) {
            continue;
        }
        parameters::check_option(guest.kind, name)?;
        sets.push((name.clone(), quirks::stored(guest, name, value)?));
    }
    let deletes = call.parameter("delete").unwrap_or_default();
    let deletes = deletes.split([',', ';', ' ']).filter(|name| !name.is_empty());
    let deletes: Vec<String> = deletes.map(str::to_owned).collect();
    for name in &deletes {
        parameters::check_option(guest.kind, name)?;
        if sets.iter().any(|(set, _)| set == name) {
            return Err(Answer::parameter(name, "duplicate parameter"));
        }
    }
    Ok((sets, deletes))
}

fn set(guest: &mut Guest, name: &str, value: Option<String>) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_live = match guest.kind {
        Kind::Lxc => LIVE_LXC.contains(&stem),
        Kind::Qemu => LIVE_QEMU.contains(&stem),
    };
    if guest.running && !is_live {
        if guest.config.get(name) == value.as_ref() {
            guest.pending.remove(name);
        } else {
            guest.pending.insert(name.to_owned(), value);
        }
        return;
    }
    guest.pending.remove(name);
    match value {
        Some(value) => guest.config.insert(name.to_owned(), value),
        None => guest.config.remove(name),
    };
}

/// Applies the pending options, as a start does.
pub(crate) fn apply_pending(guest: &mut Guest) {
    for (name, value) in std::mem::take(&mut guest.pending) {
        match value {
            Some(value) => guest.config.insert(name, value),
            None => guest.config.remove(&name),
        };
    }
}
