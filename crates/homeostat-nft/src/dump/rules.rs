//! Rules as they come from the kernel, close together: most of them are looked at once and forgotten.

use std::ops::Range;

use homeostat_netlink::uapi::{
    NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE, NFTA_RULE_USERDATA,
};
use homeostat_netlink::{Attrs, Malformed};

use crate::model::Handle;
use crate::tlv::text;

/// Rules that are not yet put together.
#[derive(Debug, Default)]
pub(crate) struct RawRules {
    bytes: Vec<u8>,
    /// The names of chains, as often as the list came to another one.
    chains: Vec<String>,
    rules: Vec<RawRule>,
}

/// Where one of them is.
#[derive(Debug)]
pub(super) struct RawRule {
    pub(super) handle: Handle,
    chain: usize,
    expressions: Range<usize>,
    userdata: Option<Range<usize>>,
}

impl RawRules {
    pub(super) fn clear(&mut self) {
        *self = RawRules::default();
    }

    /// Takes one message.
    pub(crate) fn take(&mut self, attrs: Attrs<'_>) -> Result<(), Malformed> {
        let chain = text(&attrs, NFTA_RULE_CHAIN)?;
        if self.chains.last().is_none_or(|last| last != chain) {
            self.chains.push(chain.to_owned());
        }
        let (chain, expressions) = (self.chains.len() - 1, 0..0);
        let mut rule = RawRule { handle: Handle::default(), chain, expressions, userdata: None };
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_RULE_HANDLE => rule.handle = Handle(u64::from_be_bytes(attr.array()?)),
                NFTA_RULE_EXPRESSIONS => rule.expressions = self.keep(attr.value),
                NFTA_RULE_USERDATA => rule.userdata = Some(self.keep(attr.value)),
                _ => {}
            }
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Leaves out the one that came last.
    pub(crate) fn drop_last(&mut self) {
        self.rules.pop();
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    pub(super) fn all(&self) -> &[RawRule] {
        &self.rules
    }

    pub(super) fn chain(&self, rule: &RawRule) -> &str {
        self.chains.get(rule.chain).map_or("", |name| name)
    }

    pub(super) fn expressions(&self, rule: &RawRule) -> &[u8] {
        self.bytes.get(rule.expressions.clone()).unwrap_or_default()
    }

    pub(super) fn userdata(&self, rule: &RawRule) -> Option<&[u8]> {
        rule.userdata.clone().and_then(|place| self.bytes.get(place))
    }
}
