//! Starts the virtual machine and listens to it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::run::{Ended, Program};

/// A machine that says nothing for so long hangs: no single test takes that long, even on a machine
/// that is busy with much else.
const SILENCE: Duration = Duration::from_mins(10);

/// How much of the console's end is worth showing.
const LAST_LINES: usize = 40;

/// What a machine is made of.
pub(crate) struct Machine<'a> {
    /// The kernel.
    pub(crate) kernel: &'a Path,
    /// The archive with its first file system.
    pub(crate) image: &'a Path,
    /// Where to write what the kernel says.
    pub(crate) console: &'a Path,
}

/// Runs the machine until it switches itself off, dies or hangs; each line of its results is handed
/// to `see`.
pub(crate) fn boot(machine: &Machine<'_>, see: &mut dyn FnMut(&str)) -> Result<Ended> {
    program(machine).watch(SILENCE, see)
}

/// Emulated, not virtualized: that works everywhere, also inside another virtual machine. The first
/// serial port is the kernel's console, the second carries results; a reboot (after a panic) ends it.
fn program(machine: &Machine<'_>) -> Program {
    let [kernel, image, console] =
        [machine.kernel, machine.image, machine.console].map(|path| path.display().to_string());
    let console = format!("file:{console}");
    Program::new(
        "qemu-system-x86_64",
        &[
            &["-accel", "tcg", "-smp", "2", "-m", "2048"][..],
            &["-nodefaults", "-display", "none", "-no-reboot"],
            &["-kernel", &kernel, "-initrd", &image],
            &["-append", "console=ttyS0 quiet panic=-1"],
            &["-serial", &console, "-serial", "stdio"],
        ]
        .concat(),
    )
}

/// The end of what the kernel said, for when it went wrong.
pub(crate) fn last_words(console: &Path) -> String {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.len().saturating_sub(LAST_LINES);
    lines.get(start..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_the_kernels_messages_have_a_port_each() {
        let [kernel, image, console] = ["/k", "/i", "/c"].map(Path::new);
        let typed = program(&Machine { kernel, image, console }).to_string();
        assert!(typed.ends_with("-serial file:/c -serial stdio"), "{typed}");
        assert!(typed.contains("-append 'console=ttyS0 quiet panic=-1'"), "{typed}");
        assert!(!typed.contains("kvm"), "{typed}");
    }

    #[test]
    fn a_console_that_was_never_written_has_no_last_words() {
        assert_eq!(last_words(Path::new("/no/such/console")), "");
    }
}
