//! How links of a kind depend on other links: on the one below, on those that belong to them, and on links that need
//! the same. Each kind states it once; planning and applying ask here and do not name kinds.

/// What distinguishes the links of one kind, whatever their options are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behaviour {
    pub(crate) parent: Parent,
    pub(crate) mtu: MtuOnParent,
    /// What a new link has less than the MTU of its parent.
    pub(crate) overhead: u32,
    /// Whether it goes up and down with its parent.
    pub(crate) follows_state: bool,
    pub(crate) mac: OwnMac,
    pub(crate) ports: Ports,
    pub(crate) occupies: Occupies,
    /// Whether its other end is a program, so that only `/dev/net/tun` creates it.
    pub(crate) is_tun: bool,
}

impl Behaviour {
    /// A link that depends on no other.
    pub(crate) const PLAIN: Behaviour = Behaviour {
        parent: Parent::None,
        mtu: MtuOnParent::Own,
        overhead: 0,
        follows_state: false,
        mac: OwnMac::Settable,
        ports: Ports::None,
        occupies: Occupies::Nothing,
        is_tun: false,
    };
}

/// Whether a link stands on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    None,
    /// It may, and can be put on another one in its namespace: a tunnel.
    Optional,
    Required,
}

/// What the MTU of the parent means for that of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MtuOnParent {
    Own,
    /// It cannot be larger, and is lowered with it.
    Lowered,
    /// It always is the same.
    Same,
}

/// Whether a link has a hardware address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnMac {
    Settable,
    /// It gets one when it is made, which cannot be changed.
    Fixed,
    /// It has that of its parent, or carries bare IP packets.
    None,
}

/// How a link and those that belong to it depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// No link can belong to it.
    None,
    /// It has its carrier by its ports. Unless they were set, its MTU is that of the smallest port and its hardware
    /// address the lowest of all.
    SetItsValues,
    /// It has its carrier and its first hardware address by its ports, which then get its MTU and hardware address. A
    /// port must be down when it joins.
    GetItsValues,
    /// They share no values. A port goes down for a moment when it joins.
    KeepTheirValues,
}

impl Ports {
    /// Whether carrier and hardware address come from the ports.
    pub(crate) fn give_carrier(self) -> bool {
        matches!(self, Ports::SetItsValues | Ports::GetItsValues)
    }

    /// Whether a link goes down, for a moment at least, when it joins.
    pub(crate) fn go_down_first(self) -> bool {
        matches!(self, Ports::GetItsValues | Ports::KeepTheirValues)
    }
}

/// Where one link can keep another from being made. Which options collide there is `Options::excludes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupies {
    Nothing,
    /// In the whole namespace.
    Namespace,
    /// On the same parent.
    Parent,
    /// On the same parent, whose packets go to links of one such kind only, and not to a bridge or bond.
    ParentPackets,
}
