//! How each source reads its part of a document. One file a source.

pub(crate) mod guests;
pub(crate) mod knobs;
pub(crate) mod namespaces;
pub(crate) mod nft;
pub(crate) mod rtnl;
