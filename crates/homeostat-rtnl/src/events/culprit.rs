//! Who caused an event, as far as the kernel tells: the protocol of what came in the place of ours,
//! and the socket of who asked for it.
//!
//! Quirk `a-port-is-a-process` (Linux 6.18): the kernel names the first netlink socket of a process by
//! the number of the process, and libraries count further ones in the bits above it. A socket whose
//! number is negative got any that was free. It is a likely name, no proof: the process may be gone,
//! or count in a PID namespace of its own.

use std::sync::Arc;

use homeostat_netlink::Port;

use crate::number::Protocol;
use crate::observe::foreign;

/// The numbers of processes have this many bits at most.
const PROCESS: u32 = (1 << 22) - 1;

/// Who caused the event that is being taken.
#[derive(Debug, Default)]
pub(super) struct Culprit {
    port: Port,
    protocol: Option<Protocol>,
    /// Who was found out last: a burst comes from one.
    known: Option<(Port, Option<Protocol>, Option<Arc<str>>)>,
}

impl Culprit {
    /// Another event is taken, from the socket of somebody who is not us.
    pub(super) fn is_at(&mut self, port: Port) {
        (self.port, self.protocol) = (port, None);
    }

    /// What the event says is there bears this mark, which is not ours.
    pub(super) fn marks(&mut self, protocol: Protocol) {
        self.protocol = Some(protocol);
    }

    /// Who it may be, for people.
    pub(super) fn name(&mut self) -> Option<Arc<str>> {
        if let Some((port, protocol, name)) = &self.known
            && (*port, *protocol) == (self.port, self.protocol)
        {
            return name.clone();
        }
        let mark = self.protocol.map(|protocol| foreign(protocol).to_string());
        let words: Vec<String> = mark.into_iter().chain(process(self.port)).collect();
        let name = (!words.is_empty()).then(|| Arc::from(words.join(", ")));
        self.known = Some((self.port, self.protocol, name.clone()));
        name
    }
}

fn process(port: Port) -> Option<String> {
    let is_number = port != Port::KERNEL && i32::try_from(port.0).is_ok();
    let number = is_number.then_some(port.0 & PROCESS)?;
    Some(match std::fs::read_to_string(format!("/proc/{number}/comm")) {
        Ok(name) => format!("process {number} ({})", plain(&name)),
        Err(_) => format!("process {number}"),
    })
}

/// A process may call itself what it likes: nothing of it is for a terminal to obey.
fn plain(name: &str) -> String {
    let letters = name.trim_end().chars();
    letters.map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_calls_itself_names_gives_a_terminal_no_orders() {
        assert_eq!(plain("bird\n"), "bird");
        assert_eq!(plain("\u{1b}[2Jbird\n\n"), "?[2Jbird");
        assert_eq!(plain("a\nb"), "a?b");
    }

    fn name(port: u32, protocol: Option<u8>) -> Option<String> {
        let mut culprit = Culprit::default();
        culprit.is_at(Port(port));
        if let Some(number) = protocol {
            culprit.marks(Protocol(number));
        }
        let named = culprit.name();
        assert_eq!(named, culprit.name(), "the second time, too");
        named.map(|name| name.to_string())
    }

    #[test]
    fn the_kernel_itself_and_ports_that_were_just_free_name_nobody() {
        assert_eq!(name(0, None), None);
        assert_eq!(name(u32::MAX - 4096, None), None);
        assert_eq!(name(0, Some(12)), Some("protocol bird".to_owned()));
    }

    #[test]
    fn a_port_is_a_process_also_if_it_has_several() {
        let own = std::process::id();
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        let expected = format!("process {own} ({})", comm.trim_end());
        assert_eq!(name(own, None), Some(expected.clone()));
        assert_eq!(name(own | 3 << 22, None), Some(expected.clone()));
        assert_eq!(name(own, Some(77)), Some(format!("protocol 77, {expected}")));
        assert_eq!(name(PROCESS, None), Some(format!("process {PROCESS}")), "it is gone");
    }
}
