//! Which rule: its family, its place, and the packets that it is for.

use std::fmt;

use crate::family::Family;
use crate::link::LinkName;
use crate::net::Net;
use crate::normalize::Impossible;
use crate::number::Tos;
use crate::rule::{IpProtocol, Mark, Ports};

/// Which rule. One without a priority is wherever the kernel put it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleKey {
    family: Family,
    priority: Option<u32>,
    from: Option<Net>,
    to: Option<Net>,
    iif: Option<LinkName>,
    oif: Option<LinkName>,
    fwmark: Option<Mark>,
    ipproto: Option<IpProtocol>,
    sport: Option<Ports>,
    dport: Option<Ports>,
    tos: Tos,
}

/// Defines what a rule asks of a packet: how it is declared, and how it is read.
macro_rules! selectors {
    ($($with:ident $name:ident: $type:ty, $doc:literal;)+) => {
        impl RuleKey {
            $(
                #[doc = concat!("The same for packets ", $doc, ".")]
                #[must_use]
                pub fn $with(mut self, $name: $type) -> Self {
                    self.$name = Some($name);
                    self.plain()
                }

                #[doc = concat!("Only packets ", $doc, ", if it says so.")]
                #[must_use]
                pub fn $name(&self) -> Option<$type> {
                    self.$name
                }
            )+
        }
    };
}

selectors! {
    with_from from: Net, "from this network";
    with_to to: Net, "to this network";
    with_iif iif: LinkName, "that came in by this link, which need not be there yet";
    with_oif oif: LinkName, "bound to this link, which need not be there yet";
    with_fwmark fwmark: Mark, "with this firewall mark";
    with_ipproto ipproto: IpProtocol, "of this protocol";
    with_sport sport: Ports, "from these ports";
    with_dport dport: Ports, "to these ports";
}

impl RuleKey {
    /// The rule for all packets of a family, wherever the kernel puts it.
    #[must_use]
    pub fn new(family: Family) -> Self {
        RuleKey {
            family,
            priority: None,
            from: None,
            to: None,
            iif: None,
            oif: None,
            fwmark: None,
            ipproto: None,
            sport: None,
            dport: None,
            tos: Tos::default(),
        }
    }

    /// The same at this place: the smallest is asked first.
    #[must_use]
    pub fn with_priority(mut self, priority: u32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The same for packets with this type of service.
    #[must_use]
    pub fn with_tos(mut self, tos: Tos) -> Self {
        self.tos = tos;
        self
    }

    /// The family.
    #[must_use]
    pub fn family(&self) -> Family {
        self.family
    }

    /// The place, if it is not left to the kernel.
    #[must_use]
    pub fn priority(&self) -> Option<u32> {
        self.priority
    }

    /// The type of service; zero is any.
    #[must_use]
    pub fn tos(&self) -> Tos {
        self.tos
    }

    pub(crate) fn is_ipv4(&self) -> bool {
        self.family == Family::V4
    }

    /// The same wherever it is.
    pub(crate) fn anywhere(mut self) -> Self {
        self.priority = None;
        self
    }

    /// How many things it asks of a packet.
    pub(crate) fn count(&self) -> usize {
        let nets = usize::from(self.from.is_some()) + usize::from(self.to.is_some());
        let links = usize::from(self.iif.is_some()) + usize::from(self.oif.is_some());
        let ports = usize::from(self.sport.is_some()) + usize::from(self.dport.is_some());
        let rest = usize::from(self.fwmark.is_some()) + usize::from(self.ipproto.is_some());
        nets + links + ports + rest + usize::from(self.tos != Tos::default())
    }

    /// What asks nothing is as good as not said.
    fn plain(mut self) -> Self {
        let asks = |net: &Net| net.prefix_len() != 0 || Family::of(net.addr()) != self.family;
        (self.from, self.to) = (self.from.filter(asks), self.to.filter(asks));
        self.fwmark = self.fwmark.filter(|mark| mark.mask != 0);
        self.ipproto = self.ipproto.filter(|protocol| protocol.0 != 0);
        self
    }

    /// Whether the kernel would take this rule for one that is asked for, as far as packets go.
    pub(super) fn fits(&self, asked: &RuleKey) -> bool {
        fits(self.from, asked.from)
            && fits(self.to, asked.to)
            && fits(self.iif, asked.iif)
            && fits(self.oif, asked.oif)
            && fits(self.sport, asked.sport)
            && fits(self.dport, asked.dport)
            && fits(self.fwmark, asked.fwmark)
            && fits(self.ipproto, asked.ipproto)
            && (asked.tos == Tos::default() || self.tos == asked.tos)
    }

    /// Why a rule for these packets can never be.
    pub(super) fn check(&self) -> Result<(), Impossible> {
        let nets = self.from.into_iter().chain(self.to);
        let mut ports = self.sport.into_iter().chain(self.dport);
        let has_ports = |protocol: IpProtocol| [6, 17, 33, 132].contains(&protocol.0);
        // Quirk `rule-ports-end-at-65534` (Linux 6.18): the last port is refused in a rule.
        let is_odd =
            |ports: &Ports| ports.first == 0 || ports.last < ports.first || ports.last == u16::MAX;
        if nets.into_iter().any(|net| Family::of(net.addr()) != self.family) {
            return Err(Impossible::RuleFamily);
        }
        if ports.clone().next().is_some() && !self.ipproto.is_some_and(has_ports) {
            return Err(Impossible::PortsWithoutProtocol);
        }
        match ports.any(|ports| is_odd(&ports)) {
            true => Err(Impossible::RulePorts),
            false if self.tos.0 & 3 != 0 => Err(Impossible::TosOfRule),
            false => Ok(()),
        }
    }

    /// Reads what follows the word `rule`.
    pub(crate) fn read(words: &[&str]) -> Option<Self> {
        let (family, words) = match words {
            ["inet6", words @ ..] => (Some(Family::V6), words),
            words => (None, words),
        };
        let net = |name| words.chunks(2).find(|pair| pair.first() == Some(&name));
        let net = net("from").or_else(|| net("to")).and_then(|pair| pair.get(1));
        let net: Option<Net> = net.map(|net| net.parse()).transpose().ok()?;
        let told = family.or_else(|| net.map(|net| Family::of(net.addr())));
        let key = RuleKey::new(told.unwrap_or(Family::V4));
        words.chunks(2).try_fold(key, |key, pair| match pair {
            [name, value] => key.read_one(name, value),
            _ => None,
        })
    }

    fn read_one(self, name: &str, value: &str) -> Option<Self> {
        Some(match name {
            "priority" => self.with_priority(value.parse().ok()?),
            "from" => self.with_from(value.parse().ok()?),
            "to" => self.with_to(value.parse().ok()?),
            "iif" => self.with_iif(value.parse().ok()?),
            "oif" => self.with_oif(value.parse().ok()?),
            "fwmark" => self.with_fwmark(value.parse().ok()?),
            "ipproto" => self.with_ipproto(value.parse().ok()?),
            "sport" => self.with_sport(value.parse().ok()?),
            "dport" => self.with_dport(value.parse().ok()?),
            "tos" => self.with_tos(Tos(value.parse().ok()?)),
            _ => return None,
        })
    }
}

/// A request that does not say fits everything.
pub(super) fn fits<T: PartialEq + Copy>(one: Option<T>, asked: Option<T>) -> bool {
    asked.is_none() || one == asked
}

impl fmt::Display for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuleKey { family, priority, from, to, iif, oif, fwmark, ipproto, .. } = self;
        f.write_str("rule")?;
        if *family == Family::V6 && from.is_none() && to.is_none() {
            f.write_str(" inet6")?;
        }
        tell(f, "priority", priority.as_ref())?;
        tell(f, "from", from.as_ref())?;
        tell(f, "to", to.as_ref())?;
        tell(f, "iif", iif.as_ref())?;
        tell(f, "oif", oif.as_ref())?;
        tell(f, "fwmark", fwmark.as_ref())?;
        tell(f, "ipproto", ipproto.as_ref())?;
        tell(f, "sport", self.sport.as_ref())?;
        tell(f, "dport", self.dport.as_ref())?;
        tell(f, "tos", Some(&self.tos.0).filter(|tos| **tos != 0))
    }
}

fn tell(f: &mut fmt::Formatter<'_>, name: &str, value: Option<&impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name} {value}"))
}
