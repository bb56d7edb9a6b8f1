//! Modules of a real kernel, judged by `/proc/modules`. Run in the virtual machine, which may keep what is loaded.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

use std::fs;
use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Explain as _, Finding, Focus, LedgerKey, LedgerPage, MemoryLedger,
    Observer, Ownership, PassInput, Report, Source as _, pass,
};
use homeostat_modules::{DesiredState, Key, Modules};
use homeostat_testkit::entries::entry_lines;

fn run(names: &[&str]) -> Report<Modules> {
    let (source, config) = (Modules::of_the_system(), Config::<Key>::default());
    let desired = DesiredState::new(names.iter().map(|name| name.parse().unwrap()));
    let ownership = &Ownership::Checkpoint;
    let (desired, focus) = (Arc::new(desired), Focus::All);
    let input = PassInput { source: &source, desired, ownership, focus, config: &config };
    let key = LedgerKey::new("test", "modules", "test").with_identity("1");
    let mut page = LedgerPage::open(Arc::new(MemoryLedger::default()), key).unwrap();
    let mut observer = Observer::open(&source, "test").unwrap();
    let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { pass(&input, &mut observer, &writer, &mut page).await.unwrap() })
}

fn is_listed(name: &str) -> bool {
    let modules = fs::read_to_string("/proc/modules").unwrap();
    modules.lines().any(|line| line.split(' ').next() == Some(name))
}

#[test]
fn a_module_of_the_running_kernel_is_loaded_with_what_it_depends_on() {
    let report = run(&["8021q"]);
    assert!(report.is_converged());
    assert!(is_listed("8021q"), "run it by `cargo xtask vm modules`");
    assert!(run(&["8021q"]).plan().steps.is_empty());
}

#[test]
fn a_part_of_the_kernel_counts_as_loaded() {
    let report = run(&["unix", "tcp_cubic"]);
    assert!(report.is_converged());
    assert!(report.plan().steps.is_empty());
}

#[test]
fn a_module_that_the_kernel_does_not_have_fails() {
    let report = run(&["homeostat-has-no-such", "dummy"]);
    assert!(!report.is_converged());
    assert!(is_listed("dummy"));
    let failed = entry_lines(&report, |entry| match entry {
        Entry::Finding { key, finding: Finding::Failed { failure, .. } } => {
            format!("{key}: {}", failure.help.unwrap_or_default())
        }
        _ => String::new(),
    });
    let failed: Vec<String> = failed.into_iter().filter(|line| !line.is_empty()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let start = "module homeostat_has_no_such: the running kernel has no module";
    assert!(failed.iter().all(|line| line.starts_with(start)), "{failed:?}");
}
