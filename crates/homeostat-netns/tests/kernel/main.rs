//! Checks against the running kernel, each in a process of its own that starts with one thread.
//!
//! No check touches the host's namespaces, names or knobs: what writes, writes inside a sandbox.
//! The same checks pass for root and for an ordinary user. Start at [`CHECKS`].
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "this is test code, but without `#[test]` clippy cannot know"
)]

mod identity;
mod names;
mod program;
mod sandbox;
mod setting;
mod threads;

use std::env;
use std::process::ExitCode;

/// Tells a child which check to run.
const CHECK: &str = "HOMEOSTAT_NETNS_CHECK";

type Check = (&'static str, fn());

/// Lists checks under the name of their function.
macro_rules! checks {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name as fn())),*]
    };
}

const CHECKS: &[Check] = checks![
    identity::a_cookie_belongs_to_one_namespace_and_needs_no_privileges_for_ones_own,
    identity::a_deleted_and_recreated_path_is_another_namespace,
    identity::an_open_descriptor_keeps_a_deleted_namespace_alive,
    names::a_created_name_is_one_for_ip_and_starts_with_lo_down,
    names::a_failed_create_leaves_no_name_behind,
    names::a_leftover_file_becomes_a_namespace,
    names::a_leftover_file_is_no_namespace_and_can_be_removed,
    names::a_missing_name_is_answered_with_those_that_exist,
    names::a_name_made_by_ip_is_entered_and_removed_by_us,
    names::a_removal_that_fails_leaves_what_is_mounted,
    names::a_removed_name_is_gone_in_every_mount_namespace,
    names::a_taken_name_is_an_error_of_its_own,
    names::only_an_empty_file_with_nothing_on_it_is_a_leftover,
    names::the_directory_is_mounted_once_however_many_names_are_made,
    sandbox::a_forbidden_user_namespace_names_the_switch,
    sandbox::a_sandbox_cannot_open_host_wide_knobs_for_writing,
    sandbox::a_sandbox_has_knobs_read_only_but_for_its_networks,
    sandbox::a_sandbox_in_a_user_namespace_is_refused_only_if_it_reaches_host_knobs,
    sandbox::a_sandbox_opens_its_own_network_knobs_for_writing,
    sandbox::a_threaded_process_cannot_enter_a_sandbox,
    sandbox::an_ordinary_user_enters_a_sandbox,
    sandbox::root_becomes_nobody_and_others_stay_who_they_are,
    sandbox::the_hosts_run_directory_stays_untouched,
    sandbox::the_way_back_to_the_hosts_namespace_is_refused_with_help,
    threads::a_panic_inside_leaves_the_caller_where_it_was,
    threads::a_thread_inside_sees_its_own_network_knobs,
    threads::a_thread_that_forgets_hosts_changes_nothing_for_others,
    threads::abstract_socket_names_are_per_network_namespace,
    threads::an_entered_thread_stays_inside_and_the_others_outside,
];

fn main() -> ExitCode {
    if let Ok(name) = env::var(CHECK) {
        let (_, check) = CHECKS.iter().find(|(known, _)| *known == name).unwrap();
        check();
        return ExitCode::SUCCESS;
    }
    let wanted = Wanted::from_args(env::args().skip(1));
    let chosen: Vec<_> = CHECKS.iter().filter(|(name, _)| wanted.matches(name)).collect();
    if wanted.list {
        for (name, _) in chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    run_all(&chosen)
}

fn run_all(chosen: &[&Check]) -> ExitCode {
    println!("\nrunning {} tests", chosen.len());
    let mut failures = Vec::new();
    for (name, _) in chosen {
        let output = program::myself().env(CHECK, name).output().unwrap();
        let passed = output.status.success();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed {
            failures.push((name, output));
        }
    }
    for (name, output) in &failures {
        println!("\n---- {name} ----\n{}", program::text(&output.stdout));
        println!("{}\n{}", program::text(&output.stderr), output.status);
    }
    let (word, failed) = (if failures.is_empty() { "ok" } else { "FAILED" }, failures.len());
    let (passed, filtered) = (chosen.len() - failed, CHECKS.len() - chosen.len());
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out\n"
    );
    ExitCode::from(u8::from(failed > 0))
}

/// What the command line of `cargo test -- …` asks for; flags that make no difference here are ignored.
#[derive(Default)]
struct Wanted {
    filters: Vec<String>,
    skips: Vec<String>,
    by: Matching,
    list: bool,
    /// Nothing here is ignored, so `--ignored` chooses nothing.
    ignored_only: bool,
}

#[derive(Default)]
enum Matching {
    #[default]
    Part,
    Whole,
}

impl Wanted {
    fn from_args(mut args: impl Iterator<Item = String>) -> Self {
        let mut wanted = Self::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--exact" => wanted.by = Matching::Whole,
                "--list" => wanted.list = true,
                "--ignored" => wanted.ignored_only = true,
                "--skip" => wanted.skips.extend(args.next()),
                "--test-threads" | "--color" | "--format" | "--logfile" | "-Z" => drop(args.next()),
                flag if flag.starts_with('-') => {}
                _ => wanted.filters.push(arg),
            }
        }
        wanted
    }

    fn matches(&self, name: &str) -> bool {
        let hit = |text: &String| match self.by {
            Matching::Part => name.contains(text.as_str()),
            Matching::Whole => name == text,
        };
        let is_named = self.filters.is_empty() || self.filters.iter().any(hit);
        is_named && !self.skips.iter().any(hit) && !self.ignored_only
    }
}
