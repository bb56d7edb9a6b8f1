//! The connection through which an operator works: a change of what carries it may cut the operator off.

use std::net::IpAddr;

/// A connection between this machine and an operator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The address of this machine.
    pub local: IpAddr,
    /// The address of the operator's.
    pub remote: IpAddr,
    /// The route that answers take, if one is known.
    pub route: Option<Way>,
}

/// A route that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// How many bits of the address it goes by.
    pub prefix_len: u8,
    /// The name of the link that it leads to.
    pub link: String,
}
