//! Where the API is.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rustls::pki_types::ServerName;

/// The port that Proxmox VE listens on.
const PORT: u16 = 8006;

/// A host and a port. The protocol is HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address, without brackets.
    pub host: String,
    pub port: u16,
}

/// A text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no endpoint: it looks like https://pve.example:8006")]
pub struct BadEndpoint(pub String);

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let bad = || BadEndpoint(text.to_owned());
        let rest = text.strip_prefix("https://").ok_or_else(bad)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(bad)?)),
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port: u16 = match port {
            None => PORT,
            Some(port) if port.starts_with('+') => return Err(bad()),
            Some(port) => port.parse().map_err(|_| bad())?,
        };
        let is_host = ServerName::try_from(host).is_ok();
        if !is_host || port == 0 || rest.starts_with('[') != host.contains(':') {
            return Err(bad());
        }
        // A host has one spelling, since the journal files what was sent to a cluster by its endpoint.
        let addr = host.parse().map(|addr: IpAddr| addr.to_string());
        Ok(Endpoint { host: addr.unwrap_or_else(|_| host.to_ascii_lowercase()), port })
    }
}

impl Endpoint {
    /// As requests name it.
    pub(crate) fn authority(&self) -> String {
        let Endpoint { host, port } = self;
        if host.contains(':') {
            return format!("[{host}]:{port}");
        }
        format!("{host}:{port}")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_https_with_a_host_and_perhaps_a_port() {
        let check = |text: &str, expected: Option<&str>| {
            let found = text.parse::<Endpoint>().ok().map(|endpoint| endpoint.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("https://pve.example:8006", Some("https://pve.example:8006"));
        check("https://pve.example/", Some("https://pve.example:8006"));
        check("https://[fd00::1]:443", Some("https://[fd00::1]:443"));
        check("https://[fd00::1]", Some("https://[fd00::1]:8006"));
        check("https://PVE.Example", Some("https://pve.example:8006"));
        check("https://[FD00:0::01]", Some("https://[fd00::1]:8006"));
        check("http://pve.example", None);
        check("pve.example", None);
        check("https://", None);
        check("https://user:secret@pve.example", None);
        check("https://pve.example:8006/api2/json", None);
        check("https://pve.example:0", None);
        check("https://pve.example:99999", None);
        check("https://pve.example:+8006", None);
        check("https://[pve.example]:8006", None);
        check("https://fd00::1", None);
        check("https://..", None);
        check("https://-", None);
        check("https://pve_1.lan", Some("https://pve_1.lan:8006"));
    }

    #[test]
    fn a_request_names_its_server_with_brackets_around_the_colons() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<Endpoint>().unwrap().authority(), expected);
        };
        check("https://[fd00::1]:443", "[fd00::1]:443");
        check("https://pve.example", "pve.example:8006");
    }
}
