//! IP addresses, read strictly.

use std::net::IpAddr;

use crate::error::ValueError;
use crate::shape::Text;

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
