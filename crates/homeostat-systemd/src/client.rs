//! Calls to systemd, and jobs followed to their end.

use std::collections::BTreeSet;
use std::io::{
    self,
    ErrorKind::{ConnectionRefused, NotFound},
};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};
use zbus::message::Type;

use zbus::wire::{DynamicDeserialize, DynamicType};
use zbus::{
    Connection, MatchRule, Message, MessageStream, OwnedObjectPath, OwnedVariant, connection,
};

use crate::error::Error;
use crate::name::UnitName;
use crate::private::PrivateSocket;

pub(crate) const DESTINATION: &str = "org.freedesktop.systemd1";
pub(crate) const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
pub(crate) const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// How long an answer to a call may take. Jobs take longer, but queueing one does not.
const ANSWER: Duration = Duration::from_secs(10);

/// How many ends of jobs may come while we wait for the number of ours. They are small.
const MOST_JOBS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// A connection to systemd.
#[derive(Clone, Debug)]
pub struct Systemd {
    bus: Connection,
}

/// A unit, in systemd's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub name: UnitName,
    /// `loaded`, `not-found`, `masked`, `bad-setting`, `error`.
    pub load: String,
    /// `active`, `inactive`, `failed`, `activating`, `deactivating`, `reloading`.
    pub active: String,
    /// The state that only this type of unit has, such as `auto-restart`.
    pub sub: String,
    path: OwnedObjectPath,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    Start,
    Stop,
    Restart,
    Reload,
    /// A reload, or a restart of a unit that knows no reload.
    ReloadOrRestart,
}

impl JobKind {
    fn method(self) -> &'static str {
        match self {
            JobKind::Start => "StartUnit",
            JobKind::Stop => "StopUnit",
            JobKind::Restart => "RestartUnit",
            JobKind::Reload => "ReloadUnit",
            JobKind::ReloadOrRestart => "ReloadOrRestartUnit",
        }
    }
}

/// How far a job came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// It is over: `done`, `failed`, `canceled`, `timeout`, `dependency`, `skipped`. It says what systemd did; whether
    /// the program took its new configuration is another question.
    Ended(String),
    /// It goes on after the wait, under this number.
    Running(u32),
}

/// What `ListUnitsByNames` says of a unit.
#[derive(Debug)]
pub(crate) struct UnitRow {
    name: String,
    pub(crate) load: String,
    pub(crate) active: String,
    sub: String,
    path: OwnedObjectPath,
    pub(crate) job: Option<QueuedJob>,
}

/// A job that has not ended.
#[derive(Debug)]
pub(crate) struct QueuedJob {
    pub(crate) number: u32,
    /// `start`, `stop` and others.
    pub(crate) kind: String,
}

/// A row of `ListUnitsByNames`.
type Row =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// What `EnableUnitFiles` and its like answer with: which links were made and removed.
type LinkChanges = Vec<(String, String, String)>;

impl Systemd {
    /// Connects to the systemd of a root directory, which is `/` for that of this machine.
    pub async fn connect(root: &Path) -> Result<Self, Error> {
        Ok(Systemd { bus: open(root).await? })
    }

    /// The state of units. Each is loaded, if it was not; one that does not exist has `load` `not-found`.
    pub async fn units(&self, names: &[&UnitName]) -> Result<Vec<Unit>, Error> {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let units = self.rows(&names).await?.into_iter();
        let units = units.filter_map(|UnitRow { name, load, active, sub, path, .. }| {
            Some(Unit { name: name.parse().ok()?, load, active, sub, path })
        });
        Ok(units.collect())
    }

    pub(crate) async fn rows(&self, names: &[&str]) -> Result<Vec<UnitRow>, Error> {
        let rows: Vec<Row> = self.ask("ListUnitsByNames", &(names,)).await?;
        let rows = rows.into_iter();
        let rows = rows.map(|(name, _, load, active, sub, _, path, number, kind, _)| {
            let job = (number != 0).then_some(QueuedJob { number, kind });
            UnitRow { name, load, active, sub, path, job }
        });
        Ok(rows.collect())
    }

    /// The state of one unit.
    pub async fn unit(&self, name: &UnitName) -> Result<Unit, Error> {
        let units = self.units(&[name]).await?;
        let missing = || Error::Refused {
            method: "ListUnitsByNames",
            name: String::new(),
            message: format!("systemd says nothing of {name}"),
        };
        units.into_iter().next().ok_or_else(missing)
    }

    /// The state of a unit's file: `enabled`, `disabled`, `static`, `masked` and others; nothing, if it has no file.
    pub async fn file_state(&self, name: &UnitName) -> Result<Option<String>, Error> {
        match self.ask("GetUnitFileState", &(name.as_str(),)).await {
            Ok(state) => Ok(Some(state)),
            Err(error) if error.is_no_such_file() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a service ends by itself when its work is done, and is inactive then.
    pub async fn ends_by_itself(&self, unit: &Unit) -> Result<bool, Error> {
        if !unit.name.is_service() || unit.load != "loaded" {
            return Ok(false);
        }
        let kind: String = self.property(unit, "Type").await?;
        if kind != "oneshot" {
            return Ok(false);
        }
        let remains: bool = self.property(unit, "RemainAfterExit").await?;
        Ok(!remains)
    }

    /// The first process of a service, as systemd counts processes; nothing, if it has none.
    pub async fn main_process(&self, unit: &Unit) -> Result<Option<u32>, Error> {
        if !unit.name.is_service() || unit.load != "loaded" {
            return Ok(None);
        }
        let process: u32 = self.property(unit, "MainPID").await?;
        Ok(Some(process).filter(|process| *process != 0))
    }

    /// Whether the boot goes on: units may then wait for those that wait for the caller.
    pub async fn is_booting(&self) -> Result<bool, Error> {
        let state: String = self.get(MANAGER_PATH, MANAGER, "SystemState").await?;
        Ok(matches!(state.as_str(), "initializing" | "starting"))
    }

    /// A property that units of all types have.
    pub(crate) async fn unit_property<T: TryFrom<OwnedVariant>>(
        &self,
        unit: &UnitRow,
        name: &'static str,
    ) -> Result<T, Error> {
        self.get(unit.path.as_str(), "org.freedesktop.systemd1.Unit", name).await
    }

    async fn property<T: TryFrom<OwnedVariant>>(
        &self,
        unit: &Unit,
        name: &'static str,
    ) -> Result<T, Error> {
        self.get(unit.path.as_str(), "org.freedesktop.systemd1.Service", name).await
    }

    async fn get<T: TryFrom<OwnedVariant>>(
        &self,
        path: &str,
        interface: &str,
        name: &'static str,
    ) -> Result<T, Error> {
        const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
        let body = (interface, name);
        let call = self.bus.call_method(Some(DESTINATION), path, Some(PROPERTIES), "Get", &body);
        let answer = call.await.map_err(|error| Error::of_call("Get", ANSWER, &error))?;
        let value: OwnedVariant = read("Get", &answer)?;
        T::try_from(value).map_err(|_| malformed("Get"))
    }

    /// Runs a job for a unit and waits for its end, but not longer than until `deadline`.
    pub async fn job(
        &self,
        kind: JobKind,
        name: &UnitName,
        deadline: Instant,
    ) -> Result<Job, Error> {
        // Subscribed before the job exists, so that its end cannot be missed.
        self.subscribe().await?;
        let rule = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender(DESTINATION)
            .interface(MANAGER)
            .member("JobRemoved")
            .build()
            .map_err(|error| connection_error(&error))?;
        let mut ends = MessageStream::for_match_rule(rule, &self.bus, Some(MOST_JOBS))
            .await
            .map_err(|error| connection_error(&error))?;
        let job: OwnedObjectPath = self.ask(kind.method(), &(name.as_str(), "replace")).await?;
        let number = job.as_str().rsplit('/').next().and_then(|number| number.parse().ok());
        let number: u32 = number.ok_or_else(|| malformed(kind.method()))?;
        loop {
            let signal = match timeout_at(deadline, ends.next()).await {
                Err(_) => return Ok(Job::Running(number)),
                Ok(None) => return Err(Error::Connection { why: "it was closed".to_owned() }),
                Ok(Some(signal)) => signal.map_err(|error| connection_error(&error))?,
            };
            let (ended, _, _, result): (u32, OwnedObjectPath, String, String) =
                read("JobRemoved", &signal)?;
            if ended == number {
                return Ok(Job::Ended(result));
            }
        }
    }

    /// Ends a job that has not ended. One that has is no error.
    pub(crate) async fn cancel(&self, number: u32) -> Result<(), Error> {
        match self.call("CancelJob", &(number,)).await {
            Err(Error::Refused { name, .. }) if name.ends_with(".NoSuchJob") => Ok(()),
            answered => answered.map(|_| ()),
        }
    }

    /// Has a unit start with those that want it, from the next boot on. Returns the units whose links have changed:
    /// others may come along with it.
    pub async fn enable(&self, name: &UnitName) -> Result<BTreeSet<UnitName>, Error> {
        let body = (vec![name.as_str()], false, false);
        let (_, changes): (bool, LinkChanges) = self.ask("EnableUnitFiles", &body).await?;
        Ok(units_of(&changes))
    }

    /// The opposite; with `until_boot`, of what was enabled until the next boot only.
    pub async fn disable(
        &self,
        name: &UnitName,
        until_boot: bool,
    ) -> Result<BTreeSet<UnitName>, Error> {
        let body = (vec![name.as_str()], until_boot);
        Ok(units_of(&self.ask("DisableUnitFiles", &body).await?))
    }

    /// Masks a unit: it cannot be started at all.
    pub async fn mask(&self, name: &UnitName) -> Result<BTreeSet<UnitName>, Error> {
        let body = (vec![name.as_str()], false, false);
        Ok(units_of(&self.ask("MaskUnitFiles", &body).await?))
    }

    /// The opposite; with `until_boot`, of what was masked until the next boot only.
    pub async fn unmask(
        &self,
        name: &UnitName,
        until_boot: bool,
    ) -> Result<BTreeSet<UnitName>, Error> {
        let body = (vec![name.as_str()], until_boot);
        Ok(units_of(&self.ask("UnmaskUnitFiles", &body).await?))
    }

    /// Has systemd read all unit files again.
    pub async fn reload(&self) -> Result<(), Error> {
        self.call("Reload", &()).await.map(|_| ())
    }

    /// Subscribes to systemd's signals; it sends none before a client has subscribed.
    pub(crate) async fn subscribe(&self) -> Result<(), Error> {
        match self.call("Subscribe", &()).await {
            Err(Error::Refused { name, .. }) if name.ends_with(".AlreadySubscribed") => Ok(()),
            answered => answered.map(|_| ()),
        }
    }

    pub(crate) fn bus(&self) -> &Connection {
        &self.bus
    }

    async fn ask<B, T>(&self, method: &'static str, body: &B) -> Result<T, Error>
    where
        B: serde::Serialize + DynamicType,
        T: for<'d> DynamicDeserialize<'d>,
    {
        read(method, &self.call(method, body).await?)
    }

    async fn call<B: serde::Serialize + DynamicType>(
        &self,
        method: &'static str,
        body: &B,
    ) -> Result<Message, Error> {
        let call =
            self.bus.call_method(Some(DESTINATION), MANAGER_PATH, Some(MANAGER), method, body);
        call.await.map_err(|error| Error::of_call(method, ANSWER, &error))
    }
}

/// The units that links are for: a link has the name of its unit.
fn units_of(changes: &LinkChanges) -> BTreeSet<UnitName> {
    let names = changes.iter().filter_map(|(_, link, _)| Path::new(link).file_name()?.to_str());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// The socket of the system bus below the root directory.
const BUS: &str = "run/dbus/system_bus_socket";

/// Systemd's own socket, which serves root alone: what there is until the bus is there.
const PRIVATE: &str = "run/systemd/private";

/// What systemd makes to say that it is running.
const RUNNING: &str = "run/systemd/system";

async fn open(root: &Path) -> Result<Connection, Error> {
    let building = async {
        match stream(root, BUS)? {
            Some(stream) => {
                let builder = connection::Builder::unix_stream(stream).method_timeout(ANSWER);
                builder.build().await.map_err(|error| connection_error(&error))
            }
            None => open_private(root).await,
        }
    };
    let silent = Error::Silent { method: "Hello", after: ANSWER };
    tokio::time::timeout(ANSWER, building).await.unwrap_or(Err(silent))
}

async fn open_private(root: &Path) -> Result<Connection, Error> {
    let Some(stream) = stream(root, PRIVATE)? else {
        let is_running = root.join(RUNNING).is_dir();
        let why = format!("there is neither /{BUS} nor /{PRIVATE}");
        return Err(if is_running { Error::Connection { why } } else { Error::NotRunning });
    };
    let failed = |error: io::Error| Error::Connection { why: error.to_string() };
    stream.set_nonblocking(true).map_err(failed)?;
    let stream = tokio::net::UnixStream::from_std(stream).map_err(failed)?;
    let (socket, id) = PrivateSocket::begin(stream).await.map_err(failed)?;
    let builder = connection::Builder::authenticated_socket(socket, id).p2p();
    builder.method_timeout(ANSWER).build().await.map_err(|error| connection_error(&error))
}

/// Connects to a local socket, if somebody listens there. That does not wait, unless its backlog is full.
fn stream(root: &Path, socket: &str) -> Result<Option<UnixStream>, Error> {
    match UnixStream::connect(root.join(socket)) {
        Ok(stream) => Ok(Some(stream)),
        // In a shutdown the file outlives the bus.
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => Ok(None),
        Err(error) => Err(Error::Connection { why: error.to_string() }),
    }
}

pub(crate) fn connection_error(error: &zbus::Error) -> Error {
    Error::Connection { why: error.to_string() }
}

pub(crate) fn read<T>(method: &'static str, message: &Message) -> Result<T, Error>
where
    T: for<'d> DynamicDeserialize<'d>,
{
    message.body().deserialize().map_err(|_| malformed(method))
}

fn malformed(method: &'static str) -> Error {
    Error::Connection { why: format!("the answer to {method} is not what systemd documents") }
}
