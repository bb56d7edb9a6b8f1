//! Expressions of rules and elements: opaque bytes but for what they refer to and what packets change.
//!
//! Start at [`rewrite`].

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Attr, Attrs, Malformed};

use crate::model::{ObjectId, Part};
use crate::wire::{Tlvs, be32, name, text};

/// What a reference becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// It names something that has a name.
    Named,
    /// Its name is the kernel's own, and left out.
    Blank,
    /// It names what is created in the same transaction under this id.
    Created(u32),
}

/// What packets have changed of one expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    expression: String,
    attrs: Box<[u8]>,
}

/// How counters and other state are treated.
#[derive(Clone, Copy)]
pub(crate) enum Counts<'a> {
    /// They are left out, for comparing.
    Masked,
    /// They stay as they are.
    Kept,
    /// They become those of another rule, in order.
    Carried(&'a [Count]),
}

/// How expressions are rewritten.
pub(crate) struct Rewriting<'a> {
    pub(crate) refer: &'a mut dyn FnMut(Part) -> Becomes,
    pub(crate) counts: Counts<'a>,
}

/// Rewrites a list of expressions.
pub(crate) fn rewrite(list: &[u8], how: &mut Rewriting<'_>) -> Result<Box<[u8]>, Malformed> {
    let mut out = Tlvs::with_room(list.len());
    rewrite_into(list, how, &mut out)?;
    Ok(out.into_bytes())
}

/// The same, appended.
pub(crate) fn rewrite_into(
    list: &[u8],
    how: &mut Rewriting<'_>,
    out: &mut Tlvs,
) -> Result<(), Malformed> {
    for element in Attrs::new(list) {
        let element = element?;
        out.nest(&element, |out| rewrite_one(element.value, how, out))?;
    }
    Ok(())
}

/// What packets have changed, expression by expression.
pub(crate) fn counts(list: &[u8]) -> Result<Vec<Count>, Malformed> {
    let mut found = Vec::new();
    for element in Attrs::new(list) {
        let attrs = element?.attrs();
        let expression = name(&attrs, NFTA_EXPR_NAME)?;
        let volatile = volatile(&expression);
        if let Some(data) = attrs.first(NFTA_EXPR_DATA)?.filter(|_| !volatile.is_empty()) {
            let attrs = crate::wire::only(data.attrs(), volatile)?;
            found.push(Count { expression, attrs });
        }
    }
    Ok(found)
}

/// A list of expressions without the values that it compares with. The kernel keeps those as they are, so that lists of
/// one shape are dumped and taken alike.
pub(crate) fn shape(list: &[u8]) -> Result<Box<[u8]>, Malformed> {
    let mut out = Tlvs::with_room(list.len());
    for element in Attrs::new(list) {
        let element = element?;
        let is_cmp = text(&element.attrs(), NFTA_EXPR_NAME)? == "cmp";
        for attr in element.attrs() {
            let attr = attr?;
            if !is_cmp || attr.kind != NFTA_EXPR_DATA {
                out.copy(&attr);
                continue;
            }
            for attr in attr.attrs() {
                let attr = attr?;
                match attr.kind {
                    NFTA_CMP_DATA => out.put(attr.kind, &attr.value.len().to_le_bytes()),
                    _ => out.copy(&attr),
                }
            }
        }
    }
    Ok(out.into_bytes())
}

/// The names of the expressions in a list, for people.
pub(crate) fn names(list: &[u8]) -> Vec<String> {
    let name = |attr: Attr<'_>| name(&attr.attrs(), NFTA_EXPR_NAME).ok();
    Attrs::new(list).flatten().filter_map(name).collect()
}

/// The attributes of an expression that packets change.
pub(crate) fn volatile(expression: &str) -> &'static [u16] {
    match expression {
        "counter" => &[NFTA_COUNTER_BYTES, NFTA_COUNTER_PACKETS],
        "quota" => &[NFTA_QUOTA_CONSUMED],
        "last" => &[NFTA_LAST_SET, NFTA_LAST_MSECS],
        _ => &[],
    }
}

/// The attributes of an expression that the kernel dumps and does not take.
///
/// Quirk `exthdr-dumped-not-taken` (Linux 6.18): an option of TCP that is set is dumped with its flags, one that
/// is removed with its offset and length as well, and both are refused with EINVAL when they carry them.
fn unsendable(expression: &str, data: &Attr<'_>) -> Result<&'static [u16], Malformed> {
    if expression != "exthdr" || data.attrs().first(NFTA_EXTHDR_DREG)?.is_some() {
        return Ok(&[]);
    }
    let is_set = data.attrs().first(NFTA_EXTHDR_SREG)?.is_some();
    let all = &[NFTA_EXTHDR_FLAGS, NFTA_EXTHDR_OFFSET, NFTA_EXTHDR_LEN];
    Ok(if is_set { &[NFTA_EXTHDR_FLAGS] } else { all })
}

/// Whether the kernel dumps a zero where nothing was set, and does not take it.
///
/// Quirk `zeros-dumped-not-taken` (Linux 6.18): the timeout of a statement that fills a set is dumped as zero
/// also for sets without timeouts (EOPNOTSUPP), and so are the flags of `osf` (EINVAL).
fn is_void(expression: &str, attr: &Attr<'_>) -> bool {
    let is_such = match expression {
        "dynset" => attr.kind == NFTA_DYNSET_TIMEOUT,
        "osf" => attr.kind == NFTA_OSF_FLAGS,
        _ => false,
    };
    is_such && attr.value.iter().all(|byte| *byte == 0)
}

/// Rewrites one expression.
pub(crate) fn rewrite_one(
    expression: &[u8],
    how: &mut Rewriting<'_>,
    out: &mut Tlvs,
) -> Result<(), Malformed> {
    let kind = text(&Attrs::new(expression), NFTA_EXPR_NAME)?;
    out.copy_replacing(Attrs::new(expression), NFTA_EXPR_DATA, |out, attr| {
        out.nest(attr, |out| rewrite_data(kind, attr, how, out))
    })
}

/// Rewrites the attributes of one expression, or of an object of the same type.
pub(crate) fn rewrite_data(
    expression: &str,
    data: &Attr<'_>,
    how: &mut Rewriting<'_>,
    out: &mut Tlvs,
) -> Result<(), Malformed> {
    let set = match expression {
        "lookup" => Some((NFTA_LOOKUP_SET, NFTA_LOOKUP_SET_ID)),
        "dynset" => Some((NFTA_DYNSET_SET_NAME, NFTA_DYNSET_SET_ID)),
        "objref" => Some((NFTA_OBJREF_SET_NAME, NFTA_OBJREF_SET_ID)),
        _ => None,
    };
    let (volatile, unsendable) = (volatile(expression), unsendable(expression, data)?);
    note(expression, data, how)?;
    for attr in data.attrs() {
        let attr = attr?;
        match set {
            _ if unsendable.contains(&attr.kind) || is_void(expression, &attr) => {}
            _ if expression == "dynset" && attr.kind == NFTA_DYNSET_FLAGS => {
                out.put(attr.kind, &dynset_flags(&attr, data)?);
            }
            _ if expression == "quota" && attr.kind == NFTA_QUOTA_FLAGS => {
                out.put(attr.kind, &(attr.be32()? & !QUOTA_DEPLETED).to_be_bytes());
            }
            _ if volatile.contains(&attr.kind) => count(expression, &attr, how, out),
            _ if expression == "immediate" && attr.kind == NFTA_IMMEDIATE_DATA => {
                out.nest(&attr, |out| verdict(&attr, how, out))?;
            }
            Some((at, id)) if attr.kind == at => {
                let set = Part::Set(attr.str()?.to_owned());
                match (how.refer)(set) {
                    Becomes::Named => out.copy(&attr),
                    Becomes::Blank => {}
                    Becomes::Created(number) => {
                        out.put_name(attr.kind, NAMELESS);
                        out.put(id, &number.to_be_bytes());
                    }
                }
            }
            _ => out.copy(&attr),
        }
    }
    if let Counts::Carried([count, rest @ ..]) = how.counts
        && count.expression == expression
    {
        Attrs::new(&count.attrs).flatten().for_each(|attr| out.copy(&attr));
        how.counts = Counts::Carried(rest);
    }
    Ok(())
}

/// `NFT_QUOTA_F_DEPLETED`.
///
/// Quirk `quota-depleted-dumped-not-taken` (Linux 6.18): the kernel sets this flag of a quota that is used up, dumps it,
/// and refuses it with EINVAL: `nft add rule ip t o quota 100 bytes accept`, some packets, `nft --debug=mnl list
/// ruleset`.
const QUOTA_DEPLETED: u32 = 2;

/// Quirk `dynset-list-not-dumped` (Linux 6.18): a statement that gives elements more than one expression must say
/// so in its flags (EINVAL), and the kernel does not dump that flag.
fn dynset_flags(flags: &Attr<'_>, data: &Attr<'_>) -> Result<[u8; 4], Malformed> {
    /// `NFT_DYNSET_F_EXPR`.
    const HAS_LIST: u32 = 2;
    let has_list = data.attrs().first(NFTA_DYNSET_EXPRESSIONS)?.is_some();
    Ok((flags.be32()? | if has_list { HAS_LIST } else { 0 }).to_be_bytes())
}

/// Reports references that always have a name.
fn note(expression: &str, data: &Attr<'_>, how: &mut Rewriting<'_>) -> Result<(), Malformed> {
    let attrs = data.attrs();
    match expression {
        "objref" => {
            if let Some(kind) = be32(&attrs, NFTA_OBJREF_IMM_TYPE)? {
                (how.refer)(Part::Object(ObjectId {
                    kind,
                    name: name(&attrs, NFTA_OBJREF_IMM_NAME)?,
                }));
            }
        }
        "flow_offload" => {
            (how.refer)(Part::Flowtable(name(&attrs, NFTA_FLOW_TABLE_NAME)?));
        }
        _ => {}
    }
    Ok(())
}

fn count(expression: &str, attr: &Attr<'_>, how: &Rewriting<'_>, out: &mut Tlvs) {
    match how.counts {
        Counts::Masked => {}
        // Those that are carried on come after the attributes that stay; more counters than before
        // begin as they are written.
        Counts::Carried([next, ..]) if next.expression == expression => {}
        Counts::Kept | Counts::Carried(_) => out.copy(attr),
    }
}

fn verdict(data: &Attr<'_>, how: &mut Rewriting<'_>, out: &mut Tlvs) -> Result<(), Malformed> {
    out.copy_replacing(data.attrs(), NFTA_DATA_VERDICT, |out, verdict| {
        out.nest(verdict, |out| {
            out.copy_replacing(verdict.attrs(), NFTA_VERDICT_CHAIN, |out, chain| {
                match (how.refer)(Part::Chain(chain.str()?.to_owned())) {
                    Becomes::Created(id) => out.put(NFTA_VERDICT_CHAIN_ID, &id.to_be_bytes()),
                    Becomes::Named => out.copy(chain),
                    Becomes::Blank => {}
                }
                Ok(())
            })
        })
    })
}

/// The name under which a set is created that the kernel shall name.
pub(crate) const NAMELESS: &str = "__set%d";

#[cfg(test)]
mod tests {
    use super::*;

    /// An expression with these attributes.
    fn expression(kind: &str, data: impl FnOnce(&mut Tlvs)) -> Tlvs {
        let mut attrs = Tlvs::default();
        data(&mut attrs);
        let mut out = Tlvs::default();
        out.put_name(NFTA_EXPR_NAME, kind);
        out.put(NFTA_EXPR_DATA, &attrs.into_bytes());
        out
    }

    fn list(expressions: impl IntoIterator<Item = Tlvs>) -> Box<[u8]> {
        let mut out = Tlvs::default();
        for one in expressions {
            out.put(NFTA_LIST_ELEM, &one.into_bytes());
        }
        out.into_bytes()
    }

    fn counter(packets: u64) -> Tlvs {
        expression("counter", |data| {
            data.put(NFTA_COUNTER_BYTES, &(packets * 100).to_be_bytes());
            data.put(NFTA_COUNTER_PACKETS, &packets.to_be_bytes());
        })
    }

    fn lookup(set: &str) -> Tlvs {
        expression("lookup", |data| data.put_name(NFTA_LOOKUP_SET, set))
    }

    fn jump(chain: &str) -> Tlvs {
        let mut verdict = Tlvs::default();
        verdict.put(NFTA_VERDICT_CODE, &[0xff, 0xff, 0xff, 0xfd]);
        verdict.put_name(NFTA_VERDICT_CHAIN, chain);
        let mut data = Tlvs::default();
        data.put(NFTA_DATA_VERDICT, &verdict.into_bytes());
        expression("immediate", |out| out.put(NFTA_IMMEDIATE_DATA, &data.into_bytes()))
    }

    fn put(list: &[u8], becomes: Becomes, counts: Counts<'_>) -> (Box<[u8]>, Vec<Part>) {
        let mut references = Vec::new();
        let refer = &mut |to| {
            references.push(to);
            becomes
        };
        let out = rewrite(list, &mut Rewriting { refer, counts }).unwrap();
        (out, references)
    }

    #[test]
    fn counts_do_not_count_in_a_comparison() {
        let (one, other) = (list([counter(1)]), list([counter(2)]));
        let masked = |list: &[u8]| put(list, Becomes::Named, Counts::Masked).0;
        assert_eq!(masked(&one), masked(&other));
        assert_ne!(one, other);
    }

    #[test]
    fn kept_expressions_are_the_same_bytes() {
        let all = list([lookup("a"), counter(3), jump("b"), counter(4)]);
        assert_eq!(put(&all, Becomes::Named, Counts::Kept).0, all);
    }

    #[test]
    fn counts_are_carried_on_in_order() {
        let seen = list([counter(3), lookup("a"), counter(4)]);
        let declared = list([lookup("b"), counter(0), counter(0), counter(9)]);
        let carried = counts(&seen).unwrap();
        let (put, _) = put(&declared, Becomes::Named, Counts::Carried(&carried));
        assert_eq!(put, list([lookup("b"), counter(3), counter(4), counter(9)]));
    }

    #[test]
    fn references_are_reported_and_can_be_made_anonymous() {
        let all = list([lookup("__set0"), jump("__chain1")]);
        let (blank, references) = put(&all, Becomes::Blank, Counts::Kept);
        let expected = [Part::Set("__set0".to_owned()), Part::Chain("__chain1".to_owned())];
        assert_eq!(references, expected);
        let others = list([lookup("__set7"), jump("__chain9")]);
        assert_eq!(put(&others, Becomes::Blank, Counts::Kept).0, blank);
        let (made, _) = put(&all, Becomes::Created(5), Counts::Kept);
        let mut ids = Vec::new();
        for element in Attrs::new(&made) {
            let data = element.unwrap().attrs().first(NFTA_EXPR_DATA).unwrap().unwrap();
            ids.extend(be32(&data.attrs(), NFTA_LOOKUP_SET_ID).unwrap());
            let inside = data.attrs().first(NFTA_IMMEDIATE_DATA).unwrap();
            let verdict = inside.and_then(|data| data.attrs().first(NFTA_DATA_VERDICT).unwrap());
            if let Some(verdict) = verdict {
                ids.extend(be32(&verdict.attrs(), NFTA_VERDICT_CHAIN_ID).unwrap());
            }
        }
        assert_eq!(ids, [5, 5]);
    }

    #[test]
    fn lists_that_differ_only_in_what_they_compare_with_are_of_one_shape() {
        let cmp = |op: u8, value: &[u8]| {
            list([expression("cmp", |data| {
                data.put(NFTA_CMP_DATA - 1, &[op]);
                data.put(NFTA_CMP_DATA, value);
            })])
        };
        let shape = |list: &[u8]| shape(list).unwrap();
        assert_eq!(shape(&cmp(0, &[1, 2])), shape(&cmp(0, &[3, 4])));
        for other in [cmp(1, &[1, 2]), cmp(0, &[1]), list([lookup("a")])] {
            assert_ne!(shape(&cmp(0, &[1, 2])), shape(&other));
        }
        assert_ne!(shape(&list([lookup("a")])), shape(&list([lookup("b")])));
    }

    #[test]
    fn what_is_not_understood_stays_as_it_is() {
        let opaque = expression("payload", |data| data.put(NFTA_DATA_VALUE, &[1, 2, 3]));
        let all = list([opaque]);
        assert_eq!(put(&all, Becomes::Blank, Counts::Masked).0, all);
    }
}
