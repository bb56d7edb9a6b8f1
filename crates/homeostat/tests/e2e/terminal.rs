//! A terminal with somebody in front of it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A pair of ends: the program's, and ours.
pub(crate) struct Terminal {
    ours: File,
    theirs: File,
}

impl Terminal {
    /// A fresh one; nobody's controlling terminal.
    pub(crate) fn open() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        Terminal { ours: ours.into(), theirs: theirs.into() }
    }

    /// One with so many lines.
    pub(crate) fn with_lines(lines: u16) -> Self {
        let terminal = Self::open();
        let size = Winsize { ws_row: lines, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal.ours, size).unwrap();
        terminal
    }

    /// Types ahead: the line waits until the program asks. `\x04` ends the input.
    pub(crate) fn type_in(&self, text: &str) {
        (&self.ours).write_all(text.as_bytes()).unwrap();
    }

    /// The program's end.
    pub(crate) fn end(&self) -> Stdio {
        self.theirs.try_clone().unwrap().into()
    }

    /// What was written to it, once the program has ended.
    pub(crate) fn screen(self) -> String {
        drop(self.theirs);
        let mut ours = self.ours;
        let mut bytes = Vec::new();
        // A terminal whose other end is closed answers with an error, not with an end.
        let end = ours.read_to_end(&mut bytes);
        assert!(end.is_ok() || !bytes.is_empty(), "{end:?}");
        String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
    }
}
