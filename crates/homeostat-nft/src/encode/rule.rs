//! Rules, with the sets and chains that live inside them made first.

use homeostat_netlink::uapi::{
    NFT_CHAIN_BINDING, NFT_MSG_NEWCHAIN, NFT_MSG_NEWRULE, NFTA_CHAIN_FLAGS, NFTA_CHAIN_ID,
    NFTA_RULE_CHAIN, NFTA_RULE_CHAIN_ID, NFTA_RULE_EXPRESSIONS, NFTA_RULE_POSITION,
    NFTA_RULE_USERDATA, NLM_F_APPEND, NLM_F_CREATE,
};

use super::{Encoder, MAKE, Unwritable, Written, missing, put_name};
use crate::expression::{Becomes, Counts, Reference, Rewriting, counts, rewrite};
use crate::model::{Handle, Inside, Rule};

/// Where a rule goes.
enum At<'a> {
    /// Into a chain, before a rule that stays.
    Before(&'a str, Handle),
    /// To the end of a chain.
    End(&'a str),
    /// To the end of a chain without a name.
    EndOf(u32),
}

impl Encoder<'_> {
    pub(super) fn add_rule(
        &mut self,
        chain: &str,
        at: usize,
        before: Option<Handle>,
        replaces: Option<usize>,
    ) -> Written {
        let desired = self.declared()?.chains.get(chain).map(|chain| &chain.rules);
        let rule = desired.and_then(|rules| rules.get(at)).ok_or_else(|| missing(chain))?;
        let former = self.seen.and_then(|seen| seen.chains.get(chain)).zip(replaces);
        let former = former.and_then(|(seen, at)| seen.rules.get(at));
        let place = before.map_or(At::End(chain), |handle| At::Before(chain, handle));
        self.rule(rule, former, &place)
    }

    fn rule(&mut self, rule: &Rule, former: Option<&Rule>, at: &At<'_>) -> Written {
        let ids: Vec<u32> =
            rule.inside.iter().map(|inside| self.inside(inside)).collect::<Result<_, _>>()?;
        let carried = former.map(|former| counts(former.whole())).transpose()?;
        let mut ids = ids.into_iter();
        let refer = &mut |to: Reference| {
            let made = if rule.references.contains(&to) { None } else { ids.next() };
            made.map_or(Becomes::Named, Becomes::Made)
        };
        let counts = carried.as_deref().map_or(Counts::Kept, Counts::Carried);
        let expressions = rewrite(rule.whole(), &mut Rewriting { refer, counts })?;
        // Quirk `rules-are-prepended` (all kernels): without NLM_F_APPEND a rule comes first.
        let flags = if matches!(at, At::Before(..)) { 0 } else { NLM_F_APPEND };
        let mut message = self.message(NFT_MSG_NEWRULE, NLM_F_CREATE | flags);
        match at {
            At::Before(chain, handle) => {
                put_name(&mut message, NFTA_RULE_CHAIN, chain);
                message.attr(NFTA_RULE_POSITION, &handle.0.to_be_bytes());
            }
            At::End(chain) => put_name(&mut message, NFTA_RULE_CHAIN, chain),
            At::EndOf(id) => _ = message.attr_be32(NFTA_RULE_CHAIN_ID, *id),
        }
        message.nest(NFTA_RULE_EXPRESSIONS, |inside| _ = inside.fixed(&expressions));
        if let Some(userdata) = rule.userdata() {
            message.attr(NFTA_RULE_USERDATA, userdata);
        }
        Ok(message.finish()?)
    }

    fn inside(&mut self, inside: &Inside) -> Result<u32, Unwritable> {
        match inside {
            Inside::Set(set) => self.make_nameless_set(set),
            Inside::Chain(rules) => self.make_nameless_chain(rules),
        }
    }

    /// Quirk `bound-chains-are-closed` (Linux 6.18): no rule can be added to a chain without a name
    /// once a rule jumps to it, so it is filled before.
    fn make_nameless_chain(&mut self, rules: &[Rule]) -> Result<u32, Unwritable> {
        let id = self.next_id();
        let mut message = self.message(NFT_MSG_NEWCHAIN, MAKE);
        message.attr_be32(NFTA_CHAIN_ID, id).attr_be32(NFTA_CHAIN_FLAGS, NFT_CHAIN_BINDING);
        message.finish()?;
        for rule in rules {
            self.rule(rule, None, &At::EndOf(id))?;
        }
        Ok(id)
    }
}
