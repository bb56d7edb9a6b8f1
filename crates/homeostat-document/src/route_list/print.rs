//! A line as text again.

use std::fmt;

use super::line::RouteLine;
use crate::attributes::RouteType;

impl fmt::Display for RouteLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind != RouteType::Unicast {
            write!(f, "{} ", self.kind)?;
        }
        self.to.fmt(f)?;
        word(f, "via", self.via)?;
        word(f, "dev", self.dev)?;
        word(f, "nhid", self.nexthop)?;
        word(f, "table", self.table)?;
        word(f, "metric", self.metric)?;
        word(f, "src", self.src)?;
        word(f, "mtu", self.mtu)?;
        word(f, "scope", self.scope)?;
        word(f, "tos", self.tos)?;
        if self.onlink == Some(true) { f.write_str(" onlink") } else { Ok(()) }
    }
}

fn word(f: &mut fmt::Formatter<'_>, word: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {word} {value}"))
}
