#!/bin/sh
# Prints src/uapi/generated.rs, or with `nft` src/uapi/nft.rs: what the linux-raw-sys crate lacks, as the C compiler sees it in the
# kernel's headers (Debian: linux-libc-dev), and only what Rust code of the workspace names: for another constant, write
# its use, then run this. Needs cc. Usage, from the crate's directory:
#   sh uapi/generate.sh > src/uapi/generated.rs
#   sh uapi/generate.sh nft > src/uapi/nft.rs
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# header:prefix of the enumerators to take:integer type of the field that carries them
sets="nexthop:NHA_:u16 nexthop:NEXTHOP_GRP_TYPE_:u16 veth:VETH_INFO_:u16 if_tunnel:IFLA_GRE_:u16 if_tunnel:IFLA_IPTUN_:u16 net_namespace:NETNSA_:u16 if_bridge:BRIDGE_VLANDB_:u16 if_bridge:IFLA_BRIDGE_:u16
    genetlink:CTRL_CMD_:u8 genetlink:CTRL_ATTR_:u16
    wireguard:WG_CMD_:u8 wireguard:WGDEVICE_A_:u16 wireguard:WGPEER_A_:u16 wireguard:WGALLOWEDIP_A_:u16
    wireguard:WGPEER_F_:u32
    lwtunnel:LWTUNNEL_ENCAP_:u16 mpls_iptunnel:MPLS_IPTUNNEL_:u16 seg6_iptunnel:SEG6_IPTUNNEL_:u16 seg6_iptunnel:SEG6_IPTUN_MODE_:u32
    if_link:IFLA_MACSEC_:u16 if_macsec:MACSEC_CMD_:u8 if_macsec:MACSEC_ATTR_:u16 if_macsec:MACSEC_SECY_ATTR_:u16 if_macsec:MACSEC_RXSC_ATTR_:u16 if_macsec:MACSEC_SA_ATTR_:u16 if_macsec:MACSEC_SA_CONFIG_ATTR_:u16
    ethtool_netlink:ETHTOOL_MSG_:u8 ethtool:ETH_SS_:u32"
for part in HEADER BIT STRING STRSET FEATURES RINGS CHANNELS COALESCE PAUSE WOL FEC PRIVFLAGS; do
    sets="$sets ethtool_netlink:ETHTOOL_A_${part}:u16"
done
# header:integer type:macros to take, as the host sees them
macros="if_bonding:u8:BOND_MODE_ROUNDROBIN,BOND_MODE_ACTIVEBACKUP,BOND_MODE_XOR,BOND_MODE_BROADCAST,BOND_MODE_8023AD,BOND_MODE_TLB,BOND_MODE_ALB
if_bonding:u8:BOND_XMIT_POLICY_LAYER2,BOND_XMIT_POLICY_LAYER34,BOND_XMIT_POLICY_LAYER23,BOND_XMIT_POLICY_ENCAP23,BOND_XMIT_POLICY_ENCAP34,BOND_XMIT_POLICY_VLAN_SRCMAC
if_tun:u16:IFF_TUN,IFF_TAP,IFF_NO_PI,IFF_VNET_HDR,IFF_MULTI_QUEUE,IFF_TUN_EXCL
if_tun:u32:TUNSETIFF,TUNSETPERSIST,TUNSETOWNER,TUNSETGROUP
if_ether:u16:ETH_P_8021Q,ETH_P_8021AD,ETH_P_ALL
if:u32:IFF_UP,IFF_LOWER_UP
if_tunnel:u16:GRE_KEY
genetlink:u16:GENL_ID_CTRL
ethtool_netlink:u32:ETHTOOL_FLAG_OMIT_REPLY
pkt_sched:u32:TC_H_ROOT,TC_H_INGRESS,TC_H_CLSACT,TC_H_MIN_INGRESS
pkt_sched:u8:TC_LINKLAYER_ETHERNET,TC_HTB_PROTOVER
pkt_sched:u16:TCA_TBF_PARMS,TCA_TBF_RATE64,TCA_TBF_BURST
pkt_sched:u16:TCA_HTB_PARMS,TCA_HTB_INIT,TCA_HTB_RATE64,TCA_HTB_CEIL64,TCA_HTB_DIRECT_QLEN
pkt_sched:u16:TCA_FQ_CODEL_TARGET,TCA_FQ_CODEL_LIMIT,TCA_FQ_CODEL_INTERVAL,TCA_FQ_CODEL_ECN,TCA_FQ_CODEL_FLOWS,TCA_FQ_CODEL_QUANTUM,TCA_FQ_CODEL_CE_THRESHOLD,TCA_FQ_CODEL_DROP_BATCH_SIZE,TCA_FQ_CODEL_MEMORY_LIMIT
pkt_sched:u16:TCA_FQ_PLIMIT,TCA_FQ_FLOW_PLIMIT,TCA_FQ_QUANTUM,TCA_FQ_INITIAL_QUANTUM,TCA_FQ_RATE_ENABLE,TCA_FQ_FLOW_MAX_RATE,TCA_FQ_BUCKETS_LOG,TCA_FQ_FLOW_REFILL_DELAY,TCA_FQ_ORPHAN_MASK,TCA_FQ_LOW_RATE_THRESHOLD,TCA_FQ_CE_THRESHOLD,TCA_FQ_TIMER_SLACK,TCA_FQ_HORIZON,TCA_FQ_HORIZON_DROP
pkt_sched:u16:TCA_CAKE_BASE_RATE64,TCA_CAKE_DIFFSERV_MODE,TCA_CAKE_ATM,TCA_CAKE_FLOW_MODE,TCA_CAKE_OVERHEAD,TCA_CAKE_RTT,TCA_CAKE_TARGET,TCA_CAKE_AUTORATE,TCA_CAKE_MEMORY,TCA_CAKE_NAT,TCA_CAKE_RAW,TCA_CAKE_WASH,TCA_CAKE_MPU,TCA_CAKE_INGRESS,TCA_CAKE_ACK_FILTER,TCA_CAKE_SPLIT_GSO,TCA_CAKE_FWMARK
pkt_sched:u32:CAKE_FLOW_NONE,CAKE_FLOW_SRC_IP,CAKE_FLOW_DST_IP,CAKE_FLOW_HOSTS,CAKE_FLOW_FLOWS,CAKE_FLOW_DUAL_SRC,CAKE_FLOW_DUAL_DST,CAKE_FLOW_TRIPLE
pkt_sched:u32:CAKE_DIFFSERV_DIFFSERV3,CAKE_DIFFSERV_DIFFSERV4,CAKE_DIFFSERV_DIFFSERV8,CAKE_DIFFSERV_BESTEFFORT,CAKE_DIFFSERV_PRECEDENCE
pkt_sched:u32:CAKE_ACK_NONE,CAKE_ACK_FILTER,CAKE_ACK_AGGRESSIVE,CAKE_ATM_NONE,CAKE_ATM_ATM,CAKE_ATM_PTM
pkt_sched:u16:TCA_NETEM_CORR,TCA_NETEM_REORDER,TCA_NETEM_CORRUPT,TCA_NETEM_RATE,TCA_NETEM_RATE64,TCA_NETEM_LATENCY64,TCA_NETEM_JITTER64
pkt_cls:u16:TCA_MATCHALL_ACT,TCA_ACT_KIND,TCA_ACT_OPTIONS
pkt_cls:u32:TC_ACT_STOLEN
tc_act/tc_mirred:u16:TCA_MIRRED_PARMS
tc_act/tc_mirred:u32:TCA_EGRESS_REDIR
if_bridge:u16:BRIDGE_FLAGS_MASTER,BRIDGE_FLAGS_SELF,BRIDGE_VLAN_INFO_PVID,BRIDGE_VLAN_INFO_UNTAGGED,BRIDGE_VLAN_INFO_RANGE_BEGIN,BRIDGE_VLAN_INFO_RANGE_END"
# header:struct
structs="nexthop:nhmsg nexthop:nexthop_grp pkt_sched:tc_ratespec pkt_sched:tc_tbf_qopt pkt_sched:tc_htb_opt pkt_sched:tc_htb_glob pkt_sched:tc_netem_qopt pkt_sched:tc_netem_rate tc_act/tc_mirred:tc_mirred"
if [ "${1:-}" = nft ]; then
    sets="netfilter:NFPROTO_:u8 netfilter/nfnetlink:NFNLGRP_:u32 netfilter/nfnetlink:NFNL_BATCH_:u16
        netfilter/nf_tables:NFT_MSG_:u16 netfilter/nf_tables:NFT_TABLE_F_:u32
        netfilter/nf_tables:NFT_CHAIN_:u32 netfilter/nf_tables:NFT_SET_:u32"
    for part in TABLE CHAIN HOOK LIST RULE SET DATA VERDICT EXPR IMMEDIATE CMP LOOKUP DYNSET EXTHDR OSF \
        COUNTER QUOTA LAST OBJ OBJREF FLOW FLOWTABLE GEN; do
        sets="$sets netfilter/nf_tables:NFTA_${part}_:u16"
    done
    macros="netfilter/nfnetlink:u16:NFNL_SUBSYS_NFTABLES,NFNL_MSG_BATCH_BEGIN,NFNL_MSG_BATCH_END
netfilter/nf_tables:u32:NFT_OBJECT_COUNTER,NFT_OBJECT_QUOTA"
    structs=""
fi

header() { printf '#include <linux/%s.h>\n' "$1" | cc -E -P -xc -; }

# The body of a struct as "rust-type field" lines.
fields() {
    header "$1" | tr -s '\n\t ' ' ' | sed -n "s/.*struct $2 {\([^}]*\)}.*/\1/p" | tr ';' '\n' |
        sed -e 's/^ *//' -e 's/^unsigned char /u8 /' -e 's/^unsigned short /u16 /' -e 's/^unsigned int /u32 /' \
            -e 's/^short /i16 /' -e 's/^int /i32 /' -e 's/^__s\([0-9]*\) /i\1 /' -e 's/^struct //' \
            -e 's/^__u\([0-9]*\) /u\1 /' | grep -v '^ *$'
}

{
    printf '#include <stdio.h>\n#include <stddef.h>\n#include <sys/ioctl.h>\n#include <netinet/in.h>\n#include <linux/netlink.h>\n'
    for set in $sets $macros; do printf '#include <linux/%s.h>\n' "${set%%:*}"; done
    echo 'int main(void) {'
    for set in $sets; do
        prefix=${set#*:}
        type=${prefix#*:}
        prefix=${prefix%:*}
        printf 'puts("");\n'
        header "${set%%:*}" | grep -o "\b$prefix[A-Z0-9_]*" | awk '!seen[$0]++' |
            while read -r name; do
                printf 'printf("pub const %s: %s = %%d;\\n", (int)%s);\n' "$name" "$type" "$name"
            done
    done
    for line in $macros; do
        type=${line#*:}
        names=${type#*:}
        type=${type%%:*}
        printf 'puts("");\n'
        for name in $(echo "$names" | tr , ' '); do
            # The one macro here that is in network order.
            value=$name && [ "$name" = GRE_KEY ] && value="ntohs($name)"
            case $type in
            u32) printf 'printf("pub const %s: u32 = 0x%%04x_%%04x;\\n", (unsigned)%s >> 16, (unsigned)%s & 0xffff);\n' "$name" "$value" "$value" ;;
            *) printf 'printf("pub const %s: %s = %%u;\\n", (unsigned)%s);\n' "$name" "$type" "$value" ;;
            esac
        done
    done
    for pair in $structs; do
        name=${pair#*:}
        printf 'puts("\\n#[derive(Clone, Copy, Debug, Default)]\\n#[repr(C)]\\npub struct %s {");\n' "$name"
        fields "${pair%%:*}" "$name" | while read -r type field; do
            printf 'puts("    pub %s: %s,");\n' "$field" "$type"
        done
        printf 'puts("}");\n'
        printf 'printf("const _: () = assert!(size_of::<%s>() == %%zu);\\n", sizeof(struct %s));\n' "$name" "$name"
        fields "${pair%%:*}" "$name" | while read -r type field; do
            printf 'printf("const _: () = assert!(std::mem::offset_of!(%s, %s) == %%zu);\\n", offsetof(struct %s, %s));\n' \
                "$name" "$field" "$name" "$field"
        done
    done
    echo 'return 0; }'
} >"$work/print.c"

cc -o "$work/print" "$work/print.c"
echo '//! Generated by `uapi/generate.sh` from the headers of linux-libc-dev: edit that, not this.'
# Names that code outside of src/uapi uses; the test asks for ALL, so that it does not depend on other crates.
grep -rhoE --include='*.rs' --exclude-dir=uapi --exclude-dir=target '[A-Z][A-Z0-9_]+' ../.. >"$work/used"
"$work/print" | awk -v all="${ALL:-}" '
    NR == FNR { used[$0]; next }
    all || !/^pub const/ || substr($3, 1, length($3) - 1) in used' "$work/used" - | cat -s
