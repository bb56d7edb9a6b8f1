//! What messages of nftables are about.

use homeostat_netlink::uapi::{
    NFNL_SUBSYS_NFTABLES, NFT_MSG_DELCHAIN, NFT_MSG_DELOBJ, NFT_MSG_DELRULE, NFT_MSG_DELSET,
    NFT_MSG_DELSETELEM, NFT_MSG_DELTABLE, NFT_MSG_NEWCHAIN, NFT_MSG_NEWGEN, NFT_MSG_NEWOBJ,
    NFT_MSG_NEWRULE, NFT_MSG_NEWSET, NFT_MSG_NEWSETELEM, NFT_MSG_NEWTABLE,
};

/// The type of a message of nftables.
pub(crate) const fn kind(message: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | message
}

/// The end of a commit.
pub(crate) const COMMIT: u16 = kind(NFT_MSG_NEWGEN);
pub(crate) const TABLE: u16 = kind(NFT_MSG_NEWTABLE);
pub(crate) const NO_TABLE: u16 = kind(NFT_MSG_DELTABLE);
pub(crate) const CHAIN: u16 = kind(NFT_MSG_NEWCHAIN);
pub(crate) const NO_CHAIN: u16 = kind(NFT_MSG_DELCHAIN);
pub(crate) const RULE: u16 = kind(NFT_MSG_NEWRULE);
pub(crate) const NO_RULE: u16 = kind(NFT_MSG_DELRULE);
pub(crate) const SET: u16 = kind(NFT_MSG_NEWSET);
pub(crate) const NO_SET: u16 = kind(NFT_MSG_DELSET);
pub(crate) const ELEMENTS: u16 = kind(NFT_MSG_NEWSETELEM);
pub(crate) const NO_ELEMENTS: u16 = kind(NFT_MSG_DELSETELEM);
pub(crate) const OBJECT: u16 = kind(NFT_MSG_NEWOBJ);
pub(crate) const NO_OBJECT: u16 = kind(NFT_MSG_DELOBJ);
