//! Takes routes away by raw messages, as fast as the kernel lets one.

use std::os::fd::AsFd as _;
use std::time::Duration;

use homeostat_netlink::{Batch, Family, Options, Socket, uapi};
use rustix::net::{RecvFlags, recv};

use super::dice::Dice;
use super::estate::ROUTES;

/// A socket to the kernel.
pub(super) struct Raw(Socket);

impl Raw {
    /// Opens it in the calling thread's namespace.
    pub(super) fn open() -> Self {
        Raw(Socket::open(Family::Route, &Options::default()).unwrap())
    }

    /// Deletes some of the routes of the list in one send; others may have been faster.
    pub(super) fn delete_some(&self, dice: &mut Dice) {
        let mut batch = Batch::new();
        let count = 1 + dice.below(40);
        for _ in 0..count {
            let number = u8::try_from(dice.below(ROUTES)).unwrap();
            let mut message = batch.message(uapi::RTM_DELROUTE, uapi::NLM_F_ACK);
            message.fixed(&[2, 24, 0, 0, 254, 76, uapi::RT_SCOPE_NOWHERE, 1, 0, 0, 0, 0]);
            message.attr(uapi::RTA_DST, &[20, 0, number, 0]);
            message.finish().unwrap();
        }
        self.0.send(batch.bytes()).unwrap();
        let mut answer = [0; 4096];
        for _ in 0..count {
            assert!(self.0.wait(Duration::from_mins(1)).unwrap(), "no answer");
            recv(self.0.as_fd(), &mut answer, RecvFlags::empty()).unwrap();
        }
    }
}
