//! Looks at the declared and the recorded paths. It never writes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::{
    Desired as _, Failure, Focus, Hint, Original, Owner, Phase, Record, Retry, See, Seen, Snapshot,
    Stage, View,
};
use homeostat_render::Facts;
use rustix::process::{PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

use crate::accounts::Accounts;
use crate::brake::Wait;
use crate::certificates;
use crate::check::Verdict;
use crate::conffiles::Conffiles;
use crate::digest::Digest;
use crate::exclusive::Undeclared;
use crate::hints::Hints;
use crate::key::{FilePath, Key};
use crate::live::Following;
use crate::look::{self, Entry, Signature};
use crate::masking::masked;
use crate::model::{Content, DesiredState, Difference, FileObject, Object, Other, Wanted};
use crate::packages::Packages;
use crate::place::{Obstacle, Root};
use crate::program::now;
use crate::programs::haproxy::{Declared, Haproxy};
use crate::resolve;
use crate::running::{Answer, Program};
use crate::source::Files;
use crate::sys::register;
use crate::unit::{Up, Watch};

/// What one observe learned beside the objects.
#[derive(Debug, Default)]
pub struct Moment {
    /// Why declared paths cannot be reached.
    pub(crate) obstacles: BTreeMap<Key, Obstacle>,
    /// Declared paths that others have, and not as declared.
    pub(crate) foreign: BTreeSet<Key>,
    /// Paths that could not be looked at.
    pub(crate) unknown: BTreeSet<Key>,
    /// Declared accounts that do not exist, by the keys that want them.
    pub(crate) no_account: BTreeMap<Key, String>,
    /// What files hold that are not as declared or not declared any more, unless it is secret.
    pub(crate) contents: BTreeMap<Key, Content>,
    /// The originals of files that are not declared any more.
    pub(crate) originals: BTreeMap<Key, Content>,
    /// Paths that are not declared any more, and that others have changed since we wrote them.
    pub(crate) drifted: BTreeSet<Key>,
    /// Declared paths that others have changed since we wrote them.
    pub(crate) edited: BTreeSet<Key>,
    /// Paths whose content must be kept before it is replaced: it was there before us.
    pub(crate) kept: BTreeSet<Key>,
    /// The contents that records speak of.
    pub(crate) recorded: HashSet<Digest>,
    /// What we made and is not declared any more.
    pub(crate) removed: Vec<Key>,
    /// Whether any path is not as declared.
    pub(crate) differs: bool,
    /// Whether the program runs something else.
    runs_other: bool,
    /// What the program of the set says of what is declared; nothing, if it was not asked.
    pub(crate) verdict: Option<Verdict>,
    /// Why the program has refused what is declared, when it was tried.
    pub(crate) refused: Option<String>,
    /// Why the program is not reloaded now of what it does not run.
    pub(crate) wait: Option<Wait>,
    /// What the program waits on, if it cannot be asked.
    pub(crate) down: Option<String>,
    /// Whether the program runs all that is declared, but for servers: that it accepts it is shown by that it runs it.
    pub(crate) is_structure_running: bool,
    /// What operators have set in the program, in words.
    pub(crate) notes: Vec<String>,
    /// Days that are left to certificates, if they are too few.
    pub(crate) expiring: BTreeMap<Key, i64>,
    /// Paths of exclusive directories that others' files were moved away from.
    pub(crate) moved: BTreeSet<FilePath>,
    /// What was moved away from directories that are not exclusive any more.
    pub(crate) returning: BTreeMap<Key, (FileObject, Content)>,
}

impl Moment {
    /// Whether some path keeps the whole set from being written.
    fn is_blocked(&self) -> bool {
        let Moment { foreign, unknown, no_account, .. } = self;
        !foreign.is_empty() || !unknown.is_empty() || !no_account.is_empty()
    }
}

/// Looks at files, and remembers the digests of those that have not changed.
#[derive(Debug)]
pub struct Reader {
    pub(crate) files: Files,
    known: HashMap<FilePath, Known>,
    hints: Hints,
    /// The unit of the program.
    unit: Option<Watch>,
    /// When to look again at a program that may not be reloaded now.
    wakeup: Option<Wakeup>,
    /// What the program said last, and of what.
    pub(crate) judged: Vec<Judged>,
    /// Whether inputs are followed; else they are read once.
    pub(crate) follows: bool,
    pub(crate) following: Option<Following>,
    /// Whether who reads inputs and facts once has done so.
    pub(crate) has_read: bool,
    pub(crate) read_facts: Option<Arc<Facts>>,
    /// What was resolved last.
    pub(crate) resolved: Option<Arc<DesiredState>>,
    /// Whether there is more to be tried.
    pub(crate) wants_look: bool,
    /// What was in exclusive directories at the last look.
    pub(crate) undeclared: Undeclared,
    pub(crate) packages: Packages,
    /// When the first certificate in a content ends.
    certificates: HashMap<Digest, Option<i64>>,
}

/// A set that was judged, with what leaves it.
#[derive(Debug)]
pub(crate) struct Judged {
    desired: Arc<DesiredState>,
    removed: Vec<Key>,
    pub(crate) verdict: Verdict,
}

/// So many verdicts are remembered.
const MOST_JUDGED: usize = 16;

/// Whom a look asks beside the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Nobody,
    /// What it runs. Its unit is up, or is waited for.
    Program {
        up: Result<Option<Up>, String>,
    },
}

/// When a program that waits for connections to end is looked at again.
const AGAIN: Duration = Duration::from_millis(500);

/// A content that was read.
#[derive(Clone, Debug)]
struct Known {
    signature: Signature,
    digest: Digest,
    content: Content,
}

/// What is on one path.
enum Found {
    Absent,
    Object { object: Object, content: Option<Content> },
    Unreachable(Obstacle),
    Unknown(String),
}

/// One look, at everything.
struct Look<'a> {
    reader: &'a mut Reader,
    root: Root,
    accounts: Accounts,
    /// The unit of the program, if it has one.
    conffiles: Option<Conffiles>,
    ask: Ask,
}

impl Reader {
    /// One that waits for hints, and follows inputs.
    pub(crate) fn following(files: Files) -> Self {
        Reader { follows: true, ..Self::new(files, Hints::open(), true) }
    }

    /// One that is never asked for hints.
    pub(crate) fn once(files: Files) -> Self {
        Self::new(files, Hints::none(), false)
    }

    fn new(files: Files, hints: Hints, wants_signals: bool) -> Self {
        let unit = files.program.as_ref().and_then(|program| program.unit.clone());
        let unit = unit.map(|unit| Watch::new(unit, wants_signals));
        Reader {
            files,
            known: HashMap::new(),
            hints,
            unit,
            wakeup: None,
            judged: Vec::new(),
            follows: false,
            following: None,
            has_read: false,
            read_facts: None,
            resolved: None,
            wants_look: false,
            undeclared: Undeclared::default(),
            packages: Packages::default(),
            certificates: HashMap::new(),
        }
    }

    /// Asks the program of the set, if there is something to write. What it has accepted it is asked again only before
    /// the swap; what it has refused, at each look at everything: the reason may be outside of the set.
    pub(crate) fn judge(&mut self, view: &View<'_, Files>, moment: &mut Moment) {
        let Some(check) = &self.files.check else { return };
        let has_content = view.desired.iter().any(|(_, wanted)| wanted.content.is_some());
        if !moment.differs || moment.is_blocked() || !has_content {
            return;
        }
        let is_same = |judged: &Judged| {
            judged.desired.has_same_entries(view.desired) && judged.removed == moment.removed
        };
        if let Some(judged) = self.judged.iter().find(|judged| is_same(judged)) {
            moment.verdict = Some(judged.verdict.clone());
            return;
        }
        if moment.removed.is_empty() && self.is_structure_running(view.desired) {
            moment.is_structure_running = true;
            return;
        }
        let verdict = check.ask(view.desired, moment.removed.clone());
        if matches!(verdict, Verdict::Refused(_)) {
            self.files.counters.refused_checks.add(1);
        }
        moment.verdict = Some(verdict.clone());
        if !matches!(verdict, Verdict::Unchecked { .. }) {
            let (desired, removed) = (Arc::clone(view.desired), moment.removed.clone());
            let oldest = self.judged.len().saturating_sub(MOST_JUDGED - 1);
            self.judged.drain(..oldest);
            self.judged.push(Judged { desired, removed, verdict });
        }
    }

    /// Whether the program runs all that is declared, but for servers: that it accepts it is shown by that it runs it.
    fn is_structure_running(&self, desired: &DesiredState) -> bool {
        let (Some(program), Some((_, target))) = (&self.files.program, desired.target()) else {
            return false;
        };
        let Some(haproxy) = program.haproxy() else { return false };
        matches!(program.ask(&target.generation), Some(Answer::Runs))
            && haproxy
                .observe(&target.declared)
                .is_ok_and(|observed| target.declared.differs_in_servers_only(&observed))
    }

    /// Certificates among the files that end soon, or have ended.
    fn find_expiring(&mut self, desired: &DesiredState, moment: &mut Moment) {
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        let mut former = std::mem::take(&mut self.certificates);
        let mut least = None;
        for (key, wanted) in desired.iter() {
            let (Object::File(file), Some(content)) = (&wanted.object, &wanted.content) else {
                continue;
            };
            let known = former.remove(&file.digest);
            let end = known.unwrap_or_else(|| certificates::end(content.bytes()));
            self.certificates.insert(file.digest.clone(), end);
            let Some(left) = end.map(|end| certificates::days_left(end, now)) else { continue };
            least = Some(least.map_or(left, |least: i64| least.min(left)));
            if left < i64::from(self.files.certificate_days) {
                moment.expiring.insert(key.clone(), left);
            }
        }
        let least = least.map(|left| u64::try_from(left).unwrap_or_default());
        self.files.counters.certificate_days.set(least);
    }

    /// The content of a file: what was read last, if nothing has changed since.
    fn content(
        &mut self,
        root: &mut Root,
        path: &FilePath,
        signature: Signature,
    ) -> io::Result<Known> {
        if let Some(known) = self.known.get(path).filter(|known| known.signature == signature) {
            return Ok(known.clone());
        }
        let directory =
            root.parent(path).map_err(|obstacle| io::Error::other(obstacle.to_string()))?;
        let read = look::read(directory, path.split().1)?;
        let digest = self.files.store.digests().digest(read.content.bytes());
        let known = Known { signature: read.signature, digest, content: read.content };
        if is_settled(read.signature) {
            self.known.insert(path.clone(), known.clone());
        } else {
            self.known.remove(path);
        }
        Ok(known)
    }
}

/// Whether another change would show in the times of a file. The clocks of file systems tick slowly: a file that has
/// just changed may change again without a trace.
fn is_settled(signature: Signature) -> bool {
    const TICK: i64 = 100_000_000;
    let now = clock_gettime(ClockId::Realtime);
    let (seconds, nanoseconds) = signature.changed;
    let since = (now.tv_sec - seconds).saturating_mul(1_000_000_000) + now.tv_nsec - nanoseconds;
    since > TICK
}

impl Reader {
    /// Looks at everything, and hands over what is in focus.
    pub(crate) fn look(
        &mut self,
        view: &View<'_, Files>,
        see: &mut See<'_, Key, Object>,
        ask: Ask,
    ) -> Result<Moment, Failure> {
        let root = Root::open(&self.files.root).map_err(|error| {
            let path = self.files.root.display();
            Failure::new(format!("{path} cannot be opened: {error}"), Retry::Soon)
        })?;
        let accounts = Accounts::read(&self.files.root);
        if ask != Ask::Nobody {
            self.wakeup = None;
        }
        let mut look = Look { reader: self, root, accounts, ask, conffiles: None };
        look.find_owners(view);
        let recorded = view.records.values().filter_map(original_digest).cloned().collect();
        let mut moment = Moment { recorded, ..Moment::default() };
        let moved = view.records.iter().filter(|(_, record)| record.wrote == Object::Nothing);
        moment.moved = moved.filter_map(|(key, _)| key.path().cloned()).collect();
        // A set is written as one, so it is looked at as one.
        let declared = view.desired.iter().map(|(key, _)| key);
        let keys: BTreeSet<&Key> = declared.chain(view.records.keys()).collect();
        // A subscription after the look would miss what happens in between (law 10).
        let is_secret = |key: &Key| {
            let declared = view.desired.wanted(key).map(|wanted| &wanted.object);
            declared
                .or(view.records.get(key).map(|record| &record.wrote))
                .is_some_and(Object::is_secret)
        };
        let watched = keys.iter().map(|key| (*key, is_secret(key)));
        look.reader.hints.watch(&mut look.root, watched, view.desired.exclusive());
        for key in keys {
            let seen = look.key(key, view, &mut moment);
            if let Some(seen) = seen.filter(|_| view.focus.covers(key)) {
                see(seen);
            }
        }
        let is_known = |path: &FilePath| {
            let key = Key::File(path.clone());
            view.records.contains_key(&key) || view.desired.wanted(&key).is_some()
        };
        look.reader.known.retain(|path, _| is_known(path));
        Ok(moment)
    }
}

impl homeostat_core::Reader<Files> for Reader {
    /// Of owners, groups and modes. Contents are kept by the writer.
    async fn snapshots(
        &mut self,
        keys: &BTreeSet<Key>,
    ) -> Result<BTreeMap<Key, Snapshot>, Failure> {
        let mut found = BTreeMap::new();
        let paths = keys.iter().filter_map(|key| match key {
            Key::Attributes(path) => Some((key, path)),
            _ => None,
        });
        let paths: Vec<_> = paths.collect();
        if paths.is_empty() {
            return Ok(found);
        }
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!("owner, group and mode cannot be read: {error}"), Retry::Soon)
        };
        let mut root = Root::open(&self.files.root).map_err(|error| failed(&error))?;
        let accounts = Accounts::read(&self.files.root);
        for (key, path) in paths {
            // What cannot be reached is not written either.
            let Ok(directory) = root.parent(path) else { continue };
            let entry = look::entry(&directory, path.split().1, &accounts, None);
            if let Entry::File { attributes, .. } | Entry::Directory(attributes) =
                entry.map_err(|error| failed(&error))?
            {
                let text = serde_json::to_string(&attributes).map_err(|error| failed(&error))?;
                found.insert(key.clone(), Snapshot(text));
            }
        }
        Ok(found)
    }

    async fn resolve(
        &mut self,
        view: &View<'_, Files>,
    ) -> Result<Option<Arc<DesiredState>>, Failure> {
        resolve::resolve_set(self, view)
    }

    async fn observe(
        &mut self,
        view: &View<'_, Files>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        let up = match &mut self.unit {
            Some(unit) => unit.look().await.map(Some),
            None => Ok(None),
        };
        let mut moment = self.look(view, see, Ask::Program { up })?;
        if self.undeclared.waits_for_packages && self.wakeup.is_none() {
            self.wakeup = Some(Wakeup::At(now() + AGAIN));
        }
        self.judge(view, &mut moment);
        self.find_expiring(view.desired, &mut moment);
        if !moment.differs && !moment.runs_other {
            resolve::accept(self, view.desired);
        }
        Ok(moment)
    }

    fn phases(&mut self) -> Vec<Phase> {
        std::mem::take(&mut self.files.inputs.lock().phases)
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        if std::mem::take(&mut self.wants_look) {
            return Ok(all_keys(self.resolved.as_deref()));
        }
        let Reader { hints, unit, wakeup, files, following, resolved, .. } = self;
        let followed = async {
            match following {
                Some(following) => following.changed(&files.inputs).await,
                None => std::future::pending().await,
            }
        };
        let unit_changed = async {
            match unit {
                Some(unit) => unit.changed().await,
                None => std::future::pending().await,
            }
        };
        let woken = async {
            match wakeup {
                Some(wakeup) => wakeup.comes().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            hint = hints.next() => return hint,
            changed = followed => return changed.map(|()| all_keys(resolved.as_deref())),
            () = unit_changed => {}
            () = woken => {}
        }
        // Once is enough: the look that follows finds out when to look again.
        self.wakeup = None;
        if self.undeclared.waits_for_packages {
            return Ok(all_keys(self.resolved.as_deref()));
        }
        Ok(Hint::keys([Key::Program(files.set.clone())]))
    }
}

/// A hint about everything in a set.
fn all_keys(resolved: Option<&DesiredState>) -> Hint<Key> {
    let mut keys = BTreeSet::new();
    if let Some(resolved) = resolved {
        keys.extend(resolved.iter().map(|(key, _)| key.clone()));
        resolved.dependants(&Key::Input(String::new()), &mut |key| _ = keys.insert(key));
    }
    Hint::keys(keys)
}

/// When a program may be reloaded.
#[derive(Clone, Debug)]
enum Wakeup {
    /// At a moment.
    At(Duration),
    /// When a process ends.
    End(Arc<OwnedFd>),
}

impl Wakeup {
    /// What cannot be waited for comes with the next look at everything.
    async fn comes(&self) {
        match self {
            Wakeup::At(at) => tokio::time::sleep(at.saturating_sub(now())).await,
            Wakeup::End(process) => match register(process) {
                Ok(waiting) => {
                    let _ = waiting.readable().await;
                }
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Look<'_> {
    fn key(
        &mut self,
        key: &Key,
        view: &View<'_, Files>,
        moment: &mut Moment,
    ) -> Option<Seen<Key, Object>> {
        let (wanted, record) = (view.desired.wanted(key), view.records.get(key));
        if let Some(wanted) = wanted {
            self.find_accounts(key, wanted, moment);
        }
        let Some(path) = key.path() else {
            return self.program_key(key, view, moment);
        };
        let (object, content) = match self.find(key, path, wanted, record) {
            Found::Object { object, content } => (object, content),
            Found::Absent => {
                moment.differs |= wanted.is_some_and(|wanted| !wanted.is_nothing());
                if wanted.is_none() {
                    self.find_moved(key, record, moment);
                }
                return absent(key, wanted, record);
            }
            Found::Unreachable(obstacle) => {
                return unreachable(key, obstacle, wanted, record, moment);
            }
            Found::Unknown(why) => {
                // A file of others that cannot be read is none of this set.
                if !wanted.is_some_and(Wanted::is_nothing) {
                    moment.unknown.insert(key.clone());
                }
                return Some(Seen::Unknown { key: key.clone(), why });
            }
        };
        if wanted.is_some() && record.is_some_and(|record| !record.wrote.agrees(&object)) {
            moment.edited.insert(key.clone());
        }
        let is_original = |record: &Record<Object>| match &record.original {
            Original::Was(Object::File(was)) => {
                matches!(&object, Object::File(now) if now.digest == was.digest)
            }
            _ => false,
        };
        let is_unwanted = wanted.is_some_and(Wanted::is_nothing);
        if is_unwanted || record.is_none_or(is_original) {
            moment.kept.insert(key.clone());
        }
        let owner = match record {
            Some(record) => owner_of_recorded(key, wanted, record, &object, moment),
            None if self.is_as_shipped(key, content.as_ref()) => Owner::Nobody,
            None => Owner::foreign("another program, or a person"),
        };
        let differs = wanted.is_none_or(|wanted| !wanted.object.agrees(&object));
        let stays = view.desired.resolution.stays.contains_key(key);
        moment.differs |= differs && !stays;
        if wanted.is_none() && owner == Owner::Unmarked || is_unwanted && !stays {
            moment.removed.push(key.clone());
        }
        if differs && wanted.is_some() && matches!(owner, Owner::Foreign(_)) {
            moment.foreign.insert(key.clone());
        }
        // What others keep secret is not known.
        if let Some(content) = content.filter(|_| differs && !is_unwanted && !object.is_secret()) {
            moment.contents.insert(key.clone(), content);
        }
        if wanted.is_none() {
            self.find_original(key, record, moment);
        }
        let object = record.map_or(object.clone(), |record| as_written(wanted, record, object));
        Some(Seen::Present { key: key.clone(), object, owner })
    }

    fn program_key(
        &mut self,
        key: &Key,
        view: &View<'_, Files>,
        moment: &mut Moment,
    ) -> Option<Seen<Key, Object>> {
        let (wanted, record) = (view.desired.wanted(key), view.records.get(key));
        let object = self.find_program(view.desired, wanted, record, moment);
        let is_other = |wanted: &Wanted| !wanted.object.agrees(&object);
        moment.runs_other = moment.down.is_none() && wanted.is_some_and(is_other);
        let is_asked = matches!(self.ask, Ask::Program { .. });
        if is_asked && *view.focus == Focus::All {
            self.count_old_processes();
        }
        let is_named = wanted.is_some() || record.is_some();
        is_named.then(|| Seen::Present { key: key.clone(), object, owner: Owner::Nobody })
    }

    /// Whether the program may be reloaded now, and when to look again if not.
    fn brake(&self, program: &Program) -> (Option<Wait>, Option<Wakeup>) {
        let mut draining = Vec::new();
        let count = || {
            draining = program.draining();
            draining.len()
        };
        let wait = self.reader.files.brake().wait(program.limits, count, now());
        let wakeup = match wait {
            None => None,
            Some(Wait::Until { at, .. }) => Some(Wakeup::At(at)),
            Some(Wait::Draining { .. }) => {
                // The one that began first to drain comes last.
                let last =
                    draining.last().and_then(|pid| pidfd_open(*pid, PidfdFlags::empty()).ok());
                last.map(|process| Wakeup::End(Arc::new(process)))
            }
        };
        (wait, wakeup)
    }

    /// What the program runs. One that cannot be asked runs what it was reloaded last.
    fn find_program(
        &mut self,
        desired: &DesiredState,
        wanted: Option<&Wanted>,
        record: Option<&Record<Object>>,
        moment: &mut Moment,
    ) -> Object {
        let Files { program, store, set, .. } = self.reader.files.clone();
        // A reload that was only planned may never have been sent.
        let recorded = || match record? {
            Record { stage: Stage::Done, wrote, .. } => Some(wrote.clone()),
            record => record.settled.clone(),
        };
        let runs = |generation| Object::Program { generation, differences: Vec::new() };
        let target = wanted.and_then(|wanted| wanted.target.as_deref());
        let (Some(program), Some(target)) = (&program, target) else {
            return recorded().unwrap_or(runs(None));
        };
        let Ask::Program { up } = self.ask.clone() else {
            return recorded().unwrap_or(runs(None));
        };
        let refused = store.refused(&set).filter(|(identity, _)| *identity == target.identity);
        moment.refused = refused.map(|(_, why)| why);
        let answer = program.ask_if_up(&target.generation, up);
        let down = match answer {
            None => {
                let known = recorded().unwrap_or(runs(None));
                if known != runs(Some(target.generation.clone())) {
                    (moment.wait, self.reader.wakeup) = self.brake(program);
                }
                return known;
            }
            Some(Answer::RunsOther(words)) => {
                (moment.wait, self.reader.wakeup) = self.brake(program);
                return runs(Some(masked(desired, &words)));
            }
            Some(Answer::Down(why)) => why,
            Some(Answer::Runs) => {
                let generation = Some(target.generation.clone());
                let Some(haproxy) = program.haproxy() else { return runs(generation) };
                match self.find_differences(&haproxy, &target.declared, moment) {
                    Ok(differences) => return Object::Program { generation, differences },
                    Err(error) => format!("the program, which does not answer: {error}"),
                }
            }
        };
        moment.down = Some(down);
        runs(None)
    }

    /// What a running `HAProxy` has otherwise than declared, and what operators have set there.
    fn find_differences(
        &mut self,
        haproxy: &Haproxy,
        declared: &Declared,
        moment: &mut Moment,
    ) -> io::Result<Vec<Difference>> {
        let observed = haproxy.observe(declared)?;
        let Files { store, set, .. } = &self.reader.files;
        let leaving = store.leaving(set);
        moment.notes = declared.notes(&observed, &leaving);
        let mut differences = declared.differences(&observed);
        differences.extend(declared.returned(&observed, &leaving));
        if !declared.leaving(&observed).is_empty() {
            self.reader.wakeup = Some(Wakeup::At(now() + AGAIN));
        }
        Ok(Difference::shortened(differences))
    }

    fn count_old_processes(&self) {
        let Files { program, counters, .. } = &self.reader.files;
        if let Some(program) = program {
            counters.old_processes.set(program.draining().len() as u64);
        }
    }

    fn find(
        &mut self,
        key: &Key,
        path: &FilePath,
        wanted: Option<&Wanted>,
        record: Option<&Record<Object>>,
    ) -> Found {
        let directory = match self.root.parent(path) {
            Ok(directory) => directory,
            Err(obstacle) => return Found::Unreachable(obstacle),
        };
        let declared = wanted.map(|wanted| &wanted.object).or(record.map(|record| &record.wrote));
        let attributes = declared.and_then(Object::attributes);
        let entry = match look::entry(directory, path.split().1, &self.accounts, attributes) {
            Ok(entry) => entry,
            Err(error) => return Found::Unknown(error.to_string()),
        };
        let other = |what| Found::Object { object: Object::Other { what }, content: None };
        match (entry, key) {
            (Entry::Absent, _) => Found::Absent,
            (Entry::Other(what), _) => other(what),
            (Entry::File { .. }, Key::Directory(_)) => other(Other::File),
            (Entry::Directory(attributes), Key::Directory(_)) => {
                Found::Object { object: Object::Directory(attributes), content: None }
            }
            (Entry::Directory(_), _) => other(Other::Directory),
            (Entry::File { signature, attributes }, _) => {
                let secret = declared.is_some_and(Object::is_secret);
                match self.reader.content(&mut self.root, path, signature) {
                    Ok(Known { digest, content, .. }) => {
                        let size = content.bytes().len() as u64;
                        let file = FileObject { digest, size, attributes, secret };
                        Found::Object { object: Object::File(file), content: Some(content) }
                    }
                    Err(error) => Found::Unknown(error.to_string()),
                }
            }
        }
    }

    /// The owner of a file may own its directory, too.
    fn find_owners(&mut self, view: &View<'_, Files>) {
        let declared = view.desired.iter().map(|(key, wanted)| (key, &wanted.object));
        let recorded = view.records.iter().map(|(key, record)| (key, &record.wrote));
        for (key, object) in recorded.chain(declared) {
            let owner = object.attributes().and_then(|attributes| attributes.owner.as_ref());
            let owner = owner.and_then(|owner| self.accounts.users.number(owner));
            if let (Some(path), Some(owner)) = (key.path(), owner) {
                self.root.let_own(path, owner);
            }
        }
    }

    fn find_accounts(&self, key: &Key, wanted: &Wanted, moment: &mut Moment) {
        let Some(attributes) = wanted.object.attributes() else { return };
        let missing = |kind: &str, name: &crate::model::Account| format!("the {kind} `{name}`");
        let owner = attributes.owner.as_ref();
        let owner = owner.filter(|owner| self.accounts.users.number(owner).is_none());
        let group = attributes.group.as_ref();
        let group = group.filter(|group| self.accounts.groups.number(group).is_none());
        let owner = owner.map(|owner| missing("user", owner));
        if let Some(missing) = owner.or(group.map(|group| missing("group", group))) {
            moment.no_account.insert(key.clone(), missing);
        }
    }

    /// The original of a file that leaves the desired state. One that cannot be read does not come back.
    fn find_original(&self, key: &Key, record: Option<&Record<Object>>, moment: &mut Moment) {
        let Some(digest) = record.and_then(original_digest) else { return };
        let Files { store, set, .. } = &self.reader.files;
        if let Ok(Some(content)) = store.blob(set, digest) {
            moment.originals.insert(key.clone(), Content::new(content));
        }
    }

    /// What was moved away from a path, as it was last.
    fn find_moved(&self, key: &Key, record: Option<&Record<Object>>, moment: &mut Moment) {
        let Some(record) = record.filter(|record| record.wrote == Object::Nothing) else { return };
        let Files { store, set, .. } = &self.reader.files;
        let last = key.path().and_then(|path| store.moved(set).remove(path.as_str()));
        let file = match (last, &record.original) {
            (Some(file), _) => file,
            (None, Original::Was(Object::File(file))) => file.clone(),
            _ => return,
        };
        if let Ok(Some(content)) = store.blob(set, &file.digest) {
            moment.returning.insert(key.clone(), (file, Content::new(content)));
        }
    }

    fn is_as_shipped(&mut self, key: &Key, content: Option<&Content>) -> bool {
        let (Key::File(path), Some(content)) = (key, content) else { return false };
        let root = &self.reader.files.root;
        let conffiles = self.conffiles.get_or_insert_with(|| Conffiles::read(root));
        conffiles.is_as_shipped(path.as_str(), content.bytes())
    }
}

/// What was there before us goes back or stays; what we made goes, unless others have changed it since.
fn owner_of_recorded(
    key: &Key,
    wanted: Option<&Wanted>,
    record: &Record<Object>,
    object: &Object,
    moment: &mut Moment,
) -> Owner {
    let settled = record.settled.as_ref();
    let is_ours = record.wrote.agrees(object) || settled.is_some_and(|one| one.agrees(object));
    let is_left = wanted.is_none() && !is_ours;
    if is_left {
        moment.drifted.insert(key.clone());
    }
    match record.original {
        Original::Absent if !is_left => Owner::Unmarked,
        _ => Owner::Nobody,
    }
}

fn original_digest(record: &Record<Object>) -> Option<&Digest> {
    match &record.original {
        Original::Was(Object::File(file)) => Some(&file.digest),
        _ => None,
    }
}

/// Nothing is there. Where an original was, its record must not go with the file.
fn absent(
    key: &Key,
    wanted: Option<&Wanted>,
    record: Option<&Record<Object>>,
) -> Option<Seen<Key, Object>> {
    let had_original = record.is_some_and(|record| matches!(record.original, Original::Was(_)));
    let is_moved = record.is_some_and(|record| record.wrote == Object::Nothing);
    (had_original && (wanted.is_some() || is_moved)).then(|| Seen::Present {
        key: key.clone(),
        object: Object::Nothing,
        owner: Owner::Nobody,
    })
}

fn unreachable(
    key: &Key,
    obstacle: Obstacle,
    wanted: Option<&Wanted>,
    record: Option<&Record<Object>>,
    moment: &mut Moment,
) -> Option<Seen<Key, Object>> {
    // Without its directory there is no file.
    let is_gone = matches!(obstacle, Obstacle::Missing(_) | Obstacle::NotADirectory(_));
    if record.is_some() && !is_gone {
        let help = obstacle.help().map(|help| format!("; {help}")).unwrap_or_default();
        moment.unknown.insert(key.clone());
        return Some(Seen::Unknown { key: key.clone(), why: format!("{obstacle}{help}") });
    }
    let is_to_be = wanted.is_some_and(|wanted| !wanted.is_nothing());
    moment.differs |= is_to_be;
    if is_to_be {
        moment.obstacles.insert(key.clone(), obstacle);
    }
    absent(key, wanted, record)
}

/// What we wrote may be less than what is there: attributes that were not declared. If it still stands, it is shown as
/// we wrote it, so that a release knows it again; so is what a process had begun to make when it died.
fn as_written(wanted: Option<&Wanted>, record: &Record<Object>, seen: Object) -> Object {
    let is_original = matches!(&record.original, Original::Was(original) if *original == seen);
    let is_made = record.stage == Stage::Intent && record.original == Original::Absent;
    if wanted.is_some() && !is_made || is_original {
        return seen;
    }
    let settled = record.settled.iter();
    let written = std::iter::once(&record.wrote).chain(settled).find(|one| one.agrees(&seen));
    written.cloned().unwrap_or(seen)
}
