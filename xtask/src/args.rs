//! The command line. Doc comments are the help texts: the first line is the overview's, all of it that of `--help`.

use std::num::NonZero;

use clap::{Parser, Subcommand};

use crate::test::Choice;
use crate::vm::Order;

/// The workspace's own tasks.
#[derive(Debug, Parser)]
#[command(
    bin_name = "cargo xtask",
    subcommand_value_name = "TASK",
    subcommand_help_heading = "Tasks"
)]
#[command(after_help = "`cargo xtask <TASK> --help` says more about one task.")]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Task {
    /// Install what the tests need (root, Debian or a relative of it)
    ///
    /// Installs the programs that the tests use and that are missing, and makes the small Debian that some of them boot
    /// (target/debian, about a minute). Silent when nothing is missing.
    ///
    /// Needs root and apt-get; without them it prints what to install and fails.
    Setup,

    /// Set up, then run every check that a change must pass
    ///
    /// Runs every check that a change must pass and stops at the first that fails:
    /// setup, fmt, clippy, doc, test, vm --short, package, tidy.
    ///
    /// From nothing it takes a few minutes on 2 cores: clippy, doc and test share one download, while
    /// clippy and test compile the dependencies once each. After a small change it takes seconds.
    /// `CARGO_TERM_COLOR` and `CARGO_TARGET_DIR` are obeyed. On a machine on which the second kernel cannot be
    /// had (see `cargo xtask vm --help`) it fails and says what is missing; `--fast` leaves that kernel out.
    Test(Choice),

    /// Run the long form of the tests, in release mode
    ///
    /// Runs what takes longer than a test run should: all tests in release mode with `HOMEOSTAT_SOAK=1`,
    /// by which bounded tests raise their number of cases; then everything that `cargo xtask deny`,
    /// `cargo xtask package --verify`, `cargo xtask deb --twice`, `cargo xtask vm` and `cargo xtask vm --trials` run.
    Soak {
        /// N times as long, for those that can be longer still: sabotage, kills, sieges
        #[arg(long, value_name = "N", default_value = "1")]
        times: NonZero<u32>,
        /// Run only the tests whose name contains one of these words, and nothing else
        #[arg(value_name = "FILTER")]
        filters: Vec<String>,
    },

    /// Run the kernel tests on a second kernel, in an emulated machine
    ///
    /// Boots Debian's stock kernel in an emulated machine and runs the test programs in it that ask the
    /// kernel, those included that `cargo test` leaves out because a kernel may lack what they need. It is
    /// older than most and has every module and cgroup controller. Prints the usual lines and fails if a
    /// test fails, or if the machine dies, hangs or prints no result.
    ///
    /// Installs qemu-system-x86, busybox-static and kmod if they are missing (as root; else it says what to
    /// install). The kernel's package is only unpacked, into target/vm/kernel; remove that for a newer one.
    /// What the kernel said is in target/vm/console.log.
    ///
    /// With --trials, the daemon runs there instead, with disks: a trial whose clock is set back, and one in which the
    /// power is cut.
    Vm(Order),

    /// Run the benchmarks side by side and print one table
    ///
    /// Builds the benchmarks in release mode, runs them and prints one table; also writes
    /// bench-results/results.md and bench-results/results.json.
    ///
    /// First installs what it compares with and is missing (root, Debian or a relative of it); where it
    /// cannot, it says how, and those contestants are left out.
    ///
    /// Arguments of the benchmarks:
    ///   FILTER         run only the groups whose `group/contestant` names contain one of these words
    ///   --rounds N     rounds per contestant (default 5); the table shows their median, min and max;
    ///                  a group that takes long ends after 3
    ///   --quick        small sizes, budgets not judged
    ///   --full         slow contestants at full size too, which are left out otherwise
    ///   --list         name the groups and contestants, run nothing
    ///   --out DIR      write the results there instead of bench-results
    ///   --against P    compare with another build: P is its checkout, which is built first, or its
    ///                  `homeostat-bench`; the groups of both run alternately, at least 3 rounds each, and
    ///                  one table shows medians, cost ratio (above 1: this build costs more) and spread
    #[command(verbatim_doc_comment, override_usage = "cargo xtask bench [ARGUMENTS...]")]
    Bench {
        #[arg(allow_hyphen_values = true, hide = true)]
        arguments: Vec<String>,
    },

    /// Make the pictures of the page that are in the docs
    ///
    /// Runs the tests of the page in a real browser and keeps what they see in docs/images. Look at what changed
    /// before you commit it.
    Screenshots,

    /// Check licences, bans and sources of all dependencies
    ///
    /// Checks that every dependency comes from crates.io under a licence that `deny.toml` allows, and what else
    /// that file bans. Done by cargo-deny, without its advisories, which need a network.
    ///
    /// The first run builds cargo-deny into target/tools, which takes about two minutes. So `cargo xtask soak`
    /// has this step and `cargo xtask test` does not: run it when Cargo.lock has changed.
    Deny,

    /// Build the Debian package
    ///
    /// Builds the program as it is published (profile `dist`: small, without debug information, some minutes) and packs it
    /// with its units, manual, completions, alerts and docs. The package is in target/deb; lintian judges it. Beside it is
    /// homeostat.cdx.json, the list of what the program is made of (CycloneDX); the program has the same list in it, for
    /// scanners such as `cargo audit bin`. The first run builds the two tools for that into target/tools.
    /// What the package has is listed in crates/homeostat/Cargo.toml; packaging/debian has its scripts.
    Deb {
        /// Build it again in another directory, and compare both byte for byte
        #[arg(long)]
        twice: bool,
    },

    /// Pack the library crates as for a registry, and check the packages
    ///
    /// Packs every member that may be published, without a registry, and checks what a registry and its readers need:
    /// metadata, a README, licences, a front page that names no files of the repository.
    Package {
        /// Build the packages, too, as a program outside of this workspace would
        #[arg(long)]
        verify: bool,
    },

    /// Check architecture map, layers, links and decisions
    ///
    /// Checks what compilers do not: the architecture map names what exists, dependencies between crates keep
    /// their direction, decisions are numbered, links lead somewhere. Shows all problems together.
    Tidy,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Task, String> {
        let words = std::iter::once("xtask").chain(line.split_whitespace());
        let parsed = CommandLine::try_parse_from(words);
        parsed.map(|parsed| parsed.task).map_err(|error| error.to_string())
    }

    fn check(line: &str, task: Task) {
        assert_eq!(parse_line(line), Ok(task), "{line}");
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn each_task_is_read_with_its_arguments() {
        check("setup", Task::Setup);
        check("deny", Task::Deny);
        check("tidy", Task::Tidy);
        check("deb", Task::Deb { twice: false });
        check("deb --twice", Task::Deb { twice: true });
        check("package", Task::Package { verify: false });
        check("package --verify", Task::Package { verify: true });
        let soak = |times, filters| Task::Soak {
            times: NonZero::new(times).unwrap(),
            filters: words(filters),
        };
        check("soak", soak(1, ""));
        check("soak ledger", soak(1, "ledger"));
        check("soak storm --times 5 kill", soak(5, "storm kill"));
        let order = |names, arguments| Order {
            names: words(names),
            arguments: words(arguments),
            ..Order::default()
        };
        check("vm", Task::Vm(order("", "")));
        check("vm --short", Task::Vm(Order::short()));
        check("vm --trials", Task::Vm(Order { trials: true, ..Order::default() }));
        check("vm rtnl knobs -- vlan --exact", Task::Vm(order("rtnl knobs", "vlan --exact")));
        check("bench --quick diff", Task::Bench { arguments: words("--quick diff") });
        check("bench diff --out x", Task::Bench { arguments: words("diff --out x") });
        check("test", Task::Test(Choice { filters: vec![], fast: false }));
        let choice = Choice { filters: words("pacing diff"), fast: true };
        check("test pacing --fast diff", Task::Test(choice));
    }

    #[test]
    fn every_task_has_its_own_help() {
        let overview = parse_line("--help").unwrap_err();
        for task in ["setup", "test", "soak", "vm", "bench", "deb", "deny", "package", "tidy"] {
            let text = parse_line(&format!("{task} --help")).unwrap_err();
            assert!(text.contains(&format!("Usage: cargo xtask {task}")), "{text}");
            assert!(overview.contains(&format!("\n  {task} ")), "{task}");
        }
        assert!(parse_line("bench --help").unwrap_err().contains("--against P"));
    }

    #[test]
    fn mistakes_are_named() {
        let check = |line: &str, mistake: &str| {
            let error = parse_line(line).unwrap_err();
            assert!(error.contains(mistake), "{line}: {error}");
        };
        check("", "Usage: cargo xtask <TASK>");
        check("tets", "unrecognized subcommand 'tets'");
        check("tidy now", "unexpected argument 'now' found");
        check("test --fats", "unexpected argument '--fats' found");
        check("vm --shrot", "unexpected argument '--shrot' found");
        check("vm --short rtnl", "'--short' cannot be used with '[NAME]...'");
        check("soak --long", "unexpected argument '--long' found");
        check("soak --times", "a value is required for '--times <N>'");
        check("soak --times 0", "invalid value '0' for '--times <N>'");
    }
}
