//! Our tables as a text that could be the document's own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use homeostat_core::{Failure, Records, Retry};
use homeostat_netlink::Family;

use crate::dump::{self, Head};
use crate::key::Key;
use crate::listing;
use crate::model::Handle;
use crate::object::Object;
use crate::observe::is_taken_over;
use crate::own::Words;
use crate::program::run;
use crate::source::Nft;

/// What `nft` tells of the tables of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Ours, without our mark; empty if there are none.
    pub ruleset: String,
    /// The names of all others.
    pub foreign: Vec<Key>,
}

impl Nft {
    /// Lists our tables with `nft`; a pass never does.
    pub fn show(&self, records: &Records<Key, Object>) -> Result<Shown, Failure> {
        let heads = self.connect(Family::Netfilter).and_then(|mut open| dump::heads(&mut open));
        let mut shown = Shown::default();
        // A kernel without tables has nothing to show.
        for head in heads.unwrap_or_default() {
            if self.is_ours(&head, records) {
                shown.ruleset.push_str(&without_data(&self.listing(&head.key)?));
            } else {
                shown.foreign.push(head.key);
            }
        }
        Ok(shown)
    }

    /// The rules of a table in nft's words. For people only, so that a failure only costs the words.
    pub(crate) fn texts(&self, key: &Key) -> BTreeMap<Handle, Words> {
        let family = key.family.to_string();
        let arguments = ["-t", "-a", "list", "table", &family, &key.name].map(OsStr::new);
        let ran = self.run(|| run("nft".as_ref(), Path::new("/"), &arguments, ""));
        let listed = ran.ok().and_then(Result::ok).filter(|ran| ran.status.success());
        let listed = listed.map(|ran| listing::read(&String::from_utf8_lossy(&ran.stdout)));
        listed.and_then(|mut texts| texts.remove(key)).unwrap_or_default()
    }

    fn is_ours(&self, head: &Head, records: &Records<Key, Object>) -> bool {
        let identity = records.get(&head.key).and_then(|record| record.identity.as_ref());
        let is_same = identity.is_none_or(|identity| *identity == head.handle.0.to_string());
        match &head.words.mark {
            Some(mark) => *mark == self.mark,
            None => is_taken_over(records, &head.key) && is_same,
        }
    }

    fn listing(&self, key: &Key) -> Result<String, Failure> {
        let family = key.family.to_string();
        let arguments = ["-s", "list", "table", &family, &key.name].map(OsStr::new);
        let ran = self.run(|| run("nft".as_ref(), Path::new("/"), &arguments, ""));
        let ran = ran.map_err(|error| Failure::from_error(&error, Retry::Soon))?;
        let ran = ran.map_err(|error| {
            let failure = Failure::from_error(&error, Retry::Soon);
            let error = format!("`nft` cannot be started: {}", failure.error);
            Failure { error, ..failure }.with_help("install the package `nftables`")
        })?;
        if !ran.status.success() {
            let words = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
            return Err(Failure::new(format!("cannot list `{key}`: {words}"), Retry::Soon));
        }
        Ok(self.mark.taken_off(&String::from_utf8_lossy(&ran.stdout)))
    }
}

/// A listing without the elements of sets that packets fill.
fn without_data(listing: &str) -> String {
    let (mut kept, mut is_data, mut in_elements) = (String::new(), false, false);
    for line in listing.lines() {
        let words = line.trim();
        if line.starts_with("\t}") {
            is_data = false;
        }
        if words.starts_with("flags ") && !words.ends_with('{') {
            is_data = words.contains("dynamic") || words.contains("timeout");
        }
        in_elements |= is_data && words.starts_with("elements = {");
        if !in_elements {
            kept.push_str(line);
            kept.push('\n');
        }
        in_elements &= !words.ends_with('}');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_sets_that_packets_fill_are_left_out() {
        let listing = "table ip a {\n\tset d {\n\t\ttype ipv4_addr\n\t\tflags dynamic,timeout\n\
            \t\telements = { 1.1.1.1 timeout 5s,\n\t\t\t     2.2.2.2 }\n\t}\n\n\tset s {\n\
            \t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = { 3.3.3.3 }\n\t}\n}\n";
        let kept = without_data(listing);
        assert!(!kept.contains("1.1.1.1") && !kept.contains("2.2.2.2"), "{kept}");
        assert!(kept.contains("elements = { 3.3.3.3 }\n\t}\n}\n"), "{kept}");
        assert!(kept.contains("flags dynamic,timeout\n\t}\n"), "{kept}");
    }
}
