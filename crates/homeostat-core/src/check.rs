//! What can be checked: an address answers, a port accepts connections, a server answers a request, a program succeeds.
//! Only what a check is and how it is written; who runs it is another matter.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One check, written as `ping:192.0.2.1`, `tcp:192.0.2.1:22`, `http://192.0.2.1:8080/health` or
/// `cmd:/usr/local/bin/healthy --all`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Check {
    /// The address answers an echo request.
    Ping(IpAddr),
    /// The port accepts a connection.
    Tcp(SocketAddr),
    /// The server answers a request for a path with a status of 200 to 399.
    Http {
        /// Where it listens.
        address: SocketAddr,
        /// What is asked for, from the first `/` on.
        path: String,
    },
    /// The program, which is started without a shell, exits with 0.
    Program {
        /// Its absolute path.
        path: String,
        /// What it is started with.
        arguments: Vec<String>,
    },
}

impl Check {
    /// The ways to write one.
    pub const KINDS: &'static str = "a check is ping:ADDRESS, tcp:ADDRESS:PORT, http://ADDRESS:PORT/PATH or cmd:/PATH \
                                     [ARGUMENTS]";
}

/// Why a text is no check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no check: {why}")]
pub struct CheckError {
    text: String,
    why: String,
}

/// The port of a URL without one.
const HTTP: u16 = 80;

impl FromStr for Check {
    type Err = CheckError;

    fn from_str(text: &str) -> Result<Self, CheckError> {
        let bad = |why: &str| CheckError { text: text.to_owned(), why: why.to_owned() };
        let (kind, of) = text.split_once(':').ok_or_else(|| bad("it names no kind"))?;
        match kind {
            "ping" | "tcp" if of.is_empty() => Err(bad("it names no address")),
            "ping" => {
                let address = of.parse().map_err(|_| bad("that is no IP address"))?;
                Ok(Check::Ping(address))
            }
            "tcp" => {
                let why =
                    "that is no IP address with a port, such as 192.0.2.1:22 or [2001:db8::1]:22";
                match of.parse::<SocketAddr>().map_err(|_| bad(why))? {
                    address if address.port() == 0 => Err(bad("there is no port 0")),
                    address => Ok(Check::Tcp(address)),
                }
            }
            "http" => http(of).map_err(bad),
            "cmd" => {
                let mut words = of.split_whitespace().map(str::to_owned);
                let path = words.next().ok_or_else(|| bad("it names no program"))?;
                if !path.starts_with('/') {
                    return Err(bad("the program needs an absolute path"));
                }
                Ok(Check::Program { path, arguments: words.collect() })
            }
            _ => Err(bad(&format!(
                "there is no kind `{kind}`; write ping:ADDRESS, tcp:ADDRESS:PORT, http://ADDRESS:PORT/PATH or cmd:/PATH"
            ))),
        }
    }
}

/// Reads what comes after `http:`.
fn http(of: &str) -> Result<Check, &'static str> {
    let rest = of.strip_prefix("//").ok_or("it begins with http://")?;
    let end = rest.find('/').unwrap_or(rest.len());
    let (server, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let path = if path.is_empty() { "/" } else { path };
    if path.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err("its path has characters that a URL cannot have");
    }
    let bare = server.strip_prefix('[').and_then(|server| server.strip_suffix(']'));
    let without_port = bare.unwrap_or(server).parse::<IpAddr>().ok();
    let without_port = without_port.filter(|address| address.is_ipv4() == bare.is_none());
    let address = without_port.map(|address| SocketAddr::new(address, HTTP));
    let address = address.or_else(|| server.parse().ok()).ok_or(
        "its server is no IP address, such as 192.0.2.1:8080 or [2001:db8::1]:8080; names are not resolved",
    )?;
    if address.port() == 0 {
        return Err("there is no port 0");
    }
    Ok(Check::Http { address, path: path.to_owned() })
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Check::Ping(address) => write!(f, "ping:{address}"),
            Check::Tcp(address) => write!(f, "tcp:{address}"),
            Check::Http { address, path } => write!(f, "http://{address}{path}"),
            Check::Program { path, arguments } => {
                write!(f, "cmd:{path}")?;
                arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
            }
        }
    }
}

impl TryFrom<String> for Check {
    type Error = CheckError;

    fn try_from(text: String) -> Result<Self, CheckError> {
        text.parse()
    }
}

impl From<Check> for String {
    fn from(check: Check) -> Self {
        check.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_written_as_it_is_read() {
        for text in [
            "ping:192.0.2.1",
            "ping:2001:db8::1",
            "tcp:[2001:db8::1]:22",
            "http://192.0.2.1:8080/health?deep=1",
            "http://[2001:db8::1]:80/",
            "cmd:/bin/ok --all 1",
        ] {
            assert_eq!(text.parse::<Check>().unwrap().to_string(), text);
        }
        for (short, whole) in [
            ("http://192.0.2.1", "http://192.0.2.1:80/"),
            ("http://[2001:db8::1]/a", "http://[2001:db8::1]:80/a"),
        ] {
            assert_eq!(short.parse::<Check>().unwrap().to_string(), whole);
        }
    }

    #[test]
    fn what_is_no_check_is_refused_with_a_reason() {
        for (text, why) in [
            ("", "it names no kind"),
            ("icmp:192.0.2.1", "there is no kind `icmp`; write ping:ADDRESS"),
            ("ping:", "it names no address"),
            ("ping:example.org", "no IP address"),
            ("tcp:192.0.2.1", "no IP address with a port"),
            ("tcp:192.0.2.1:0", "there is no port 0"),
            ("tcp::22", "no IP address with a port"),
            ("http:192.0.2.1", "begins with http://"),
            ("http://example.org/", "names are not resolved"),
            ("http://2001:db8::1/", "no IP address"),
            ("http://[192.0.2.1]/", "no IP address"),
            ("http://192.0.2.1:0/", "there is no port 0"),
            ("http://192.0.2.1/a b", "characters"),
            ("https://192.0.2.1/", "there is no kind `https`"),
            ("cmd:", "it names no program"),
            ("cmd:healthy", "absolute path"),
        ] {
            let error = text.parse::<Check>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
