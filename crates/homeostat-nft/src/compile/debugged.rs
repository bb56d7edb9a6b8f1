//! Which links `nft` is about to hook into, from the messages that it shows.
//!
//! `nft --debug=mnl` prints what it sends, four bytes a line. That is the only place where includes,
//! patterns, variables and lists are all resolved, and it needs no kernel that takes them.

use std::collections::BTreeSet;

use homeostat_netlink::uapi::{
    NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWCHAIN, NFT_MSG_NEWFLOWTABLE, NLA_F_NESTED,
};

use crate::hooked::Hooking;

/// Takes what is printed, line by line. What it does not understand is left out: `nft` itself says then
/// what was missing.
#[derive(Debug, Default)]
pub(super) struct Debugged {
    names: BTreeSet<String>,
    /// What is being printed, with its attributes as they are sent.
    open: Option<(Hooking, Vec<u8>)>,
}

impl Debugged {
    pub(super) fn take(&mut self, line: &str) {
        let line = plain(line);
        let mut columns = line.split('\t');
        let (Some(shown), Some(label)) = (columns.next(), columns.next()) else { return };
        let shown = shown.trim_matches('|');
        match (label.trim_matches(['|', ' ']), &mut self.open) {
            ("message length", _) => self.finish(),
            ("type | flags", open) => *open = hooking(shown).map(|kind| (kind, Vec::new())),
            ("len |flags| type", Some((_, attrs))) => attrs.extend(header(shown)),
            ("data", Some((_, attrs))) => attrs.extend(bytes(shown)),
            _ => {}
        }
    }

    /// All names, once everything was printed.
    pub(super) fn names(mut self) -> BTreeSet<String> {
        self.finish();
        self.names
    }

    fn finish(&mut self) {
        if let Some((kind, attrs)) = self.open.take() {
            self.names.extend(kind.links(&attrs).into_iter().map(str::to_owned));
        }
    }
}

fn hooking(shown: &str) -> Option<Hooking> {
    const CHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN;
    const FLOWTABLE: u16 = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWFLOWTABLE;
    match shown.split('|').next()?.trim().parse() {
        Ok(CHAIN) => Some(Hooking::Chain),
        Ok(FLOWTABLE) => Some(Hooking::Flowtable),
        _ => None,
    }
}

/// A line without its colours.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or("", |(_, rest)| rest));
    std::iter::once(first).chain(rest).collect()
}

/// `00032|N-|00004`: length, flags and type of an attribute.
fn header(shown: &str) -> Vec<u8> {
    let mut parts = shown.split('|').map(str::trim);
    let mut next = || parts.next().unwrap_or_default();
    let (len, flags, kind) = (next(), next(), next());
    let nested = if flags.contains('N') { NLA_F_NESTED } else { 0 };
    let (len, kind): (u16, u16) = (len.parse().unwrap_or(0), kind.parse().unwrap_or(0));
    [len.to_ne_bytes(), (kind | nested).to_ne_bytes()].concat()
}

fn bytes(shown: &str) -> Vec<u8> {
    let pairs = shown.split_whitespace();
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "----------------\t------------------
|  0000000080  |\t| message length |
| 02563 | R--- |\t|  type | flags  |
|  0000000005  |\t| sequence number|
|  0000000000  |\t|     port ID    |
----------------\t------------------
| 05 00 00 00  |\t|  extra header  |
|\u{1b}[1;31m00006\u{1b}[0m|\u{1b}[1;32m--\u{1b}[0m|\u{1b}[1;34m00001\u{1b}[0m|\t|len |flags| type|
| 61 00 00 00  |\t|      data      |\t a
|\u{1b}[1;31m00032\u{1b}[0m|\u{1b}[1;32mN-\u{1b}[0m|\u{1b}[1;34m00004\u{1b}[0m|\t|len |flags| type|
|\u{1b}[1;31m00008\u{1b}[0m|\u{1b}[1;32m--\u{1b}[0m|\u{1b}[1;34m00001\u{1b}[0m|\t|len |flags| type|
| 00 00 00 00  |\t|      data      |
|\u{1b}[1;31m00008\u{1b}[0m|\u{1b}[1;32m--\u{1b}[0m|\u{1b}[1;34m00002\u{1b}[0m|\t|len |flags| type|
| 00 00 00 00  |\t|      data      |
|\u{1b}[1;31m00010\u{1b}[0m|\u{1b}[1;32m--\u{1b}[0m|\u{1b}[1;34m00003\u{1b}[0m|\t|len |flags| type|
| 6e 6f 70 65  |\t|      data      |\t n o p e
| 31 00 00 00  |\t|      data      |\t 1
----------------\t------------------";

    #[test]
    fn the_link_of_a_hook_is_read_from_the_message_that_is_shown() {
        let names = |shown: &str| {
            let mut debugged = Debugged::default();
            shown.lines().for_each(|line| debugged.take(line));
            debugged.names().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(names(SHOWN), ["nope1"]);
        // Another message says nothing of hooks, and neither does junk.
        assert!(names(&SHOWN.replace("02563", "02566")).is_empty());
        assert!(names("no\tjunk\n|\t|\n").is_empty());
        assert!(names(&SHOWN.replace("00032", "99999")).is_empty());
    }
}
