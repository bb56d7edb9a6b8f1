//! Starts the virtual machine and reads its output.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::run::{Ended, Program, See, watch};

/// A machine without output for this long hangs: no test takes that long, even on a busy machine.
const SILENCE: Duration = Duration::from_mins(10);

/// How many lines of the console are shown after a failure.
const LAST_LINES: usize = 40;

pub(crate) struct Machine<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) image: &'a Path,
    /// The file for the console of the kernel.
    pub(crate) console: &'a Path,
    /// Files that are its disks, in this order.
    pub(crate) disks: &'a [PathBuf],
}

/// Runs the machine until it powers off, crashes or hangs, or until `see`, which is called with each line of its results,
/// cuts its power.
pub(crate) fn boot(machine: &Machine<'_>, see: &mut See<'_>) -> Result<Ended> {
    watch(&program(machine), SILENCE, see)
}

/// Emulated, since that works also inside another virtual machine. The first serial port is the console of the
/// kernel, the second carries results; a reboot, as after a panic, ends it.
fn program(machine: &Machine<'_>) -> Program {
    let [kernel, image, console] =
        [machine.kernel, machine.image, machine.console].map(|path| path.display().to_string());
    let console = format!("file:{console}");
    let drive = |disk: &PathBuf| format!("format=raw,if=virtio,file={}", disk.display());
    let drives: Vec<String> = machine.disks.iter().map(drive).collect();
    let drives: Vec<&str> = drives.iter().flat_map(|drive| ["-drive", drive]).collect();
    Program::new(
        "qemu-system-x86_64",
        &[
            &["-accel", "tcg", "-smp", "2", "-m", "2048"][..],
            &["-nodefaults", "-display", "none", "-no-reboot"],
            &["-kernel", &kernel, "-initrd", &image],
            &["-append", "console=ttyS0 quiet panic=-1"],
            &drives,
            // A card with settings of its own. It is plugged into nothing.
            &["-netdev", "hubport,id=hub0,hubid=0", "-device", "e1000e,netdev=hub0"],
            &["-serial", &console, "-serial", "stdio"],
        ]
        .concat(),
    )
}

/// The last lines of the console.
pub(crate) fn console_tail(console: &Path) -> String {
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
        let disks = ["/d".into()];
        let typed = program(&Machine { kernel, image, console, disks: &disks }).to_string();
        assert!(typed.contains("-drive format=raw,if=virtio,file=/d -netdev hubport"), "{typed}");
        assert!(typed.ends_with("-serial file:/c -serial stdio"), "{typed}");
        assert!(typed.contains("-append 'console=ttyS0 quiet panic=-1'"), "{typed}");
        assert!(!typed.contains("kvm"), "{typed}");
    }

    #[test]
    fn a_console_that_was_never_written_has_no_console_tail() {
        assert_eq!(console_tail(Path::new("/no/such/console")), "");
    }
}
