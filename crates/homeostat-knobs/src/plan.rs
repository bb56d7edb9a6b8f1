//! Turns changes into writes, in the order that the kernel's couplings ask for, and explains each. Pure.

use std::collections::BTreeSet;

use homeostat_core::{
    Action, Change, ChangeList, Desired as _, Draft, Failure, Finding, Line, Owner, Reason, Retry,
    Reversibility, Slot, Taken, Taking, WaitsOn,
};

use crate::absence::Absence;
use crate::coupled::Coupled;
use crate::coupling::{fights, is_general, phase, rewrites};
use crate::gate::lets_through;
use crate::ipv6_off;
use crate::key::Key;
use crate::model::{DesiredState, Value};
use crate::normalize::Form;
use crate::observe::Moment;
use crate::source::Knobs;

/// Turns changes into steps, and says what cannot be one.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Key, Value>,
) -> Draft<Knobs> {
    let fights = fights(desired);
    let fighting: BTreeSet<Key> = fights.iter().map(|(key, _)| key.clone()).collect();
    let mut drafting = Drafting { desired, moment, fighting, draft: Draft::default() };
    for change in changes {
        drafting.take(change);
    }
    drafting.leave_originals();
    drafting.write_again();
    let conflicts = fights.into_iter().map(|(key, other)| {
        let reason = Reason::Fights { with: other.to_string() };
        (key, Finding::Conflict { owner: Owner::Nobody, reason })
    });
    drafting.draft.findings.extend(conflicts);
    drafting.draft
}

struct Drafting<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    fighting: BTreeSet<Key>,
    draft: Draft<Knobs>,
}

impl Drafting<'_> {
    fn take(&mut self, change: Change<Key, Value>) {
        match change {
            Change::Create { slot } => self.cannot(self.desired.key(slot)),
            Change::Update { slot, before, adopts } => {
                self.set(slot, before, adopts.map_or(Why::Differs, Why::Adopts));
            }
            Change::Release { key, before, restore, snapshot } => {
                let coupled = snapshot.as_ref().map(Coupled::parse).unwrap_or_default();
                let restore = restore.filter(|_| !self.would_undo(&key));
                let changed = restore.as_ref().filter(|value| **value != before);
                if let Some(on) = self.must_wait_for(&key, changed) {
                    return self.draft.wait(key, on);
                }
                let takes = self.takes(&key, &before, restore.as_ref());
                self.draft.steps.push(Step::Release { key, before, restore, coupled, takes });
            }
            // A knob cannot be deleted, only released.
            Change::Delete { key, before } | Change::GiveBack { key, before, .. } => {
                let (restore, coupled, takes) = (None, Coupled::default(), Vec::new());
                self.draft.steps.push(Step::Release { key, before, restore, coupled, takes });
            }
        }
    }

    /// Whether restoring a released knob would undo a declared one, which may be another name of the same value.
    fn would_undo(&self, released: &Key) -> bool {
        let mut declared = self.desired.iter().map(|(key, _)| key);
        declared.any(|key| rewrites(released, key) && phase(key) <= phase(released))
    }

    /// A knob that is not there is never made: it is waited for, or refused.
    fn cannot(&mut self, key: Key) {
        if self.fighting.contains(&key) {
            return;
        }
        let absence = self.moment.absent.get(&key);
        let may_be_absent = key.link().is_some_and(|link| self.desired.is_optional(link));
        let on = absence.and_then(Absence::waits_on);
        match (absence, if may_be_absent { on.map(WaitsOn::optional) } else { on }) {
            (_, Some(on)) => self.draft.wait(key, on),
            (Some(absence), None) => self.draft.refuse(key.clone(), absence.failure(&key)),
            (None, None) => self.draft.wait(key, WaitsOn::Condition("a look at it".to_owned())),
        }
    }

    fn set(&mut self, slot: Slot, before: Value, why: Why) {
        let key = self.desired.key(slot);
        if self.fighting.contains(&key) {
            return;
        }
        if self.moment.read_only.contains(&key) {
            let failure = Failure::new("the kernel allows no write here", Retry::OnChange);
            let failure = failure.with_help("some knobs are writable on the host only, or never");
            self.draft.refuse(key, failure);
            return;
        }
        let wanted = &self.desired.at(slot).1.value;
        // Forwarding that is on already stays so, unless it is rewritten first.
        let is_on = why == Why::Differs && wanted.agrees(&key, &before);
        if let Some(on) = self.must_wait_for(&key, Some(wanted)).filter(|_| !is_on) {
            self.draft.wait(key, on);
            return;
        }
        let (phase, takes) = (phase(&key), self.takes(&key, &before, Some(wanted)));
        self.draft.steps.push(Step::Set { slot, before, why, phase, takes });
    }

    /// The foreign objects that the kernel deletes for this value.
    fn takes(&self, key: &Key, before: &Value, value: Option<&Value>) -> Vec<Taken> {
        let turns_off = |value: &Value| ipv6_off::turns_off(key, value);
        let is_lost = !turns_off(before) && value.is_some_and(turns_off);
        let lost = self.moment.ipv6.get(key).filter(|_| is_lost);
        lost.cloned().unwrap_or_default()
    }

    /// What this value waits on, also if it is an original that comes back.
    fn must_wait_for(&self, key: &Key, value: Option<&Value>) -> Option<WaitsOn> {
        self.moment.gate.clone().filter(|_| value.is_some_and(|value| lets_through(key, value)))
    }

    /// A released knob that holds its original is left alone, unless an earlier step rewrites it.
    fn leave_originals(&mut self) {
        let generals = self.keys_of(Step::changes);
        for step in &mut self.draft.steps {
            let Step::Release { key, before, restore, .. } = step else { continue };
            let is_rewritten =
                generals.iter().any(|other| rewrites(other, key) && phase(other) < phase(key));
            if restore.as_ref() == Some(before) && !is_rewritten {
                *restore = None;
            }
        }
    }

    /// Declared knobs that a step will rewrite are written again after it, so that one pass is enough.
    fn write_again(&mut self) {
        let planned: BTreeSet<Key> = self.keys_of(|_| true).into_iter().collect();
        let mut generals = self.keys_of(Step::writes);
        generals.retain(is_general);
        let moment = self.moment;
        for (key, value) in moment.rewritten.iter().filter(|(key, _)| !planned.contains(key)) {
            let by = generals
                .iter()
                .find(|general| rewrites(general, key) && phase(general) < phase(key));
            if let (Some(by), Some(slot)) = (by, self.desired.slot(key, None)) {
                self.set(slot, value.clone(), Why::Rewritten { by: by.clone() });
            }
        }
    }

    /// The knobs of the chosen steps.
    fn keys_of(&self, is_chosen: impl Fn(&Step) -> bool) -> Vec<Key> {
        let chosen = self.draft.steps.iter().filter(|step| is_chosen(step));
        chosen.map(|step| step.key_in(self.desired).clone()).collect()
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a knob hold what is declared.
    Set { slot: Slot, before: Value, why: Why, phase: u8, takes: Vec<Taken> },
    /// Releases a knob that is no longer declared; `restore` is its original value, where that is to come back, and
    /// `coupled` what the kernel rewrote along with it.
    Release { key: Key, before: Value, restore: Option<Value>, coupled: Coupled, takes: Vec<Taken> },
}

/// The knobs that cannot be set back before the next boot, and why.
pub(crate) const ONE_WAY: [(&str, &str); 6] = [
    ("kernel/modules_disabled", "no module can be loaded before the next boot"),
    ("kernel/kexec_load_disabled", "no kernel can be loaded before the next boot"),
    ("kernel/unprivileged_bpf_disabled", "at 1 the kernel keeps it until the next boot"),
    ("kernel/yama/ptrace_scope", "at 3 the kernel keeps it until the next boot"),
    ("devices/system/cpu/smt/control", "at `forceoff` the kernel keeps it until the next boot"),
    ("module/apparmor/parameters/lock_policy", "at 1 the kernel keeps it until the next boot"),
];

fn one_way(key: &Key) -> Option<&'static str> {
    let path = match key {
        Key::Sysctl(path) => path.as_str(),
        Key::Sysfs(path) => path.as_str(),
        Key::Cgroup(_) => return None,
    };
    ONE_WAY.iter().find(|(knob, _)| *knob == path).map(|(_, why)| *why)
}

/// Why a knob is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is not as declared.
    Differs,
    /// It is taken over from this owner.
    Adopts(Owner),
    /// It is as declared, but an earlier step for this other knob will rewrite it.
    Rewritten { by: Key },
}

impl Step {
    /// The knob, without a copy.
    pub(crate) fn key_in<'a>(&'a self, desired: &'a DesiredState) -> &'a Key {
        match self {
            Step::Set { slot, .. } => desired.at(*slot).0,
            Step::Release { key, .. } => key,
        }
    }

    /// Whether anything is written. A release without an original writes nothing.
    pub(crate) fn writes(&self) -> bool {
        matches!(self, Step::Set { .. }) || self.restores().is_some()
    }

    /// Whether the knob holds something else afterwards.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Step::Set { .. } => true,
            Step::Release { before, .. } => self.restores().is_some_and(|value| value != *before),
        }
    }

    /// What a release puts back. What was never set cannot be unset again.
    pub(crate) fn restores(&self) -> Option<Value> {
        match self {
            Step::Release { key, before, restore: Some(original), .. } => {
                let value = original.restoring(key, before);
                // Lists can be emptied by writing nothing; other knobs take no empty text.
                let is_clearable = matches!(Form::of(key), Form::Ranges | Form::Text);
                (!value.is_unset() || is_clearable).then_some(value)
            }
            _ => None,
        }
    }

    fn note(&self) -> Option<String> {
        match self {
            Step::Set { why: Why::Differs, .. } => None,
            Step::Set { why: Why::Adopts(owner), .. } => Some(format!("taken over from {owner}")),
            Step::Set { why: Why::Rewritten { by }, .. } => {
                Some(format!("written again, since `{by}` rewrites it"))
            }
            Step::Release { restore, .. } => Some(match (restore, self.restores()) {
                (_, Some(_)) => "released, original restored".to_owned(),
                (Some(_), None) => "released, the value stays: it cannot be unset".to_owned(),
                (None, None) => "released, the value stays".to_owned(),
            }),
        }
    }
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, desired: &DesiredState) -> Key {
        self.key_in(desired).clone()
    }

    fn action(&self) -> Action {
        match self {
            Step::Set { .. } => Action::Update,
            Step::Release { .. } => Action::Delete,
        }
    }

    fn reversibility(&self, desired: &DesiredState) -> Reversibility {
        if let Some(taken) = self.takes().first() {
            let why = format!("`{}` of {} goes along and does not return", taken.key, taken.owner);
            return Reversibility::Irreversible(why.into());
        }
        match one_way(self.key_in(desired)) {
            Some(why) if self.changes() => Reversibility::Irreversible(why.into()),
            _ => Reversibility::Reversible,
        }
    }

    fn phase(&self) -> u8 {
        match self {
            Step::Set { phase, .. } => *phase,
            Step::Release { key, .. } => phase(key),
        }
    }

    fn disturbs(&self, desired: &DesiredState, disturb: &mut dyn FnMut(Key)) {
        let key = self.key_in(desired);
        if self.writes() && is_general(key) {
            let others = desired.iter().map(|(other, _)| other);
            others.filter(|other| rewrites(key, other)).cloned().for_each(disturb);
        }
    }

    fn takes(&self) -> &[Taken] {
        match self {
            Step::Set { takes, .. } | Step::Release { takes, .. } => takes,
        }
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn records(&self, desired: &DesiredState, record: &mut dyn FnMut(Key, Taking)) {
        let key = self.key_in(desired);
        if self.writes() && is_general(key) {
            record(key.clone(), Taking::Around);
        }
    }

    fn explain(&self, desired: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let json = |value: &Value| serde_json::Value::from(value.as_str());
        let (before, after) = match self {
            Step::Set { slot, before, .. } => (before, Some(json(&desired.at(*slot).1.value))),
            Step::Release { before, .. } => (before, self.restores().as_ref().map(json)),
        };
        let action = homeostat_core::Step::action(self);
        let line = Line::new(action, self.key_in(desired).to_string());
        emit(Line { before: Some(json(before)), after, note: self.note(), ..line });
    }
}

#[cfg(test)]
mod tests {
    use homeostat_core::Step as _;

    use super::*;

    fn desired(pairs: &[(&str, &str)]) -> DesiredState {
        let builder = pairs.iter().fold(DesiredState::builder(), |desired, (key, value)| {
            desired.sysctl(key, value).unwrap()
        });
        builder.build().unwrap()
    }

    fn key(text: &str) -> Key {
        Key::sysctl(text).unwrap()
    }

    fn value(text: &str) -> Value {
        Value::of(&key("net.ipv4.ip_forward"), text)
    }

    fn update(desired: &DesiredState, text: &str, before: &str) -> Change<Key, Value> {
        let slot = desired.slot(&key(text), None).unwrap();
        Change::Update { slot, before: value(before), adopts: None }
    }

    fn lines(desired: &DesiredState, mut draft: Draft<Knobs>) -> Vec<String> {
        let mut lines = Vec::new();
        draft.steps.sort_by_key(homeostat_core::Step::phase);
        for step in &draft.steps {
            step.explain(desired, &mut |line| {
                let json = |value: Option<serde_json::Value>| value.unwrap_or_default().to_string();
                let (sign, key) = (line.action.sign(), line.key);
                let (before, after) = (json(line.before), json(line.after));
                let note = line.note.unwrap_or_default();
                lines.push(format!("{sign} {key} {before} {after} {note}").trim_end().to_owned());
            });
        }
        lines
    }

    #[test]
    fn knobs_that_a_step_rewrites_are_written_again_after_it() {
        let desired = desired(&[
            ("net.ipv4.conf.lo.forwarding", "0"),
            ("net.ipv4.conf.all.accept_redirects", "1"),
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.lo.forwarding", "0"),
        ]);
        let mut moment = Moment::default();
        for (knob, _) in desired.iter() {
            moment.rewritten.insert(knob.clone(), desired.wanted(knob).unwrap().value.clone());
        }
        let changes = ChangeList::from_iter([update(&desired, "net.ipv4.ip_forward", "0")]);
        let draft = draft(&desired, &moment, changes);
        let again = "written again, since `sysctl net.ipv4.ip_forward` rewrites it";
        assert_eq!(
            lines(&desired, draft),
            [
                "~ sysctl net.ipv4.ip_forward \"0\" \"1\"".to_owned(),
                format!("~ sysctl net.ipv4.conf.all.accept_redirects \"1\" \"1\" {again}"),
                format!("~ sysctl net.ipv4.conf.lo.forwarding \"0\" \"0\" {again}"),
            ]
        );
    }

    #[test]
    fn a_step_names_the_declared_knobs_that_change_along_with_it() {
        let desired = desired(&[
            ("net.ipv4.conf.all.forwarding", "1"),
            ("net.ipv4.conf.lo.forwarding", "0"),
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv4.tcp_rmem", "1"),
        ]);
        let disturbed = |step: Step| {
            let mut keys = Vec::new();
            step.disturbs(&desired, &mut |key| keys.push(key.path()));
            keys
        };
        let (key, before) = (key("net.ipv4.ip_forward"), value("0"));
        let slot = desired.slot(&key, None).unwrap();
        let takes = Vec::new();
        let set = Step::Set { slot, before: before.clone(), why: Why::Differs, phase: 0, takes };
        let others = ["net/ipv4/conf/all/forwarding", "net/ipv4/conf/lo/forwarding"];
        assert_eq!(disturbed(set), others);
        let idle = {
            let (restore, coupled, takes) = (None, Coupled::default(), Vec::new());
            Step::Release { key, before, restore, coupled, takes }
        };
        assert!(disturbed(idle).is_empty(), "a step that writes nothing disturbs no other knob");
    }

    #[test]
    fn desired_states_that_fight_are_reported_and_not_written() {
        let desired =
            desired(&[("net.ipv4.ip_forward", "1"), ("net.ipv4.conf.all.forwarding", "0")]);
        let changes = ChangeList::from_iter([update(&desired, "net.ipv4.ip_forward", "0")]);
        let draft = draft(&desired, &Moment::default(), changes);
        assert!(draft.steps.is_empty());
        let reasons: Vec<_> =
            draft.findings.iter().map(|(key, found)| format!("{key} {}", found.reason())).collect();
        assert_eq!(
            reasons,
            [
                "sysctl net.ipv4.conf.all.forwarding fights with `sysctl net.ipv4.ip_forward`, \
                 which undoes it",
                "sysctl net.ipv4.ip_forward fights with `sysctl net.ipv4.conf.all.forwarding`, \
                 which undoes it",
            ]
        );
    }

    #[test]
    fn an_absent_knob_is_waited_for_or_refused_and_never_made() {
        let desired = desired(&[("net.ipv4.conf.eth9.rp_filter", "1"), ("net.ipv4.nosuch", "1")]);
        let absent = [
            ("net.ipv4.conf.eth9.rp_filter", Absence::NoLink { link: "eth9".to_owned() }),
            ("net.ipv4.nosuch", Absence::NoKnob { similar: None }),
        ];
        let absent = absent.map(|(text, absence)| (key(text), absence)).into();
        let moment = Moment { absent, ..Moment::default() };
        let changes = (0..2).map(|slot| Change::Create { slot: Slot(slot) }).collect();
        let draft = draft(&desired, &moment, changes);
        assert!(draft.steps.is_empty());
        assert_eq!(draft.findings[0].1.reason(), "waits on link eth9");
        assert_eq!(draft.findings[1].1.reason(), "the kernel has no such knob");
    }

    #[test]
    fn a_read_only_knob_is_refused() {
        let desired = desired(&[("net.ipv4.ip_forward", "1")]);
        let read_only = [key("net.ipv4.ip_forward")].into();
        let moment = Moment { read_only, ..Moment::default() };
        let changes = ChangeList::from_iter([update(&desired, "net.ipv4.ip_forward", "0")]);
        let draft = draft(&desired, &moment, changes);
        assert!(draft.steps.is_empty());
        assert_eq!(draft.findings.len(), 1);
    }

    #[test]
    fn while_the_gate_is_closed_only_forwarding_that_is_off_waits() {
        let desired = desired(&[("net.ipv4.ip_forward", "1"), ("net.ipv4.tcp_rmem", "1")]);
        let moment = Moment {
            gate: Some(WaitsOn::Condition("the firewall".to_owned())),
            ..Moment::default()
        };
        let drafted = |before: &str| {
            let keys = ["net.ipv4.ip_forward", "net.ipv4.tcp_rmem"];
            draft(
                &desired,
                &moment,
                keys.map(|key| update(&desired, key, before)).into_iter().collect(),
            )
        };
        let off = drafted("0");
        assert_eq!((off.steps.len(), off.findings.len()), (1, 1));
        assert_eq!(off.findings[0].0, key("net.ipv4.ip_forward"));
        assert_eq!(off.findings[0].1.reason(), "waits on the firewall");
        let claimed = drafted("1");
        assert_eq!((claimed.steps.len(), claimed.findings.len()), (2, 0));
    }

    #[test]
    fn a_release_says_what_becomes_of_the_value() {
        let desired = desired(&[]);
        let release = |text: &str, restore: Option<&str>| Change::Release {
            key: key(text),
            before: value("1"),
            restore: restore.map(value),
            snapshot: None,
        };
        let changes = ChangeList::from_iter([
            release("net.ipv4.ip_forward", None),
            release("net.ipv4.tcp_rmem", Some("0")),
            release("net.ipv6.conf.lo.stable_secret", Some("")),
            release("net.ipv4.ip_local_reserved_ports", Some("")),
        ]);
        assert_eq!(
            lines(&desired, draft(&desired, &Moment::default(), changes)),
            [
                "- sysctl net.ipv4.ip_forward \"1\" null released, the value stays",
                "- sysctl net.ipv4.tcp_rmem \"1\" \"0\" released, original restored",
                "- sysctl net.ipv4.ip_local_reserved_ports \"1\" \"\" released, original restored",
                "- sysctl net.ipv6.conf.lo.stable_secret \"1\" null released, the value stays: it \
                 cannot be unset",
            ]
        );
    }
}
