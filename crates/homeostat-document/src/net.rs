//! Addresses, prefixes and hardware addresses, read strictly.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::error::ValueError;
use crate::shape::Text;
use crate::words::words;

/// An address with the length of its network part. Host bits are kept as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

/// A hardware address of six bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// A destination or a source: a prefix, a lone address (all its bits count), or `default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Network {
    /// The prefix as written, host bits included.
    pub(crate) prefix: Prefix,
    /// Whether it was written as the word `default`.
    pub(crate) is_default_word: bool,
}

words! {
    /// An address family.
    Family, "an address family":
    /// IPv4.
    V4 = "ipv4",
    /// IPv6.
    V6 = "ipv6",
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub const fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl Prefix {
    /// A prefix, if the length fits the family.
    #[must_use]
    pub const fn new(addr: IpAddr, len: u8) -> Option<Self> {
        if len <= bits(addr) { Some(Self { addr, len }) } else { None }
    }

    /// The address as written, host bits included.
    #[must_use]
    pub const fn addr(self) -> IpAddr {
        self.addr
    }

    /// Length of the network part in bits.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length in bits, not of a collection")]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// The same prefix without host bits.
    #[must_use]
    pub fn masked(self) -> Self {
        let addr = match self.addr {
            IpAddr::V4(addr) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(addr.to_bits() & mask))
            }
            IpAddr::V6(addr) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() & mask))
            }
        };
        Self { addr, len: self.len }
    }

    /// The family of its address.
    #[must_use]
    pub const fn family(self) -> Family {
        Family::of(self.addr)
    }

    /// The prefix that holds this one address.
    #[must_use]
    pub const fn host(addr: IpAddr) -> Self {
        Self { addr, len: bits(addr) }
    }
}

const fn bits(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl FromStr for Prefix {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let Some((addr, len)) = text.split_once('/') else {
            let addr = IpAddr::from_text(text)?;
            let message = format!("`{text}` has no prefix length");
            return Err(ValueError::new(message).help(format!("write `{}`", Self::host(addr))));
        };
        let addr = IpAddr::from_text(addr)?;
        let plain = !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
        let plain = plain && (len == "0" || !len.starts_with('0'));
        let number = len.parse().ok().filter(|_| plain);
        number.and_then(|len| Self::new(addr, len)).ok_or_else(|| {
            let family = if addr.is_ipv4() { "IPv4" } else { "IPv6" };
            ValueError::new(format!("`/{len}` is not a prefix length of {family}"))
                .help(format!("it must be from /0 to /{}", bits(addr)))
        })
    }
}

impl Text for Prefix {
    const WHAT: &'static str = "an address with a prefix length, such as \"192.0.2.1/24\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl Text for Network {
    const WHAT: &'static str = "a prefix, an address or `default`";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        if text == "default" {
            let prefix = Prefix { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
            return Ok(Self { prefix, is_default_word: true });
        }
        let prefix =
            if text.contains('/') { text.parse()? } else { Prefix::host(IpAddr::from_text(text)?) };
        Ok(Self { prefix, is_default_word: false })
    }
}

impl Text for IpAddr {
    const WHAT: &'static str = "an IP address";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| {
            let error = ValueError::is_not(text, Self::WHAT);
            match text.split_once('/') {
                Some((addr, _)) if addr.parse::<Self>().is_ok() => {
                    error.help(format!("write it without a prefix length: `{addr}`"))
                }
                _ => error,
            }
        })
    }
}

impl FromStr for Mac {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let refuse = || {
            ValueError::is_not(text, Self::WHAT)
                .help("write six bytes in hexadecimal, such as \"02:00:00:00:00:01\"")
        };
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(refuse)?;
            let hex = part.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| hex).ok_or_else(refuse)?;
        }
        if parts.next().is_some() { Err(refuse()) } else { Ok(Self(bytes)) }
    }
}

impl Text for Mac {
    const WHAT: &'static str = "a hardware address";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_strictly() {
        for text in ["10.0.0.1/24", "0.0.0.0/0", "fd00::1/64", "::/0", "::ffff:1.2.3.4/128"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "/",
            "10.0.0/24",
            "10.0.0.1",
            "10.0.0.1/33",
            "::/129",
            "10.0.0.1/",
            "10.0.0.1/+8",
            "10.0.0.1/08",
            "010.0.0.1/8",
            "10.0.0.1/8/8",
            " 10.0.0.1/8",
            "10.0.0.1/-1",
            "10.0.0.1/255.0.0.0",
            "fe80::1%eth0/64",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn masking_clears_host_bits_only() {
        for (text, masked) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("fd00::1/64", "fd00::/64"),
            ("fd00::1/0", "::/0"),
            ("fd00::1/128", "fd00::1/128"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().masked().to_string(), masked);
        }
    }

    #[test]
    fn hardware_addresses_have_six_bytes() {
        assert_eq!("02:00:0a:FF:00:09".parse::<Mac>().unwrap().to_string(), "02:00:0a:ff:00:09");
        for text in [
            "",
            "02:00",
            "02:00:00:00:00:0g",
            "2:0:0:0:0:9",
            "02:00:00:00:00:09:01",
            "+1:00:00:00:00:00",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
