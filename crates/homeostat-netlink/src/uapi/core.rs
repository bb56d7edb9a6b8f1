//! What every netlink family shares: headers, flags, answers and socket options.

use super::{constants, raw};

// Message flags and the message types of every family.
constants! { raw as u16:
    NLM_F_REQUEST NLM_F_ACK NLM_F_ECHO NLM_F_DUMP_INTR NLM_F_DUMP NLM_F_REPLACE NLM_F_EXCL
    NLM_F_CREATE NLM_F_APPEND NLM_F_CAPPED NLM_F_ACK_TLVS NLMSG_NOOP NLMSG_ERROR NLMSG_DONE
    NLMSG_OVERRUN NLMSG_MIN_TYPE
}

// Attribute flags, and the attributes of an extended answer.
constants! { raw as u16:
    NLA_F_NESTED NLA_F_NET_BYTEORDER
}

constants! { raw::nlmsgerr_attrs as u16:
    NLMSGERR_ATTR_MSG NLMSGERR_ATTR_OFFS
}

// Socket options.
constants! { raw as u32:
    NETLINK_ADD_MEMBERSHIP NETLINK_CAP_ACK NETLINK_EXT_ACK NETLINK_GET_STRICT_CHK
}
