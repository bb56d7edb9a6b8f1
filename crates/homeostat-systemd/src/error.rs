//! Why systemd could not be asked, or what it refused.

use std::time::Duration;

/// Why systemd could not be asked, or what it refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no socket of systemd or of the system bus.
    #[error("systemd does not run here")]
    NotRunning,
    /// The bus is there, and systemd is not on it.
    #[error("systemd is not on the system bus")]
    NotOnBus,
    /// The connection failed, or ended.
    #[error("systemd cannot be reached: {why}")]
    Connection { why: String },
    /// There was no answer in time.
    #[error("systemd did not answer {method} within {} s", .after.as_secs())]
    Silent { method: &'static str, after: Duration },
    /// An answer to a call, in systemd's own words.
    #[error("{message}")]
    Refused {
        method: &'static str,
        /// The name of the error on the bus.
        name: String,
        message: String,
    },
}

impl Error {
    /// Whether there is no systemd to talk to on this machine at this time.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Error::NotRunning | Error::NotOnBus)
    }

    /// Whether systemd says that the unit has no file.
    #[must_use]
    pub fn is_no_such_file(&self) -> bool {
        const NAMES: [&str; 2] =
            ["org.freedesktop.DBus.Error.FileNotFound", "org.freedesktop.systemd1.NoSuchUnit"];
        matches!(self, Error::Refused { name, .. } if NAMES.contains(&name.as_str()))
    }

    /// What became of a call.
    pub(crate) fn of_call(method: &'static str, after: Duration, error: &zbus::Error) -> Self {
        match error {
            zbus::Error::MethodError(name, message, _) => Error::Refused {
                method,
                name: name.to_string(),
                message: message.clone().unwrap_or_else(|| name.to_string()),
            },
            zbus::Error::FDO(error) => Self::of_bus(method, after, error),
            zbus::Error::InputOutput(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                Error::Silent { method, after }
            }
            error => Error::Connection { why: error.to_string() },
        }
    }

    fn of_bus(method: &'static str, after: Duration, error: &zbus::fdo::Error) -> Self {
        use zbus::DBusError as _;
        use zbus::fdo::Error as Bus;
        match error {
            Bus::ServiceUnknown(_) | Bus::NameHasNoOwner(_) => Error::NotOnBus,
            Bus::NoReply(_) | Bus::Timeout(_) | Bus::TimedOut(_) => Error::Silent { method, after },
            Bus::Disconnected(why) => Error::Connection { why: why.clone() },
            error => Error::Refused {
                method,
                name: error.name().to_string(),
                message: error.description().unwrap_or_default().to_owned(),
            },
        }
    }
}
