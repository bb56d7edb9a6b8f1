//! The messages of rtnetlink about qdiscs, classes and filters. Pure.
//!
//! Ours are recognized by their handles: the root qdisc is `4000:`, and the qdisc of its class `4000:10` is `4010:`. People
//! use small numbers, and the kernel gives out those from `8000:`.

use homeostat_netlink::uapi::{
    ETH_P_ALL, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RTM_DELQDISC, RTM_DELTCLASS,
    RTM_DELTFILTER, RTM_NEWQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER, TC_ACT_STOLEN, TC_H_CLSACT,
    TC_H_INGRESS, TC_H_MIN_INGRESS, TC_H_ROOT, TC_HTB_PROTOVER, TC_LINKLAYER_ETHERNET,
    TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_CAKE_TARGET, TCA_EGRESS_REDIR, TCA_HTB_CEIL64, TCA_HTB_INIT,
    TCA_HTB_PARMS, TCA_HTB_RATE64, TCA_KIND, TCA_MATCHALL_ACT, TCA_MIRRED_PARMS, TCA_NETEM_CORRUPT,
    TCA_NETEM_JITTER64, TCA_NETEM_LATENCY64, TCA_NETEM_RATE, TCA_NETEM_RATE64, TCA_NETEM_REORDER,
    TCA_OPTIONS, TCA_TBF_BURST, TCA_TBF_PARMS, TCA_TBF_RATE64, tc_htb_glob, tc_htb_opt, tc_mirred,
    tc_netem_qopt, tc_netem_rate, tc_ratespec, tc_tbf_qopt, tcmsg,
};
use homeostat_netlink::{Attr, Attrs, Batch, Malformed, Message, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::kinds::{Form, HTB_CLASS, Options, Spec, Unit, Wire};
use crate::model::{Class, ClassId, Qdisc};
use crate::ticks;

/// `struct tcmsg`.
pub(crate) const FIXED: usize = size_of::<tcmsg>();

/// The major numbers of our handles.
const OURS: std::ops::RangeInclusive<u32> = 0x4000..=0x4fff;
/// The handle of our root qdiscs.
pub(crate) const ROOT: u32 = 0x4000_0000;
/// The priority of our filter, by which it is known among others.
pub(crate) const PREF: u32 = 0x4000;
/// Where filters of what comes in are, of either qdisc that has them.
pub(crate) const AT_INGRESS: u32 = (TC_H_CLSACT & 0xffff_0000) | TC_H_MIN_INGRESS;
/// The only handle that an ingress qdisc can have.
const INGRESS: u32 = TC_H_INGRESS & 0xffff_0000;

/// The fixed part of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tc {
    pub(crate) link: u32,
    pub(crate) handle: u32,
    pub(crate) parent: u32,
    pub(crate) info: u32,
}

impl Tc {
    pub(crate) fn bytes(self) -> [u8; FIXED] {
        let mut bytes = [0; FIXED];
        put(&mut bytes, std::mem::offset_of!(tcmsg, tcm_ifindex), self.link);
        put(&mut bytes, std::mem::offset_of!(tcmsg, tcm_handle), self.handle);
        put(&mut bytes, std::mem::offset_of!(tcmsg, tcm_parent), self.parent);
        put(&mut bytes, std::mem::offset_of!(tcmsg, tcm_info), self.info);
        bytes
    }

    fn of(bytes: &[u8]) -> Self {
        Tc {
            link: take(bytes, std::mem::offset_of!(tcmsg, tcm_ifindex)),
            handle: take(bytes, std::mem::offset_of!(tcmsg, tcm_handle)),
            parent: take(bytes, std::mem::offset_of!(tcmsg, tcm_parent)),
            info: take(bytes, std::mem::offset_of!(tcmsg, tcm_info)),
        }
    }
}

/// A qdisc, class or filter as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reported {
    pub(crate) tc: Tc,
    pub(crate) kind: String,
    /// Its options as bytes; nothing if it has none.
    pub(crate) options: Option<Vec<u8>>,
}

impl Reported {
    pub(crate) fn read(message: &Message<'_>) -> Result<Self, Malformed> {
        let (fixed, attrs) = message.split::<FIXED>()?;
        let (mut kind, mut options) = (String::new(), None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                TCA_KIND => attr.str()?.clone_into(&mut kind),
                TCA_OPTIONS => options = Some(attr.value.to_vec()),
                _ => {}
            }
        }
        Ok(Reported { tc: Tc::of(fixed), kind, options })
    }

    pub(crate) fn is_root(&self) -> bool {
        self.tc.parent == TC_H_ROOT
    }

    pub(crate) fn is_ingress(&self) -> bool {
        self.tc.parent == TC_H_INGRESS
    }

    /// Whether the kernel has put it there by itself.
    pub(crate) fn is_default(&self) -> bool {
        self.tc.handle == 0
    }

    /// Whether its handle is one of ours.
    pub(crate) fn is_ours(&self) -> bool {
        OURS.contains(&(self.tc.handle >> 16))
    }

    pub(crate) fn qdisc(&self) -> Result<Qdisc, Malformed> {
        let qdisc = Qdisc { kind: self.kind.clone(), options: Options::new() };
        let (Some(spec), Some(bytes)) = (qdisc.spec(), &self.options) else { return Ok(qdisc) };
        let options = spec.reduced(read(spec, bytes)?);
        Ok(Qdisc { options, ..qdisc })
    }

    /// As a class of htb without its qdisc; nothing, if it is no class that could be declared.
    pub(crate) fn class(&self) -> Result<Option<(ClassId, Class)>, Malformed> {
        let id = u16::try_from(self.tc.handle & 0xffff).ok().and_then(ClassId::new);
        let (Some(id), Some(bytes), "htb") = (id, &self.options, self.kind.as_str()) else {
            return Ok(None);
        };
        let parent = u16::try_from(self.tc.parent & 0xffff).ok().and_then(ClassId::new);
        let mut options = read(&HTB_CLASS, bytes)?;
        // The kernel computes it from the rate where nobody says it.
        let quantum = options.remove("quantum");
        let mut options = HTB_CLASS.reduced(options);
        options.extend(quantum.map(|quantum| ("quantum", quantum)));
        Ok(Some((id, Class { parent, options, leaf: None })))
    }

    /// The number of the link that our filter sends everything to.
    pub(crate) fn redirects_to(&self) -> Result<Option<u32>, Malformed> {
        let (true, "matchall", Some(bytes)) =
            (self.tc.info >> 16 == PREF, self.kind.as_str(), &self.options)
        else {
            return Ok(None);
        };
        let Some(actions) = Attrs::new(bytes).first(TCA_MATCHALL_ACT)? else { return Ok(None) };
        let Some(action) = actions.attrs().next().transpose()? else { return Ok(None) };
        let Some(options) = action.attrs().first(TCA_ACT_OPTIONS)? else { return Ok(None) };
        let Some(mirred) = options.attrs().first(TCA_MIRRED_PARMS)? else { return Ok(None) };
        let to = take(mirred.value, std::mem::offset_of!(tc_mirred, ifindex));
        let does = take(mirred.value, std::mem::offset_of!(tc_mirred, eaction));
        Ok(Some(to).filter(|_| does == TCA_EGRESS_REDIR))
    }
}

/// What may be there before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// Nothing but the kernel's default.
    Free,
    /// Anything: it is replaced.
    Any,
    /// What is changed.
    There,
}

impl Ground {
    fn flags(self) -> u16 {
        match self {
            Ground::Free => NLM_F_CREATE | NLM_F_EXCL,
            Ground::Any => NLM_F_CREATE | NLM_F_REPLACE,
            Ground::There => 0,
        }
    }
}

/// Adds requests to a batch; the first that is too long ends it.
pub(crate) struct Requests<'a> {
    pub(crate) batch: &'a mut Batch,
    pub(crate) link: u32,
}

type Written = homeostat_netlink::Result<()>;

impl Requests<'_> {
    fn start(&mut self, kind: u16, flags: u16, tc: Tc) -> MessageWriter<'_> {
        let tc = Tc { link: self.link, ..tc };
        let mut message = self.batch.message(kind, flags);
        message.fixed(&tc.bytes());
        message
    }

    pub(crate) fn put_root(&mut self, qdisc: &Qdisc, ground: Ground) -> Written {
        self.put(qdisc, Tc { parent: TC_H_ROOT, handle: ROOT, ..Tc::default() }, ground)
    }

    pub(crate) fn put_leaf(&mut self, class: ClassId, qdisc: &Qdisc, ground: Ground) -> Written {
        self.put(qdisc, leaf(class), ground)
    }

    fn put(&mut self, qdisc: &Qdisc, tc: Tc, ground: Ground) -> Written {
        let mut message = self.start(RTM_NEWQDISC, ground.flags(), tc);
        message.attr_str(TCA_KIND, &qdisc.kind);
        if let Some(spec) = qdisc.spec() {
            write(spec, &spec.completed(&qdisc.options), ground, &mut message);
        }
        message.finish()
    }

    pub(crate) fn put_class(&mut self, id: ClassId, class: &Class, ground: Ground) -> Written {
        let parent = class.parent.map_or(ROOT, class_handle);
        let tc = Tc { parent, handle: class_handle(id), ..Tc::default() };
        let mut message = self.start(RTM_NEWTCLASS, ground.flags(), tc);
        message.attr_str(TCA_KIND, "htb");
        write(&HTB_CLASS, &HTB_CLASS.completed(&class.options), ground, &mut message);
        message.finish()
    }

    pub(crate) fn delete_class(&mut self, id: ClassId) -> Written {
        let tc = Tc { handle: class_handle(id), ..Tc::default() };
        self.start(RTM_DELTCLASS, 0, tc).finish()
    }

    /// The handle is a precondition: one of another owner is not deleted.
    pub(crate) fn delete_leaf(&mut self, class: ClassId) -> Written {
        self.start(RTM_DELQDISC, 0, leaf(class)).finish()
    }

    /// The same.
    pub(crate) fn delete_root(&mut self) -> Written {
        let tc = Tc { parent: TC_H_ROOT, handle: ROOT, ..Tc::default() };
        self.start(RTM_DELQDISC, 0, tc).finish()
    }

    pub(crate) fn put_ingress(&mut self) -> Written {
        let tc = Tc { parent: TC_H_INGRESS, handle: INGRESS, ..Tc::default() };
        let mut message = self.start(RTM_NEWQDISC, Ground::Free.flags(), tc);
        message.attr_str(TCA_KIND, "ingress");
        message.finish()
    }

    pub(crate) fn delete_ingress(&mut self) -> Written {
        let tc = Tc { parent: TC_H_INGRESS, handle: INGRESS, ..Tc::default() };
        self.start(RTM_DELQDISC, 0, tc).finish()
    }

    pub(crate) fn put_redirect(&mut self, to: u32) -> Written {
        let mut message = self.start(RTM_NEWTFILTER, Ground::Free.flags(), filter());
        message.attr_str(TCA_KIND, "matchall");
        let mut mirred = [0; size_of::<tc_mirred>()];
        put(&mut mirred, std::mem::offset_of!(tc_mirred, action), TC_ACT_STOLEN);
        put(&mut mirred, std::mem::offset_of!(tc_mirred, eaction), TCA_EGRESS_REDIR);
        put(&mut mirred, std::mem::offset_of!(tc_mirred, ifindex), to);
        message.nest(TCA_OPTIONS, |options| {
            options.nest(TCA_MATCHALL_ACT, |actions| {
                actions.nest(1, |action| {
                    action.attr_str(TCA_ACT_KIND, "mirred");
                    action.nest(TCA_ACT_OPTIONS, |options| {
                        options.attr(TCA_MIRRED_PARMS, &mirred);
                    });
                });
            });
        });
        message.finish()
    }

    pub(crate) fn delete_redirect(&mut self) -> Written {
        self.start(RTM_DELTFILTER, 0, filter()).finish()
    }

    /// Sends back what was reported.
    pub(crate) fn put_again(&mut self, kind: u16, reported: &Reported) -> Written {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let mut message = self.start(kind, flags, Tc { info: 0, ..reported.tc });
        message.attr_str(TCA_KIND, &reported.kind);
        match &reported.options {
            // Quirk `htb-reports-its-version` (Linux 6.18): it reports 0x30011, and takes 3 only.
            Some(options) if kind == RTM_NEWQDISC && reported.kind == "htb" => {
                message.nest(TCA_OPTIONS, |inner| {
                    for attr in Attrs::new(options).flatten() {
                        let mut value = attr.value.to_vec();
                        if attr.kind == TCA_HTB_INIT {
                            let version = std::mem::offset_of!(tc_htb_glob, version);
                            put(&mut value, version, u32::from(TC_HTB_PROTOVER));
                        }
                        inner.attr(attr.kind, &value);
                    }
                });
            }
            Some(options) => _ = message.attr(TCA_OPTIONS, options),
            None => {}
        }
        message.finish()
    }
}

fn class_handle(id: ClassId) -> u32 {
    ROOT | u32::from(id.get())
}

/// The qdisc of a class.
fn leaf(class: ClassId) -> Tc {
    let handle = ROOT + (u32::from(class.get()) << 16);
    Tc { parent: class_handle(class), handle, ..Tc::default() }
}

/// Our filter. The protocol is in network order.
fn filter() -> Tc {
    let info = PREF << 16 | u32::from(ETH_P_ALL.to_be());
    Tc { parent: AT_INGRESS, handle: 1, info, link: 0 }
}

fn write(spec: &Spec, options: &Options, ground: Ground, message: &mut MessageWriter<'_>) {
    let value = |name: &str| options.get(name).copied().unwrap_or_default();
    match spec.form {
        Form::Fifo => _ = message.attr_u32(TCA_OPTIONS, narrow(value("limit"))),
        Form::Attributes => {
            message.nest(TCA_OPTIONS, |inner| write_attributes(spec, options, ground, inner));
        }
        Form::Tbf => {
            let (rate, burst) = (value("rate"), value("burst"));
            let mut parms = [0; size_of::<tc_tbf_qopt>()];
            put_rate(&mut parms, std::mem::offset_of!(tc_tbf_qopt, rate), rate);
            put(&mut parms, std::mem::offset_of!(tc_tbf_qopt, limit), narrow(value("limit")));
            let buffer = narrow(ticks::of_bytes(burst, rate));
            put(&mut parms, std::mem::offset_of!(tc_tbf_qopt, buffer), buffer);
            message.nest(TCA_OPTIONS, |inner| {
                inner.attr(TCA_TBF_PARMS, &parms).attr_u32(TCA_TBF_BURST, narrow(burst));
                write_large(TCA_TBF_RATE64, rate, inner);
            });
        }
        Form::Htb => {
            let mut init = [0; size_of::<tc_htb_glob>()];
            put(&mut init, std::mem::offset_of!(tc_htb_glob, version), u32::from(TC_HTB_PROTOVER));
            put(&mut init, std::mem::offset_of!(tc_htb_glob, rate2quantum), narrow(value("r2q")));
            put(&mut init, std::mem::offset_of!(tc_htb_glob, defcls), narrow(value("default")));
            message.nest(TCA_OPTIONS, |inner| {
                inner.attr(TCA_HTB_INIT, &init);
                write_attributes(spec, options, ground, inner);
            });
        }
        Form::HtbClass => {
            let (rate, ceil) = (value("rate"), value("ceil"));
            let mut parms = [0; size_of::<tc_htb_opt>()];
            put_rate(&mut parms, std::mem::offset_of!(tc_htb_opt, rate), rate);
            put_rate(&mut parms, std::mem::offset_of!(tc_htb_opt, ceil), ceil);
            let bucket = |bytes, rate| narrow(ticks::of_bytes(bytes, rate));
            let (buffer, cbuffer) = (bucket(value("burst"), rate), bucket(value("cburst"), ceil));
            put(&mut parms, std::mem::offset_of!(tc_htb_opt, buffer), buffer);
            put(&mut parms, std::mem::offset_of!(tc_htb_opt, cbuffer), cbuffer);
            put(&mut parms, std::mem::offset_of!(tc_htb_opt, quantum), narrow(value("quantum")));
            put(&mut parms, std::mem::offset_of!(tc_htb_opt, prio), narrow(value("prio")));
            message.nest(TCA_OPTIONS, |inner| {
                inner.attr(TCA_HTB_PARMS, &parms);
                write_large(TCA_HTB_RATE64, rate, inner);
                write_large(TCA_HTB_CEIL64, ceil, inner);
            });
        }
        Form::Netem => write_netem(&value, message),
    }
}

fn write_netem(value: &dyn Fn(&str) -> i64, message: &mut MessageWriter<'_>) {
    let mut parms = [0; size_of::<tc_netem_qopt>()];
    put(&mut parms, std::mem::offset_of!(tc_netem_qopt, limit), narrow(value("limit")));
    put(&mut parms, std::mem::offset_of!(tc_netem_qopt, loss), narrow(value("loss")));
    put(&mut parms, std::mem::offset_of!(tc_netem_qopt, duplicate), narrow(value("duplicate")));
    // One packet in a row is left out of the delay.
    let gap = u32::from(value("reorder") > 0);
    put(&mut parms, std::mem::offset_of!(tc_netem_qopt, gap), gap);
    let mut speed = [0; size_of::<tc_netem_rate>()];
    put(&mut speed, std::mem::offset_of!(tc_netem_rate, rate), narrow(value("rate")));
    // A probability, and its correlation with the one before.
    let share = |name| [narrow(value(name)).to_ne_bytes(), [0; 4]].concat();
    message.nest_unmarked(TCA_OPTIONS, |inner| {
        inner.fixed(&parms);
        inner.attr(TCA_NETEM_LATENCY64, &value("delay").to_ne_bytes());
        inner.attr(TCA_NETEM_JITTER64, &value("jitter").to_ne_bytes());
        inner.attr(TCA_NETEM_REORDER, &share("reorder"));
        inner.attr(TCA_NETEM_CORRUPT, &share("corrupt"));
        inner.attr(TCA_NETEM_RATE, &speed);
        write_large(TCA_NETEM_RATE64, value("rate"), inner);
    });
}

/// A rate that 32 bits cannot hold.
fn write_large(kind: u16, rate: i64, inner: &mut MessageWriter<'_>) {
    if rate > i64::from(u32::MAX) {
        inner.attr(kind, &rate.to_ne_bytes());
    }
}

fn write_attributes(spec: &Spec, options: &Options, ground: Ground, inner: &mut MessageWriter<'_>) {
    for option in spec.options {
        let Some(value) = options.get(option.name).copied() else { continue };
        if option.is_fixed && ground == Ground::There {
            continue;
        }
        match option.wire {
            Wire::Struct => continue,
            Wire::U32(kind) => inner.attr_u32(kind, wrapping(value)),
            Wire::U64(kind) => inner.attr(kind, &value.to_ne_bytes()),
            Wire::Micros(kind) => inner.attr_u32(kind, narrow(value / 1000)),
            Wire::Log2(kind) => inner.attr_u32(kind, narrow(value).max(1).ilog2()),
            Wire::U8(kind) => inner.attr_u8(kind, u8::try_from(value).unwrap_or(u8::MAX)),
        };
        // As `tc` does: the delay that is accepted follows from the round trip.
        if spec.name == "cake" && option.name == "rtt" {
            inner.attr_u32(TCA_CAKE_TARGET, (narrow(value / 1000) / 20).max(1));
        }
    }
}

/// Reads the options of a kind.
fn read(spec: &Spec, bytes: &[u8]) -> Result<Options, Malformed> {
    let mut options = Options::new();
    match spec.form {
        Form::Fifo => _ = options.insert("limit", take(bytes, 0).into()),
        Form::Attributes => {}
        Form::Tbf => {
            let parms = part(bytes, TCA_TBF_PARMS)?;
            let rate = rate(parms, std::mem::offset_of!(tc_tbf_qopt, rate), bytes, TCA_TBF_RATE64)?;
            let buffer = take(parms, std::mem::offset_of!(tc_tbf_qopt, buffer));
            options.insert("rate", rate);
            options.insert("burst", ticks::to_bytes(buffer.into(), rate));
            options.insert("limit", take(parms, std::mem::offset_of!(tc_tbf_qopt, limit)).into());
        }
        Form::Htb => {
            let init = part(bytes, TCA_HTB_INIT)?;
            let (default, r2q) = (
                take(init, std::mem::offset_of!(tc_htb_glob, defcls)),
                take(init, std::mem::offset_of!(tc_htb_glob, rate2quantum)),
            );
            options.insert("default", default.into());
            options.insert("r2q", r2q.into());
        }
        Form::HtbClass => {
            let parms = part(bytes, TCA_HTB_PARMS)?;
            let field = |at| i64::from(take(parms, at));
            let slow = rate(parms, std::mem::offset_of!(tc_htb_opt, rate), bytes, TCA_HTB_RATE64)?;
            let ceil = rate(parms, std::mem::offset_of!(tc_htb_opt, ceil), bytes, TCA_HTB_CEIL64)?;
            let burst = ticks::to_bytes(field(std::mem::offset_of!(tc_htb_opt, buffer)), slow);
            let cburst = ticks::to_bytes(field(std::mem::offset_of!(tc_htb_opt, cbuffer)), ceil);
            let quantum = field(std::mem::offset_of!(tc_htb_opt, quantum));
            let prio = field(std::mem::offset_of!(tc_htb_opt, prio));
            options.extend([("rate", slow), ("ceil", ceil), ("burst", burst), ("cburst", cburst)]);
            options.extend([("quantum", quantum), ("prio", prio)]);
        }
        Form::Netem => read_netem(bytes, &mut options)?,
    }
    // The attributes of netem are behind its struct.
    let attrs = if spec.form == Form::Fifo || spec.form == Form::Netem { &[][..] } else { bytes };
    for attr in Attrs::new(attrs) {
        let attr = attr?;
        for option in spec.options {
            if let Some(value) = value(option.wire, &attr)?
                && !is_unlimited(option.unit, &attr)
            {
                options.insert(option.name, value);
            }
        }
    }
    Ok(options)
}

/// Whether a rate or a time is the largest number, which stands for none.
fn is_unlimited(unit: Unit, attr: &Attr<'_>) -> bool {
    matches!(unit, Unit::Rate | Unit::Time) && attr.u32() == Ok(u32::MAX)
}

fn value(wire: Wire, attr: &Attr<'_>) -> Result<Option<i64>, Malformed> {
    Ok(Some(match wire {
        // The overhead of cake is the one number that may be negative.
        Wire::U32(kind)
            if kind == attr.kind && kind == homeostat_netlink::uapi::TCA_CAKE_OVERHEAD =>
        {
            i64::from(i32::from_ne_bytes(attr.array()?))
        }
        Wire::U32(kind) if kind == attr.kind => attr.u32()?.into(),
        Wire::U64(kind) if kind == attr.kind => i64::from_ne_bytes(attr.array()?),
        Wire::Micros(kind) if kind == attr.kind => i64::from(attr.u32()?) * 1000,
        Wire::Log2(kind) if kind == attr.kind => 1_i64.checked_shl(attr.u32()?).unwrap_or(0),
        Wire::U8(kind) if kind == attr.kind => attr.u8()?.into(),
        _ => return Ok(None),
    }))
}

fn read_netem(bytes: &[u8], options: &mut Options) -> Result<(), Malformed> {
    let field = |at| i64::from(take(bytes, at));
    options.insert("limit", field(std::mem::offset_of!(tc_netem_qopt, limit)));
    options.insert("loss", field(std::mem::offset_of!(tc_netem_qopt, loss)));
    options.insert("duplicate", field(std::mem::offset_of!(tc_netem_qopt, duplicate)));
    let mut fast = None;
    let attrs = bytes.get(size_of::<tc_netem_qopt>()..).unwrap_or_default();
    for attr in Attrs::new(attrs) {
        let attr = attr?;
        let (name, value) = match attr.kind {
            TCA_NETEM_LATENCY64 => ("delay", i64::from_ne_bytes(attr.array()?)),
            TCA_NETEM_JITTER64 => ("jitter", i64::from_ne_bytes(attr.array()?)),
            TCA_NETEM_REORDER => ("reorder", take(attr.value, 0).into()),
            TCA_NETEM_CORRUPT => ("corrupt", take(attr.value, 0).into()),
            TCA_NETEM_RATE => ("rate", take(attr.value, 0).into()),
            TCA_NETEM_RATE64 => {
                fast = Some(i64::from_ne_bytes(attr.array()?));
                continue;
            }
            _ => continue,
        };
        options.insert(name, value);
    }
    options.extend(fast.map(|rate| ("rate", rate)));
    Ok(())
}

/// The struct in an attribute of the options.
fn part(bytes: &[u8], kind: u16) -> Result<&[u8], Malformed> {
    Ok(Attrs::new(bytes).first(kind)?.map(|attr| attr.value).unwrap_or_default())
}

/// A rate in a struct, or in an attribute of its own if 32 bits cannot hold it.
fn rate(parms: &[u8], at: usize, options: &[u8], large: u16) -> Result<i64, Malformed> {
    if let Some(attr) = Attrs::new(options).first(large)? {
        return Ok(i64::from_ne_bytes(attr.array()?));
    }
    Ok(take(parms, at + std::mem::offset_of!(tc_ratespec, rate)).into())
}

fn put_rate(bytes: &mut [u8], at: usize, rate: i64) {
    put(bytes, at + std::mem::offset_of!(tc_ratespec, rate), narrow(rate));
    if let Some(layer) = bytes.get_mut(at + std::mem::offset_of!(tc_ratespec, linklayer)) {
        *layer = TC_LINKLAYER_ETHERNET;
    }
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = value.to_ne_bytes();
    }
}

fn take(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// The largest that 32 bits hold, if they cannot hold it.
fn narrow(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(if value < 0 { 0 } else { u32::MAX })
}

/// The same for what may be negative.
fn wrapping(value: i64) -> u32 {
    match i32::try_from(value) {
        Ok(value) => u32::from_ne_bytes(value.to_ne_bytes()),
        Err(_) => narrow(value),
    }
}
