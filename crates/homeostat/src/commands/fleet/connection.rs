//! How the store of a fleet is reached: by options, by the environment, by a configuration file, in this order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_engine::{Failure, Retry};
use homeostat_etcd::{Config, Endpoint, EtcdStore, TlsFiles};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::{AllowedSigners, Name};
use homeostat_store::{Error as StoreError, Store};
use serde::Deserialize;

use super::args::ConnectionArgs;
use crate::failure::helped;

/// The configuration file. Paths are relative to it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ConfigFile {
    fleet: Option<Name>,
    endpoints: Option<Vec<String>>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    signing_key: Option<PathBuf>,
    allowed_signers: Option<PathBuf>,
    signatures: Option<usize>,
}

/// What a command knows of its fleet before it asks the store.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    fleet: Option<Name>,
    endpoints: Vec<Endpoint>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    pub(super) signing_key: Option<PathBuf>,
    allowed_signers: Option<PathBuf>,
    signatures: usize,
}

/// A fleet and its store.
#[derive(Clone)]
pub(super) struct Fleet {
    pub(super) name: Name,
    pub(super) keys: Keys,
    pub(super) store: Arc<dyn Store>,
}

impl Connection {
    pub(super) fn find(args: &ConnectionArgs) -> Result<Self> {
        let file = ConfigFile::find(args)?;
        let path = |given: &Option<PathBuf>, variable: &str, file: Option<PathBuf>| {
            given.clone().or_else(|| variable_of(variable).map(PathBuf::from)).or(file)
        };
        let fleet = match (&args.fleet, variable_of("HOMEOSTAT_FLEET")) {
            (Some(fleet), _) => Some(fleet.clone()),
            (None, Some(text)) => {
                Some(text.parse().context("HOMEOSTAT_FLEET does not name a fleet")?)
            }
            (None, None) => file.fleet,
        };
        let endpoints = match variable_of("HOMEOSTAT_FLEET_ENDPOINTS") {
            _ if !args.endpoints.is_empty() => args.endpoints.clone(),
            Some(text) => parse_endpoints(text.split(','))
                .context("HOMEOSTAT_FLEET_ENDPOINTS cannot be used")?,
            None => parse_endpoints(file.endpoints.iter().flatten().map(String::as_str))
                .context("`endpoints` of the configuration file cannot be used")?,
        };
        Ok(Connection {
            fleet,
            endpoints,
            ca: path(&args.ca, "HOMEOSTAT_FLEET_CA", file.ca),
            certificate: path(&args.certificate, "HOMEOSTAT_FLEET_CERTIFICATE", file.certificate),
            key: path(&args.key, "HOMEOSTAT_FLEET_KEY", file.key),
            signing_key: file.signing_key,
            allowed_signers: file.allowed_signers,
            signatures: file.signatures.unwrap_or(1),
        })
    }

    /// The name of the fleet.
    pub(super) fn fleet_name(&self) -> Result<Name> {
        self.fleet.clone().ok_or_else(|| {
            helped(
                "no fleet is named",
                "give --fleet NAME, or write `fleet = \"NAME\"` to /etc/homeostat/fleet.toml",
            )
        })
    }

    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Nothing is sent before the first call.
    pub(super) fn open(&self) -> Result<Fleet> {
        let name = self.fleet_name()?;
        if self.endpoints.is_empty() {
            return Err(helped(
                "no member of etcd is named",
                "give --endpoints HOST:PORT,..., or write `endpoints = [...]` to /etc/homeostat/fleet.toml",
            ));
        }
        let mut config = Config::new(self.endpoints.iter().cloned(), "operator");
        match (&self.ca, &self.certificate, &self.key) {
            (None, None, None) => {}
            (Some(ca), None, None) => config = config.with_tls(TlsFiles::new(ca)),
            (Some(ca), Some(certificate), Some(key)) => {
                config = config.with_tls(TlsFiles::new(ca).with_client(certificate, key));
            }
            _ => {
                return Err(helped(
                    "certificates are incomplete",
                    "give --ca, --certificate and --key together, or only --ca, or none of them",
                ));
            }
        }
        let keys = Keys::new(&name);
        Ok(Fleet { name, keys, store: Arc::new(EtcdStore::new(config)) })
    }

    /// The same with other signers.
    pub(super) fn with_signers(self, file: Option<PathBuf>, needed: Option<u16>) -> Self {
        Connection {
            allowed_signers: file.or(self.allowed_signers),
            signatures: needed.map_or(self.signatures, usize::from),
            ..self
        }
    }

    /// Who may sign, as far as this host knows; and how many of them must.
    pub(super) fn allowed_signers(&self) -> Result<Option<(AllowedSigners, usize)>> {
        let Some(path) = &self.allowed_signers else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let signers = AllowedSigners::parse(&text).with_context(|| path.display().to_string())?;
        Ok(Some((signers, self.signatures)))
    }
}

impl ConfigFile {
    fn find(args: &ConnectionArgs) -> Result<Self> {
        let named = args.config.clone();
        let named = named.or_else(|| variable_of("HOMEOSTAT_FLEET_CONFIG").map(PathBuf::from));
        if let Some(path) = named {
            return Self::read(&path);
        }
        let home = variable_of("HOME").map(|home| Path::new(&home).join(".config"));
        let own = variable_of("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
        let own = own.map(|directory| directory.join("homeostat/fleet.toml"));
        let all = own.into_iter().chain([PathBuf::from("/etc/homeostat/fleet.toml")]);
        match all.into_iter().find(|path| path.exists()) {
            Some(path) => Self::read(&path),
            None => Ok(ConfigFile::default()),
        }
    }

    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut file: ConfigFile =
            toml::from_str(&text).with_context(|| path.display().to_string())?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let ConfigFile { ca, certificate, key, signing_key, allowed_signers, .. } = &mut file;
        for named in [ca, certificate, key, signing_key, allowed_signers].into_iter().flatten() {
            *named = directory.join(&*named);
        }
        Ok(file)
    }
}

fn parse_endpoints<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<Endpoint>> {
    let named = texts.map(str::trim).filter(|text| !text.is_empty());
    named.map(|text| text.parse().map_err(anyhow::Error::from)).collect()
}

fn variable_of(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// A failure of the store, for people.
pub(super) fn of_store(error: StoreError) -> anyhow::Error {
    let unreachable = matches!(error, StoreError::Unreachable { .. } | StoreError::NoLeader);
    let failure = Failure::from(error);
    if unreachable && failure.help.is_none() {
        let help = "check --endpoints and the certificates, and `etcdctl endpoint health`";
        return Failure::new(failure.error, Retry::Soon).with_help(help).into();
    }
    failure.into()
}
