//! Links: those with a kind are made, owned and deleted; others are only configured.
//!
//! Start at [`model`] for what a link is, at [`kinds`] for the options of each kind. The flow is that
//! of the crate: `observe` (with `decode` and `elsewhere`), `plan` (with `order` and `cascade`),
//! `apply` (with `encode` and `tun`).

pub(crate) mod alias;
pub(crate) mod apply;
pub(crate) mod carry;
pub(crate) mod cascade;
pub(crate) mod decode;
pub(crate) mod desired;
pub(crate) mod elsewhere;
pub(crate) mod encode;
pub(crate) mod field;
pub(crate) mod kinds;
pub(crate) mod model;
pub(crate) mod normalize;
pub(crate) mod observe;
pub(crate) mod order;
pub(crate) mod plan;
pub(crate) mod refusal;
#[cfg(feature = "document")]
pub(crate) mod section;
pub(crate) mod step;
pub(crate) mod table;
pub(crate) mod tun;
mod tun_sys;
pub(crate) mod words;
