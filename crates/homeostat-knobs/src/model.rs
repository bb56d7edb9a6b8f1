//! The value of a knob, the desired state of many, and the checks that make one.

use std::collections::BTreeSet;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Retry, Slot};
use serde::{Deserialize, Serialize};

use crate::key::{Key, KeyError};

use crate::normalize::{Form, lines_are_complete, lines_restoring};
use crate::sysfs;

/// What a knob's file holds, in normal form. Empty means that it was never set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Value(String);

impl Value {
    /// The normal form of a text, as the knob's file understands it.
    #[must_use]
    pub fn of(key: &Key, text: &str) -> Self {
        Value(Form::of(key).normalize(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the knob holds nothing.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `seen` is as declared here; what is not declared agrees with anything.
    #[must_use]
    pub fn agrees(&self, key: &Key, seen: &Value) -> bool {
        Form::of(key).agrees(&self.0, &seen.0)
    }

    /// The value to write so that this original is restored over `wrote`.
    pub(crate) fn restoring(&self, key: &Key, wrote: &Value) -> Value {
        match Form::of(key) {
            Form::Lines => Value(lines_restoring(&self.0, &wrote.0)),
            _ => self.clone(),
        }
    }

    /// What goes into the file with one write each: the kernel takes keyed lines one by one.
    pub(crate) fn writes(&self, key: &Key) -> Vec<&str> {
        match Form::of(key) {
            Form::Lines => self.0.lines().collect(),
            _ => vec![&self.0],
        }
    }
}

/// What one knob shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The value, in normal form.
    pub value: Value,
    /// Whether the knob may be taken over from another owner.
    pub adopt: bool,
}

/// The knobs that shall hold something, sorted by key.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    knobs: Vec<(Key, Wanted)>,
    /// Links that may be absent.
    optional: BTreeSet<String>,
}

impl DesiredState {
    /// Starts a desired state; see [`Builder`].
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// In key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Wanted)> {
        self.knobs.iter().map(|(key, wanted)| (key, wanted))
    }

    /// Whether a link may be absent.
    pub(crate) fn is_optional(&self, link: &str) -> bool {
        self.optional.contains(link)
    }

    /// Without a copy.
    pub(crate) fn at(&self, slot: Slot) -> (&Key, &Wanted) {
        let (key, wanted) = &self.knobs[slot.index()];
        (key, wanted)
    }

    /// What is declared for a key, without a copy.
    pub(crate) fn wanted(&self, key: &Key) -> Option<&Wanted> {
        self.slot(key, None).map(|slot| self.at(slot).1)
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = Value;

    fn len(&self) -> usize {
        self.knobs.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.knobs, near, |desired| desired.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.at(slot).0.clone()
    }

    fn object(&self, slot: Slot) -> Value {
        self.at(slot).1.value.clone()
    }

    fn compare(&self, slot: Slot, seen: &Value) -> Agreement {
        let (key, wanted) = self.at(slot);
        Agreement::when(wanted.value.agrees(key, seen))
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).1.adopt
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.at(slot).1 == other.at(there).1
    }
}

/// Collects and checks knobs.
///
/// ```
/// use homeostat_knobs::DesiredState;
/// let desired = DesiredState::builder()
///     .sysctl("net.ipv4.ip_forward", "1")?
///     .link_sysctl("eth0", "ipv4/rp_filter", "1")?
///     .cgroup("machine/web", "memory.max", "256M")?
///     .build()?;
/// assert_eq!(desired.iter().count(), 3);
/// # Ok::<(), homeostat_knobs::DesiredError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    knobs: Vec<(Key, Wanted)>,
    optional: BTreeSet<String>,
}

/// Why something cannot be declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DesiredError {
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Perhaps in two spellings.
    #[error("`{key}` is declared twice, as `{first}` and as `{second}`")]
    Twice { key: Key, first: String, second: String },
    /// There is no way to write nothing.
    #[error("the value of `{key}` is empty")]
    Empty { key: Key },
    /// A byte that would end the value early.
    #[error("the value {value:?} of `{key}` has a NUL byte or a newline in it")]
    Control { key: Key, value: String },
    /// A file that does something when it is written, and holds no setting.
    #[error("`{key}` is a command, not a setting")]
    Command { key: Key },
    /// A file that links have as an option.
    #[error("`{key}` is an option of a link, not a knob")]
    OfLinks { key: Key, help: &'static str },
    /// Not a number of bytes.
    #[error("the value `{value}` of `{key}` is not a size")]
    Size { key: Key, value: String },
    /// A line without a setting.
    #[error("the value `{value}` of `{key}` has a line without a setting")]
    Line { key: Key, value: String },
}

impl DesiredError {
    /// The way out, where there is one.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            DesiredError::Key(error) => error.help(),
            DesiredError::Twice { .. } => Some("keep one of them"),
            DesiredError::Empty { .. } => Some("leave the knob out to leave its value alone"),
            DesiredError::Control { .. } => Some("the value is one line, without its end"),
            DesiredError::OfLinks { help, .. } => Some(help),
            DesiredError::Command { .. } => Some("run it from a script or a timer"),
            DesiredError::Size { .. } => Some("write bytes, or `256M`, `1G`, or `max`"),
            DesiredError::Line { .. } => Some("write it as `8:0 rbps=1M wiops=120`"),
        }
    }

    /// It does not become right by itself.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl Builder {
    /// Declares a kernel parameter, in either spelling.
    pub fn sysctl(self, key: &str, value: &str) -> Result<Self, DesiredError> {
        self.knob(Key::sysctl(key)?, value)
    }

    /// Declares a parameter of one link, such as `ipv4/rp_filter`.
    pub fn link_sysctl(self, link: &str, key: &str, value: &str) -> Result<Self, DesiredError> {
        self.knob(Key::link_sysctl(link, key)?, value)
    }

    /// Declares a limit of a control group.
    pub fn cgroup(self, group: &str, file: &str, value: &str) -> Result<Self, DesiredError> {
        self.knob(Key::cgroup(group, file)?, value)
    }

    /// Declares a file of sysfs, by its path below `/sys`.
    pub fn sysfs(self, path: &str, value: &str) -> Result<Self, DesiredError> {
        self.knob(Key::sysfs(path)?, value)
    }

    /// Declares any knob.
    pub fn knob(mut self, key: Key, value: &str) -> Result<Self, DesiredError> {
        let value = check(&key, value)?;
        self.knobs.push((key, Wanted { value, adopt: false }));
        Ok(self)
    }

    /// Says that a link may be absent: what waits for it counts as converged.
    #[must_use]
    pub fn optional_link(mut self, link: &str) -> Self {
        self.optional.insert(link.to_owned());
        self
    }

    /// Allows the last knob to be taken over from another owner.
    #[must_use]
    pub fn adopting(mut self) -> Self {
        if let Some((_, wanted)) = self.knobs.last_mut() {
            wanted.adopt = true;
        }
        self
    }

    /// Refuses a knob that was declared twice.
    pub fn build(mut self) -> Result<DesiredState, DesiredError> {
        self.knobs.sort_by(|a, b| a.0.cmp(&b.0));
        let twice = self.knobs.array_windows().find(|[a, b]| a.0 == b.0);
        if let Some([(key, first), (_, second)]) = twice {
            let [first, second] = [first, second].map(|wanted| wanted.value.as_str().to_owned());
            return Err(DesiredError::Twice { key: key.clone(), first, second });
        }
        Ok(DesiredState { knobs: self.knobs, optional: self.optional })
    }
}

fn check(key: &Key, text: &str) -> Result<Value, DesiredError> {
    let form = Form::of(key);
    // A line that was read from a file has a newline at its end; inside, one would end the value.
    let body = text.trim_end_matches('\n');
    let has_control = body.contains('\0') || body.contains(['\n', '\r']) && form != Form::Lines;
    let normal = Value::of(key, body);
    let is_size = normal.0 == "max" || normal.0.bytes().all(|byte| byte.is_ascii_digit());
    if let Key::Sysfs(path) = key
        && let Some(help) = sysfs::kept_by_links(path)
    {
        return Err(DesiredError::OfLinks { key: key.clone(), help });
    }
    let (key, value) = (key.clone(), text.to_owned());
    match form {
        _ if is_command(&key) => Err(DesiredError::Command { key }),
        _ if has_control => Err(DesiredError::Control { key, value }),
        _ if normal.is_unset() => Err(DesiredError::Empty { key }),
        Form::Size { .. } if !is_size => Err(DesiredError::Size { key, value }),
        Form::Lines if !lines_are_complete(&normal.0) => Err(DesiredError::Line { key, value }),
        _ => Ok(normal),
    }
}

/// Whether writing the file does something instead of setting something.
pub(crate) fn is_command(key: &Key) -> bool {
    match key {
        Key::Sysctl(path) => {
            matches!(path.as_str(), "vm/drop_caches" | "vm/compact_memory" | "vm/stat_refresh")
                || path.name() == "flush"
        }
        Key::Sysfs(path) => sysfs::is_command(path),
        Key::Cgroup(file) => match file.file().rsplit_once('.') {
            // `cgroup.pressure` is a switch; the others arm triggers. A peak is reset by a write.
            Some(("cgroup", "pressure")) => false,
            Some(
                ("cgroup", "kill" | "procs" | "threads" | "subtree_control")
                | ("memory", "reclaim")
                | (_, "pressure" | "peak"),
            ) => true,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use homeostat_core::{Agreement, Desired as _, Slot};

    use super::*;

    fn refused(key: &str, value: &str) -> DesiredError {
        DesiredState::builder().sysctl(key, value).unwrap_err()
    }

    fn limit(file: &str, value: &str) -> Result<String, DesiredError> {
        let desired = DesiredState::builder().cgroup("machine/web", file, value)?.build()?;
        Ok(desired.object(Slot(0)).as_str().to_owned())
    }

    #[test]
    fn a_desired_state_is_sorted_normalized_and_found_by_key() {
        let desired = DesiredState::builder()
            .cgroup("machine/web", "memory.max", "256M")
            .and_then(|desired| desired.sysctl("net.ipv4.tcp_rmem", "4096\t0x10  010\n"))
            .and_then(|desired| desired.adopting().sysctl("net.ipv4.ip_forward", "0x1"))
            .and_then(Builder::build)
            .unwrap();
        let shown: Vec<_> = desired
            .iter()
            .map(|(key, wanted)| format!("{key} = {}", wanted.value.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                "sysctl net.ipv4.ip_forward = 1",
                "sysctl net.ipv4.tcp_rmem = 4096 16 8",
                "cgroup machine/web memory.max = 268435456",
            ]
        );
        for index in 0..desired.len() {
            let slot = Slot::at(index);
            for near in [None, Some(Slot(0)), Some(Slot(9))] {
                assert_eq!(desired.slot(&desired.key(slot), near), Some(slot));
            }
            assert_eq!(desired.compare(slot, &desired.object(slot)), Agreement::Agrees);
            assert_eq!(desired.may_adopt(slot), index == 1);
        }
    }

    #[test]
    fn one_knob_in_two_spellings_is_declared_twice() {
        let error = DesiredState::builder()
            .sysctl("net.ipv4.conf.a/b.forwarding", "1")
            .and_then(|desired| desired.link_sysctl("a.b", "ipv4/forwarding", "0"))
            .and_then(Builder::build)
            .unwrap_err();
        let text = "`sysctl net/ipv4/conf/a.b/forwarding` is declared twice, as `1` and as `0`";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn values_that_cannot_be_written_are_refused() {
        let key = "net.ipv4.ip_forward";
        for value in ["1\0", "1\n2", "1\r2", "\n1"] {
            assert!(matches!(refused(key, value), DesiredError::Control { .. }), "{value:?}");
        }
        for value in ["", " ", "\n"] {
            assert!(matches!(refused(key, value), DesiredError::Empty { .. }), "{value:?}");
        }
        assert!(DesiredState::builder().sysctl(key, "1\n").is_ok());
    }

    #[test]
    fn commands_are_no_settings() {
        for key in
            ["net.ipv4.route.flush", "net.ipv6.route.flush", "vm.drop_caches", "vm.compact_memory"]
        {
            assert!(matches!(refused(key, "1"), DesiredError::Command { .. }), "{key}");
        }
        for file in [
            "cgroup.kill",
            "cgroup.procs",
            "cgroup.threads",
            "cgroup.subtree_control",
            "memory.reclaim",
            "memory.peak",
            "cpu.pressure",
        ] {
            assert!(matches!(limit(file, "1"), Err(DesiredError::Command { .. })), "{file}");
        }
        assert_eq!(limit("cgroup.pressure", "0").as_deref(), Ok("0"));
        let sysfs = |path| DesiredState::builder().sysfs(path, "1").map(|_| ()).unwrap_err();
        assert!(matches!(sysfs("power/state"), DesiredError::Command { .. }));
        assert!(matches!(sysfs("class/net/eth0/mtu"), DesiredError::OfLinks { .. }));
    }

    #[test]
    fn limits_are_brought_into_the_kernels_words() {
        for (file, value, expected) in [
            ("memory.max", "256M", "268435456"),
            ("memory.high", "4097", "4096"),
            ("memory.max", "max", "max"),
            ("cpu.max", "50000", "50000"),
            ("cpu.max", "max  100000", "max 100000"),
            ("cpuset.cpus", "0,1,3", "0-1,3"),
            ("io.max", "8:16 rbps=1M\n8:0 wbps=max", "8:0 wbps=max\n8:16 rbps=1048576"),
            ("io.weight", "100", "default 100"),
            ("pids.max", "0x10", "16"),
        ] {
            assert_eq!(limit(file, value).as_deref(), Ok(expected), "{file} {value}");
        }
        assert!(matches!(limit("memory.max", "256MB"), Err(DesiredError::Size { .. })));
        assert!(matches!(limit("io.max", "8:0"), Err(DesiredError::Line { .. })));
        assert!(matches!(limit("pids.max", "1\n2"), Err(DesiredError::Control { .. })));
    }

    #[test]
    fn every_refusal_says_the_way_out() {
        for error in [refused("net", "1"), refused("vm.drop_caches", "1"), refused("a.b", "")] {
            assert!(error.help().is_some(), "{error}");
            assert_eq!(error.retry(), Retry::Never);
        }
    }
}
