//! The initramfs of the virtual machine: the tests, the programs that they start, and kernel modules.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::cpio::{Archive, Mode};
use super::kernel::Kernel;
use super::modules;
use super::programs::TestProgram;
use crate::run::{Program, quoted};
use crate::setup;

/// The script that runs first.
const INIT: &str = include_str!("init.sh");

/// Required programs and their paths in the machine: the kernel itself starts `modprobe`.
const PROGRAMS: &[(&str, &str)] = &[
    ("bridge", "/sbin/bridge"),
    ("busybox", "/bin/busybox"),
    ("ethtool", "/sbin/ethtool"),
    ("ip", "/sbin/ip"),
    ("modprobe", "/sbin/modprobe"),
    ("sh", "/bin/sh"),
    ("ss", "/bin/ss"),
    ("tc", "/sbin/tc"),
    ("wg", "/bin/wg"),
];

/// Optional programs.
const IF_INSTALLED: &[(&str, &str)] = &[("nft", "/sbin/nft")];

/// Optional files that tests read.
const READ_IF_INSTALLED: &str = "/usr/share/doc/nftables/examples";

/// Databases of names that programs and tests use.
const NAMES: &[(&str, &str)] = &[
    ("/etc/protocols", "icmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\ndccp 33 DCCP\nsctp 132 SCTP\n"),
    ("/etc/services", "ssh 22/tcp\ndomain 53/tcp\ndomain 53/udp\nhttp 80/tcp\nhttps 443/tcp\n"),
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:/bin/sh\n"),
    ("/etc/group", "root:x:0:\ndaemon:x:1:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n"),
    ("/etc/nsswitch.conf", "hosts: files dns\nservices: files\nprotocols: files\n"),
];

const DIRECTORIES: &[&str] =
    &["/dev", "/etc", "/proc", "/root", "/run", "/sys", "/tmp", "/usr/bin", "/var/run"];

/// What differs from run to run.
pub(crate) struct Contents<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) tests: &'a [TestProgram],
    /// The program itself, if a test runs it.
    pub(crate) homeostat: Option<&'a Path>,
    /// What `init.sh` does between its start and its end.
    pub(crate) script: &'a str,
}

/// Writes the archive to `path`.
pub(crate) fn write(path: &Path, contents: &Contents<'_>) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    base(&mut archive, contents.script)?;
    add_modules(&mut archive, contents.kernel)?;
    for (name, place) in PROGRAMS {
        let found = setup::find(name).with_context(|| format!("there is no `{name}`"))?;
        add_program(&mut archive, &found, place)?;
    }
    for (name, place) in IF_INSTALLED {
        setup::find(name).map_or(Ok(()), |found| add_program(&mut archive, &found, place))?;
    }
    add_files(&mut archive, Path::new(READ_IF_INSTALLED))?;
    for test in contents.tests {
        add_program(&mut archive, &test.path, &format!("/tests/{}", test.name))?;
    }
    if let Some(homeostat) = contents.homeostat {
        add_program(&mut archive, homeostat, "/bin/homeostat")?;
    }
    archive.finish().map(drop)
}

fn base(archive: &mut Archive<impl Write>, script: &str) -> Result<()> {
    for directory in DIRECTORIES {
        archive.directory(directory)?;
    }
    // Without it the errors of the first process are not shown.
    archive.device("/dev/console", [5, 1])?;
    for (file, text) in NAMES {
        archive.file(file, Mode::FILE, text.as_bytes())?;
    }
    archive.file("/init", Mode::PROGRAM, INIT.as_bytes())?;
    archive.file("/tests/script", Mode::FILE, script.as_bytes())
}

/// A script that runs each test program with these arguments.
pub(crate) fn run_all(tests: &[TestProgram], arguments: &[String]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    let arguments = arguments.join(" ");
    let line =
        |test: &TestProgram| format!("run {} --color=never {arguments}\n", quoted(&test.name));
    tests.iter().map(line).collect()
}

fn add_modules(archive: &mut Archive<impl Write>, kernel: &Kernel) -> Result<()> {
    let dependencies = fs::read_to_string(kernel.modules.join("modules.dep"));
    let dependencies = dependencies.context("the kernel's modules have no list")?;
    let place = |file: &str| format!("/lib/modules/{}/{file}", kernel.release);
    for module in modules::wanted(&dependencies) {
        archive.file(&place(module), Mode::FILE, &read(&kernel.modules.join(module))?)?;
    }
    for entry in fs::read_dir(&kernel.modules)?.filter_map(Result::ok) {
        if entry.file_type()?.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            archive.file(&place(&name), Mode::FILE, &read(&entry.path())?)?;
        }
    }
    Ok(())
}

/// Adds the files of a directory, if there is one.
fn add_files(archive: &mut Archive<impl Write>, directory: &Path) -> Result<()> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    for path in entries.map(|entry| entry.path()).filter(|path| path.is_file()) {
        archive.file(&path.display().to_string(), Mode::FILE, &read(&path)?)?;
    }
    Ok(())
}

/// Adds a program with the libraries that it is linked to.
fn add_program(archive: &mut Archive<impl Write>, path: &Path, place: &str) -> Result<()> {
    // A program without libraries makes `ldd` fail, and needs none.
    let linked = Program::new("ldd", &[&path.display().to_string()]).try_read()?;
    for library in libraries(&linked.unwrap_or_default()) {
        archive.file(library, Mode::PROGRAM, &read(Path::new(library))?)?;
    }
    archive.file(place, Mode::PROGRAM, &read(path)?)
}

/// The paths in what `ldd` prints: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
fn libraries(printed: &str) -> impl Iterator<Item = &str> {
    printed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_paths_that_ldd_prints() {
        let printed = "\
\tlinux-vdso.so.1 (0x00007fe1a2dc5000)
\tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007fe1a2c42000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007fe1a2dc7000)
";
        let expected = ["/lib/x86_64-linux-gnu/libmnl.so.0", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries(printed).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_program_runs_without_colours_and_with_its_own_arguments() {
        let tests = [TestProgram { name: "homeostat-rtnl/kinds".to_owned(), path: "".into() }];
        let arguments = ["it's".to_owned()];
        let expected = r"run homeostat-rtnl/kinds --color=never 'it'\''s'";
        assert_eq!(run_all(&tests, &arguments).trim_end(), expected);
    }
}
