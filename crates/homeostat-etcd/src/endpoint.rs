//! Which members there are, and how they are reached.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::tls::TlsFiles;

/// The port on which members listen for clients.
const PORT: u16 = 2379;

/// The address of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// What is wrong with the address of a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address of a member: write HOST, HOST:PORT or [IPV6]:PORT")]
pub struct EndpointError(pub String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let refused = || EndpointError(text.to_owned());
        // An IPv6 address has colons of its own, so it stands in brackets.
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(refused)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| refused())?;
                (host, port)
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => PORT,
            None => return Err(refused()),
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(refused)?,
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_');
        if host.is_empty() || !host.chars().all(is_name) {
            return Err(refused());
        }
        Ok(Endpoint { host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How a store is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Its members.
    pub members: Vec<Endpoint>,
    /// The certificates; without them nothing is encrypted.
    pub tls: Option<TlsFiles>,
    /// The name of this client. Clients of different names ask the members in different orders.
    pub name: String,
    /// How long a call may take.
    pub deadline: Duration,
    /// After a lost connection the first new one is made at a random time within this. With many clients a store that
    /// comes back would otherwise be busy with their handshakes only.
    pub spread: Duration,
}

impl Config {
    /// Members that are reached without encryption.
    pub fn new(members: impl IntoIterator<Item = Endpoint>, name: impl Into<String>) -> Self {
        Config {
            members: members.into_iter().collect(),
            tls: None,
            name: name.into(),
            deadline: Duration::from_secs(5),
            spread: Duration::ZERO,
        }
    }

    /// The same with certificates.
    #[must_use]
    pub fn with_tls(self, tls: TlsFiles) -> Self {
        Config { tls: Some(tls), ..self }
    }

    /// The same with another deadline for calls.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Config { deadline, ..self }
    }

    /// The same with reconnects at random times within this.
    #[must_use]
    pub fn with_spread(self, spread: Duration) -> Self {
        Config { spread, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_members_are_understood_or_refused() {
        for (text, shown) in [
            ("etcd1", "etcd1:2379"),
            ("etcd1:2380", "etcd1:2380"),
            ("192.0.2.1:1", "192.0.2.1:1"),
            ("[2001:db8::1]", "[2001:db8::1]:2379"),
            ("[2001:db8::1]:99", "[2001:db8::1]:99"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            ":1",
            "a:",
            "a:0",
            "a:65536",
            "a:b",
            "[::1",
            "[x]:1",
            "[::1]1",
            "[::1]:",
            "a b",
            "2001:db8::1",
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError(text.to_owned())), "{text}");
        }
    }
}
