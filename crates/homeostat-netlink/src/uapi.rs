//! The kernel's own constants and structs, taken from generated bindings: nothing here is typed from memory. Only
//! those that this workspace uses are here.
//!
//! Names come from `linux-raw-sys`; what it lacks (nexthops, veth, tunnels, nftables) is in `generated.rs` and `nft.rs`, made by
//! `uapi/generate.sh` of this crate from Debian's `linux-libc-dev`. Here each constant only gets the
//! integer type of the field that carries it, checked when compiling.
#![expect(missing_docs, reason = "the kernel's own names, documented by the kernel")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "constants are converted at compile time and checked there"
)]

mod core;
mod generated;
mod link;
mod nft;
mod rtnl;

pub use self::core::*;
pub use generated::*;
pub use link::*;
pub use nft::*;
pub use rtnl::*;

pub use linux_raw_sys::netlink::{
    fib_rule_hdr, ifa_cacheinfo, ifaddrmsg, ifinfomsg, ndmsg, nlattr, nlmsghdr, rtmsg, rtnexthop,
    tcmsg,
};

use linux_raw_sys::netlink as raw;

/// Takes constants over from the bindings, with the integer type of the field that carries them.
/// The bindings hold some as integers and some as enums; one that does not fit its type fails to compile.
macro_rules! constants {
    ($from:path as $int:ty: $($name:ident)+) => {
        $(
            pub const $name: $int = {
                use $from::*;
                let value = $name as u32;
                assert!(value <= <$int>::MAX as u32);
                value as $int
            };
        )+
    };
}
use constants;
