//! An error that the kernel returned for one message, with its extended ack.

use std::fmt;

use rustix::io::Errno;

use crate::uapi::{NLM_F_ACK_TLVS, NLM_F_CAPPED, NLMSGERR_ATTR_MSG, NLMSGERR_ATTR_OFFS};
use crate::{Attrs, Malformed, Message};

/// Why the kernel did not do what one message asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: Errno,
    /// The text of the extended ack, if there is one.
    pub text: Option<Box<str>>,
    /// The offset of the offending attribute from the start of the request, if the kernel named one.
    pub offset: Option<u32>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => write!(f, "{} ({})", text.trim_end_matches('.'), self.errno),
            None => self.errno.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

/// The length of `struct nlmsgerr` without attributes: an errno and the header of the request.
const ERROR_LEN: usize = 4 + HEADER_LEN;
const HEADER_LEN: usize = size_of::<crate::uapi::nlmsghdr>();

impl Refusal {
    /// Reads an `NLMSG_ERROR`; `None` is an ack.
    pub(crate) fn of_error(message: &Message<'_>) -> Result<Option<Self>, Malformed> {
        let (status, rest) = message.payload.split_first_chunk::<4>().ok_or(Malformed::Payload)?;
        let Some(errno) = errno(*status) else { return Ok(None) };
        let request = rest.first_chunk::<HEADER_LEN>().ok_or(Malformed::Payload)?;
        let request_len = u32::from_ne_bytes([request[0], request[1], request[2], request[3]]);
        // Without NLM_F_CAPPED the whole request is between the header and the attributes.
        let capped = message.flags & NLM_F_CAPPED != 0;
        let body = if capped { 0 } else { body_len(request_len)? };
        Ok(Some(Self::with_extended_ack(errno, message, ERROR_LEN.saturating_add(body))))
    }

    /// Reads the status that `NLMSG_DONE` carries; `None` is a dump that went well.
    pub(crate) fn of_done(message: &Message<'_>) -> Option<Self> {
        // Families that never fail send it without a status.
        let status = message.payload.first_chunk::<4>()?;
        errno(*status).map(|errno| Self::with_extended_ack(errno, message, 4))
    }

    /// A malformed extended ack is left out: it must not hide the errno.
    fn with_extended_ack(errno: Errno, message: &Message<'_>, attrs_at: usize) -> Self {
        let mut refusal = Self { errno, text: None, offset: None };
        if message.flags & NLM_F_ACK_TLVS == 0 {
            return refusal;
        }
        for attr in Attrs::new(message.payload.get(attrs_at..).unwrap_or_default()).flatten() {
            match attr.kind {
                NLMSGERR_ATTR_MSG => refusal.text = attr.str().ok().map(Into::into),
                NLMSGERR_ATTR_OFFS => refusal.offset = attr.u32().ok(),
                _ => {}
            }
        }
        refusal
    }
}

fn body_len(request_len: u32) -> Result<usize, Malformed> {
    let len = usize::try_from(request_len).map_err(|_| Malformed::Payload)?;
    len.checked_sub(HEADER_LEN)
        .and_then(|len| len.checked_next_multiple_of(4))
        .ok_or(Malformed::Payload)
}

/// The kernel sends error numbers negated; zero is success. Any other number is treated as an error too.
fn errno(status: [u8; 4]) -> Option<Errno> {
    match i32::from_ne_bytes(status) {
        0 => None,
        status @ -4095..0 => Some(Errno::from_raw_os_error(-status)),
        _ => Some(Errno::PROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Port;
    use crate::uapi::{NLMSG_DONE, NLMSG_ERROR};

    const EINVAL: i32 = 22;

    fn extended_ack() -> Vec<u8> {
        let mut attrs = Vec::new();
        attrs.extend([9_u16.to_ne_bytes(), NLMSGERR_ATTR_MSG.to_ne_bytes()].concat());
        attrs.extend(b"Oops\0\0\0\0");
        attrs.extend([8_u16.to_ne_bytes(), NLMSGERR_ATTR_OFFS.to_ne_bytes()].concat());
        attrs.extend(28_u32.to_ne_bytes());
        attrs
    }

    fn error(status: i32, flags: u16, request_len: u32, rest: &[u8]) -> Option<Refusal> {
        let mut payload = status.to_ne_bytes().to_vec();
        payload.extend(request_len.to_ne_bytes());
        payload.extend([0; 12]);
        payload.extend(rest);
        let message =
            Message { kind: NLMSG_ERROR, flags, seq: 1, port: Port::KERNEL, payload: &payload };
        Refusal::of_error(&message).unwrap()
    }

    fn oops() -> Refusal {
        Refusal { errno: Errno::INVAL, text: Some("Oops".into()), offset: Some(28) }
    }

    #[test]
    fn status_zero_is_an_ack() {
        assert_eq!(error(0, NLM_F_CAPPED, 16, &[]), None);
    }

    #[test]
    fn the_extended_ack_follows_the_header_or_the_whole_request() {
        let capped = NLM_F_ACK_TLVS | NLM_F_CAPPED;
        assert_eq!(error(-EINVAL, capped, 21, &extended_ack()), Some(oops()));
        let echoed = [vec![0; 8], extended_ack()].concat();
        assert_eq!(error(-EINVAL, NLM_F_ACK_TLVS, 21, &echoed), Some(oops()));
    }

    #[test]
    fn without_an_extended_ack_only_the_errno_is_known() {
        let plain = error(-EINVAL, NLM_F_CAPPED, 16, &extended_ack()).unwrap();
        assert_eq!((plain.errno, plain.text, plain.offset), (Errno::INVAL, None, None));
        let damaged = error(-EINVAL, NLM_F_CAPPED | NLM_F_ACK_TLVS, 16, &[200, 0, 1, 0]).unwrap();
        assert_eq!((damaged.errno, damaged.text), (Errno::INVAL, None));
    }

    #[test]
    fn a_status_that_is_no_error_number_is_no_success() {
        for status in [1, i32::MAX, -4096, i32::MIN] {
            assert_eq!(error(status, NLM_F_CAPPED, 16, &[]).unwrap().errno, Errno::PROTO);
        }
    }

    #[test]
    fn an_answer_cut_short_is_malformed_not_success() {
        for len in 0..20 {
            let payload = vec![255; len];
            let message = Message {
                kind: NLMSG_ERROR,
                flags: 0,
                seq: 1,
                port: Port::KERNEL,
                payload: &payload,
            };
            assert!(Refusal::of_error(&message).is_err(), "{len}");
        }
    }

    #[test]
    fn the_end_of_a_dump_may_carry_an_error_and_its_text() {
        let done = |payload: &[u8], flags| {
            Refusal::of_done(&Message {
                kind: NLMSG_DONE,
                flags,
                seq: 1,
                port: Port::KERNEL,
                payload,
            })
        };
        assert_eq!(done(&[], 0), None);
        assert_eq!(done(&0_i32.to_ne_bytes(), 0), None);
        let payload = [(-EINVAL).to_ne_bytes().to_vec(), extended_ack()].concat();
        assert_eq!(done(&payload, NLM_F_ACK_TLVS), Some(oops()));
    }

    #[test]
    fn the_text_of_the_kernel_comes_first_and_the_errno_after() {
        let shown = oops().to_string();
        assert!(shown.starts_with("Oops (Invalid argument"), "{shown}");
    }
}
