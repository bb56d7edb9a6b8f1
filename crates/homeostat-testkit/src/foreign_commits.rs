//! Another program that commits to a table of its own without a pause, as kube-proxy and fail2ban do.

use std::net::Ipv4Addr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use homeostat_netlink::uapi::{
    NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWSETELEM, NFTA_DATA_VALUE, NFTA_LIST_ELEM, NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_TABLE_NAME, NLM_F_CREATE,
};
use homeostat_netlink::{Batch, Connection, Family, Result, Transacted};
use homeostat_netns::Netns;

/// 200 commits a second.
const PAUSE: Duration = Duration::from_millis(5);

/// `NFPROTO_IPV4`.
const IPV4: u8 = 2;

/// While it lives, elements are added to a set of addresses of a table of family `ip`, one a commit.
#[derive(Debug)]
pub struct ForeignCommits {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<u32>>>,
}

impl ForeignCommits {
    /// Begins in a namespace in which the set exists.
    #[must_use]
    pub fn begin(netns: Netns, table: &'static str, set: &'static str) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut connection = Connection::open_in(&netns, Family::Netfilter)?;
            let mut commits = 0;
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let batch = add_element(table, set, commits)?;
                let is_done = connection.transact(&batch, None)? == Transacted::Done;
                commits += u32::from(is_done);
            }
            Ok(commits)
        });
        ForeignCommits { stop: Some(stop), thread: Some(thread) }
    }

    /// How many were made; none if they could not be.
    pub fn end(mut self) -> u32 {
        drop(self.stop.take());
        let commits = self.thread.take().map(JoinHandle::join);
        commits.and_then(|joined| joined.ok()?.ok()).unwrap_or_default()
    }
}

fn add_element(table: &str, set: &str, nth: u32) -> Result<Batch> {
    let mut batch = Batch::new();
    let kind = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWSETELEM;
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() | nth);
    let mut message = batch.message(kind, NLM_F_CREATE);
    message.fixed(&[IPV4, 0, 0, 0]);
    message.attr_str(NFTA_TABLE_NAME, table).attr_str(NFTA_SET_ELEM_LIST_SET, set);
    message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
        list.nest(NFTA_LIST_ELEM, |element| {
            element.nest(NFTA_SET_ELEM_KEY, |key| _ = key.attr(NFTA_DATA_VALUE, &address.octets()));
        });
    });
    message.finish()?;
    Ok(batch)
}
