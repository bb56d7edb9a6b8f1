//! Parses the command line; contains the help texts.

use crate::soak::Length;
use crate::test::{Choice, Extent};
use crate::vm::{Chosen, Order, Profile};

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Help(&'static str),
    Run(Task),
}

/// A task with its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Setup,
    Test(Choice),
    /// With filters of test names.
    Soak(Length, Vec<String>),
    Vm(Order),
    Bench(Vec<String>),
    /// Check licences, bans and sources of all dependencies.
    Deny,
    /// Check the rules that no compiler checks.
    Tidy,
    /// Print how large crates and files are.
    SizeReport,
}

/// The error says what is wrong with the arguments.
pub(crate) fn parse(words: &[String]) -> Result<Request, String> {
    let Some((task, rest)) = words.split_first() else {
        return Err("which task?".to_owned());
    };
    let is_help = rest.iter().any(|word| word == "-h" || word == "--help");
    match help(task) {
        None => Err(format!("there is no task `{task}`")),
        Some(text) if is_help || text == OVERVIEW => Ok(Request::Help(text)),
        Some(_) => match read(task, rest) {
            Ok(task) => Ok(Request::Run(task)),
            Err(mistake) => Err(format!("{task}: {mistake}")),
        },
    }
}

fn help(task: &str) -> Option<&'static str> {
    match task {
        "help" | "-h" | "--help" => Some(OVERVIEW),
        "setup" => Some(SETUP),
        "test" => Some(TEST),
        "soak" => Some(SOAK),
        "vm" => Some(VM),
        "bench" => Some(BENCH),
        "deny" => Some(DENY),
        "tidy" => Some(TIDY),
        _ => None,
    }
}

fn read(task: &str, rest: &[String]) -> Result<Task, String> {
    match task {
        "setup" => no_more(rest).map(|()| Task::Setup),
        "test" => test_choice(rest).map(Task::Test),
        "soak" => soak_order(rest),
        "vm" => vm_order(rest).map(Task::Vm),
        "bench" => Ok(Task::Bench(rest.to_vec())),
        "deny" => no_more(rest).map(|()| Task::Deny),
        _ => tidy_task(rest),
    }
}

fn test_choice(words: &[String]) -> Result<Choice, String> {
    let (fast, rest): (Vec<_>, Vec<_>) = words.iter().cloned().partition(|word| word == "--fast");
    let extent = if fast.is_empty() { Extent::Full } else { Extent::Fast };
    Ok(Choice { extent, filters: filters(&rest)? })
}

fn soak_order(words: &[String]) -> Result<Task, String> {
    let Some(at) = words.iter().position(|word| word == "--times") else {
        return filters(words).map(|filters| Task::Soak(Length::default(), filters));
    };
    let (before, after) = words.split_at(at);
    let mut after = after.iter().skip(1);
    let times = after.next().and_then(|word| word.parse().ok()).filter(|times| *times > 0);
    let times = times.ok_or("`--times` wants a number above 0")?;
    let rest: Vec<String> = before.iter().chain(after).cloned().collect();
    Ok(Task::Soak(Length(times), filters(&rest)?))
}

fn vm_order(words: &[String]) -> Result<Order, String> {
    let mut parts = words.splitn(2, |word| word == "--");
    let own = parts.next().unwrap_or_default();
    let arguments = parts.next().unwrap_or_default().to_vec();
    let (short, names): (Vec<_>, Vec<_>) = own.iter().cloned().partition(|word| word == "--short");
    let chosen = match (short.is_empty(), filters(&names)?) {
        (false, names) if !names.is_empty() => return Err("either `--short` or names".to_owned()),
        (false, _) => Chosen::Short,
        (true, names) if names.is_empty() => Chosen::All,
        (true, names) => Chosen::Named(names),
    };
    Ok(Order { chosen, profile: Profile::Test, arguments })
}

fn tidy_task(words: &[String]) -> Result<Task, String> {
    match words {
        [word] if word == "--report" => Ok(Task::SizeReport),
        _ => no_more(words).map(|()| Task::Tidy),
    }
}

fn filters(words: &[String]) -> Result<Vec<String>, String> {
    match words.iter().find(|word| word.starts_with('-')) {
        Some(unknown) => Err(format!("there is no option `{unknown}`")),
        None => Ok(words.to_vec()),
    }
}

fn no_more(words: &[String]) -> Result<(), String> {
    words.first().map_or(Ok(()), |word| Err(format!("takes no argument, but got `{word}`")))
}

/// The help text without a task.
pub(crate) const OVERVIEW: &str = "\
The workspace's own tasks.

Usage: cargo xtask <TASK> [ARGUMENTS]

Tasks:
  setup   install what the tests need (root, Debian or a relative of it)
  test    set up, then run every check that a change must pass
  soak    run the long form of the tests, in release mode
  vm      run the kernel tests on a second kernel, in an emulated machine
  bench   run the benchmarks side by side and print one table
  deny    check licences, bans and sources of all dependencies
  tidy    check architecture map, words, layers, links and decisions

`cargo xtask <TASK> --help` tells more about one task.";

const SETUP: &str = "\
Installs the programs that the tests use and that are missing. Silent when there are none.

Usage: cargo xtask setup

Needs root and apt-get; without them it prints what to install and fails.";

const TEST: &str = "\
Runs every check that a change must pass and stops at the first that fails:
setup, fmt, clippy, doc, test, vm --short, tidy.

Usage: cargo xtask test [--fast] [FILTER...]

  FILTER   run only the tests whose name contains one of these words (other steps are unchanged)
  --fast   leave out clippy, doc and vm

From nothing it takes a few minutes on 2 cores: clippy, doc and test share one download, while
clippy and test compile the dependencies once each. After a small change it takes seconds.
CARGO_TERM_COLOR and CARGO_TARGET_DIR are obeyed. A machine on which the second kernel cannot be had
(see `cargo xtask vm --help`) is warned of and goes without it.";

const SOAK: &str = "\
Runs what takes longer than a test run should: all tests in release mode with HOMEOSTAT_SOAK=1,
by which bounded tests raise their number of cases; then everything that `cargo xtask deny` and
`cargo xtask vm` run.

Usage: cargo xtask soak [--times N] [FILTER...]

  --times N   N times as long, for those that can be longer still: sabotage, kills, sieges
  FILTER      run only the tests whose name contains one of these words, and nothing else";

const VM: &str = "\
Boots Debian's stock kernel in an emulated machine and runs the test programs in it that ask the
kernel, those included that `cargo test` leaves out because a kernel may lack what they need. It is
older than most and has every module and cgroup controller. Prints the usual lines and fails if a
test fails, or if the machine dies, hangs or prints no result.

Usage: cargo xtask vm [--short] [NAME...] [-- ARGUMENTS...]

  NAME        run only the test programs whose `package/target` names contain one of these words
  --short     run a few of them: less than a minute
  ARGUMENTS   for each test program, such as parts of the names of tests

Installs qemu-system-x86, busybox-static and kmod if they are missing (as root; else it says what to
install). The kernel's package is only unpacked, into target/vm/kernel; remove that for a newer one.
What the kernel said is in target/vm/console.log.";

const BENCH: &str = "\
Builds the benchmarks in release mode, runs them and prints one table; also writes
bench-results/results.md and bench-results/results.json.

Usage: cargo xtask bench [ARGUMENTS...]

First installs what it compares with and is missing (root, Debian or a relative of it); where it
cannot, it says how, and those contestants are left out.

  FILTER         run only the groups whose `group/contestant` names contain one of these words
  --rounds N     rounds per contestant (default 5); the table shows their median, min and max;
                 a group that takes long ends after 3
  --quick        small sizes, budgets not judged
  --full         slow contestants at full size too, which are left out otherwise
  --list         name the groups and contestants, run nothing
  --out DIR      write the results there instead of bench-results
  --against P    compare with another build: P is its checkout, which is built first, or its
                 `homeostat-bench`; the groups of both run alternately, at least 3 rounds each, and
                 one table shows medians, cost ratio (above 1: this build costs more) and spread";

const DENY: &str = "\
Checks that every dependency comes from crates.io under a licence that `deny.toml` allows, and what else
that file bans. Done by cargo-deny, without its advisories, which need a network.

Usage: cargo xtask deny

The first run builds cargo-deny into target/tools, which takes about two minutes. So `cargo xtask soak`
has this step and `cargo xtask test` does not: run it when Cargo.lock has changed.";

const TIDY: &str = "\
Checks what compilers do not: the architecture map names what exists, names are the vocabulary's,
dependencies between crates keep their direction, decisions are numbered, links lead somewhere.
Shows all problems together.

Usage: cargo xtask tidy [--report]

  --report   check nothing, but print the lines of code of each crate and of the largest files";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Request, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    fn check(line: &str, task: Task) {
        assert_eq!(parse_line(line), Ok(Request::Run(task)), "{line}");
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn each_task_is_read_with_its_arguments() {
        check("setup", Task::Setup);
        check("deny", Task::Deny);
        check("tidy", Task::Tidy);
        check("tidy --report", Task::SizeReport);
        check("soak", Task::Soak(Length(1), vec![]));
        check("soak ledger", Task::Soak(Length(1), words("ledger")));
        check("soak storm --times 5 kill", Task::Soak(Length(5), words("storm kill")));
        let order = |chosen, arguments| Order { chosen, profile: Profile::Test, arguments };
        check("vm", Task::Vm(order(Chosen::All, vec![])));
        check("vm --short", Task::Vm(order(Chosen::Short, vec![])));
        let named = Chosen::Named(words("rtnl knobs"));
        check("vm rtnl knobs -- vlan --exact", Task::Vm(order(named, words("vlan --exact"))));
        check("bench --quick diff", Task::Bench(words("--quick diff")));
        check("test", Task::Test(Choice { extent: Extent::Full, filters: vec![] }));
        let choice = Choice { extent: Extent::Fast, filters: words("pacing diff") };
        check("test pacing --fast diff", Task::Test(choice));
    }

    #[test]
    fn every_task_has_its_own_help() {
        for task in ["setup", "test", "soak", "vm", "bench", "deny", "tidy"] {
            let Ok(Request::Help(text)) = parse_line(&format!("{task} --help")) else {
                panic!("{task} has no help");
            };
            assert!(text.contains(&format!("cargo xtask {task}")), "{text}");
            assert!(OVERVIEW.contains(&format!("\n  {task} ")), "{task}");
        }
        assert_eq!(parse_line("--help"), Ok(Request::Help(OVERVIEW)));
    }

    #[test]
    fn mistakes_are_named() {
        let check = |line: &str, mistake: &str| {
            assert_eq!(parse_line(line), Err(mistake.to_owned()), "{line}");
        };
        check("", "which task?");
        check("tets", "there is no task `tets`");
        check("tidy now", "tidy: takes no argument, but got `now`");
        check("test --fats", "test: there is no option `--fats`");
        check("vm --shrot", "vm: there is no option `--shrot`");
        check("vm --short rtnl", "vm: either `--short` or names");
        check("soak --long", "soak: there is no option `--long`");
        check("soak --times", "soak: `--times` wants a number above 0");
        check("soak --times 0", "soak: `--times` wants a number above 0");
    }
}
