//! Sets of files, from the document to the disk.
//!
//! What may happen to a set, and the tests of it. Those without a module of this program are in `homeostat-files` (`passes`)
//! and `homeostat-render`.
//!
//! | scenario | tests |
//! |---|---|
//! | an input is a file, a directory, a URL, a credential | `a_file_is_followed_however_it_is_replaced`, `a_directory_is_a_table_of_its_files`, `an_answer_that_is_known_is_not_sent_again`, `file_inputs::a_credential_of_the_unit_becomes_a_file_and_is_shown_nowhere` |
//! | an input has not answered, falls silent, is bad | `rendered::a_set_waits_for_an_input_and_the_accepted_value_stands_in_for_one_that_is_gone`, `rendered::a_url_is_followed_and_its_accepted_value_outlives_an_outage_and_a_restart`, `rendered::a_refused_input_holds_no_other_and_hand_edits_are_healed_meanwhile` |
//! | an input is truncated and filled slowly | `rendered::an_input_that_is_truncated_and_filled_slowly_never_leads_to_half_a_file`, `a_file_that_is_truncated_and_filled_slowly_is_never_read_by_half` |
//! | a fact changes | `rendered::a_daemon_follows_the_facts_of_the_machine`, `rendered::a_daemon_follows_the_name_of_its_host` |
//! | a template is wrong, or never ends | `rendered::mistakes_in_templates_are_found_by_check_at_their_places`, `an_error_is_drawn_through_its_includes`, `a_template_that_never_ends_is_stopped` |
//! | a file shrinks | `rendered::a_file_that_loses_most_of_its_lines_is_held` |
//! | the check refuses, or cannot run | `checking::a_refusal_names_the_line_and_shows_what_was_to_be_there`, `checking::what_could_not_run_is_neither_good_nor_bad`, `balancer::a_name_that_cannot_be_resolved_is_neither_good_nor_bad` |
//! | the check must see the real paths, and harm nothing | `checking::the_set_is_at_its_real_paths_and_nothing_of_it_is_on_the_disk`, `checking::a_program_that_only_reads_is_an_unprivileged_process`, `checking::a_program_in_the_view_has_little_power_and_sees_its_own_network_and_processes` |
//! | the phases of a set are announced | `rendered::the_phases_of_a_set_are_events_of_one_pass`, `balancer::what_happens_to_a_program_is_counted_and_announced` |
//! | the order of a swap, and what a staged file has before its content | `swapping::parts_come_before_the_file_that_the_check_names_and_removals_last`, `swapping::owner_mode_and_labels_are_there_before_the_content`, `swapping::access_lists_and_security_labels_are_those_of_the_file_that_was_there` |
//! | somebody edits a file during the swap | `swapping::a_file_that_is_edited_during_the_swap_takes_the_whole_set_back` |
//! | a kill after any system call of a swap | `crashes::after_a_kill_at_any_call_each_path_is_old_or_new_and_the_next_process_ends_the_swap`, `crashes::a_swap_that_was_cut_short_goes_back_where_somebody_has_come_between` |
//! | a target that is full, read-only, an overlay, a mount, immutable | `obstacles::a_full_file_system_keeps_what_it_has`, `obstacles::a_read_only_file_system_is_named`, `obstacles::a_set_on_an_overlay_is_written`, `obstacles::a_file_that_is_a_mount_names_the_directory_to_mount`, `obstacles::an_immutable_file_takes_the_whole_set_back` |
//! | a path through a link, or where others may write | `obstacles::a_path_through_a_link_or_a_missing_directory_is_refused_with_the_way_out`, `a_path_is_found_without_links_and_where_only_root_writes` |
//! | the program or its unit is down | `programs::a_program_that_is_down_gets_its_files_and_is_waited_for`, `units::files_are_written_while_the_unit_is_missing_or_stopped_and_taken_over_when_it_is_up` |
//! | a taken port | `balancer::a_taken_port_is_found_before_anything_is_written_and_costs_no_request`, `balancer::new_addresses_are_tried_in_the_namespace_of_the_set` |
//! | a reload that reports success and did not happen | `balancer::a_reload_that_reports_success_and_did_not_happen_is_found`, `nginx::a_port_that_is_taken_is_seen_and_the_former_files_are_back` |
//! | a reload of which the program dies | `unbound::dead_of_a_reload_it_is_back_with_the_last_good`, `units::a_unit_that_dies_of_new_files_is_started_with_the_former_ones` |
//! | a reload that is lost, or that must wait | `programs::new_files_are_taken_over_and_a_lost_reload_is_made_good`, `haproxy::reloads_keep_their_distance`, `haproxy::no_reload_while_too_many_old_workers_drain`, `sabotaged_files::a_reload_that_had_to_wait_is_made_when_it_may` |
//! | edited, truncated, renamed over, chmod, chown, removed, a link in its place | `sabotaged_files::whatever_is_done_to_a_file_is_healed_and_who_did_it_is_named`, `swapping::every_kind_of_sabotage_is_healed` |
//! | `sed -i` | `sabotaged_files::short_lived_programs_are_named_or_unknown` |
//! | dpkg installs its conffile | `sabotaged_files::a_package_that_installs_its_conffile_is_undone` |
//! | a second tool fights | `sabotaged_files::a_tool_that_fights_for_a_file_is_named` |
//! | `set server` by hand | `without_reload::what_somebody_told_the_process_is_healed_without_a_reload`, `without_reload::states_that_an_operator_set_are_left_and_shown` |
//! | a restart on an old file | `units::a_restart_on_an_old_file_is_healed`, `nginx::a_restart_on_an_old_file_is_healed`, `chrony::a_restart_on_an_old_file_is_healed_and_one_on_the_right_file_is_left_alone` |
//! | the culprit cannot be known | `culprits::who_cannot_be_known_is_not_guessed`, `culprits::without_fanotify_a_change_is_noticed_and_nobody_is_named` |
//! | whose file it is | `owning::a_foreign_file_holds_the_whole_set_until_it_is_adopted`, `owning::a_conffile_as_its_package_shipped_it_is_claimed`, `exclusive::directories_and_hidden_and_excepted_files_and_those_of_packages_stay` |
//! | requests while everything changes, and while every tenth text is invalid | `traffic::no_request_fails_while_everything_changes_without_a_reload`, `traffic::a_server_leaves_when_its_connections_have_ended` |
//! | each known program | `haproxy::it_is_kept`, `unbound::it_is_kept`, `bird::it_is_kept`, `nginx::it_is_kept`, `keepalived::it_is_kept`, `chrony::new_files_start_it_again_and_restored_ones_do_not`, `examples::the_example_of_each_program_is_applied_and_the_program_runs_it` |
//! | a certificate ends | `certificates::a_certificate_that_ended_is_found_and_written_all_the_same`, `file_inputs::days_of_certificates_and_refused_checks_are_metrics` |
//! | a secret | `files::a_secret_is_in_no_output`, `files::a_secret_that_a_program_quotes_is_in_no_output`, `rendered::a_secret_input_is_in_no_output_and_in_no_public_file`, `rendered::what_a_daemon_says_holds_no_secret` |
//! | a trial that nobody confirms | `files::a_trial_that_nobody_confirms_brings_files_back`, `balancer::a_rollback_lets_a_program_read_its_former_files`, `balancer::a_rollback_takes_back_what_a_running_program_was_told`, `restored_at_boot::a_program_never_reads_a_file_of_a_trial_that_a_power_loss_ended` |
//! | nothing has changed | `at_rest::a_converged_pass_over_100_files_writes_nothing_and_reads_no_content` |

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::keeping::until;
use crate::world::World;

impl World {
    /// A world with a directory for files, and a document that writes there.
    fn with_files(document: &str) -> Self {
        let world = World::new();
        fs::create_dir(world.path().join("etc")).unwrap();
        world.declare(document);
        world
    }

    /// Writes the document; `@` stands for the directory of the files.
    fn declare(&self, document: &str) {
        let etc = self.path().join("etc").display().to_string();
        self.write("host.toml", document.replace('@', &etc));
    }

    fn holds(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path().join("etc").join(name)).ok()
    }

    fn shows(&self, args: &str, code: i32, words: &[&str]) {
        let ran = self.run(args).exits(code);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        for word in words {
            assert!(text.contains(word), "{args}: {word} is not in\n{text}");
        }
    }
}

const TWO_SETS: &str = r#"
[files.web.directories."@/web"]
[files.web.write]
"@/web/a.cfg" = { text = "one\ntwo\n", mode = "0640" }
"@/web/key" = { copy = "key.txt", secret = true }
[files.other.write]
"@/other.cfg" = { text = "other\n" }
"#;

#[test]
fn a_set_is_planned_applied_and_verified() {
    let world = World::with_files(TWO_SETS);
    world.write("key.txt", "CANARY\n");
    world.shows("check host.toml", 0, &[]);
    let words = ["files in files/web", "files in files/other", "+one", "its content is secret"];
    world.shows("plan host.toml", 0, &words);
    assert_eq!(world.holds("other.cfg"), None, "a plan writes nothing");
    assert!(!world.state().join("files").exists(), "a plan keeps nothing");
    world.shows("apply --yes host.toml", 0, &["4 created"]);
    assert_eq!(world.holds("web/a.cfg").as_deref(), Some("one\ntwo\n"));
    world.shows("verify host.toml", 0, &[]);
    let kept = "# Sets of files that are kept here, and not shown: other (file ";
    world.shows("show", 0, &[kept, "web/a.cfg"]);
    world.declare(&TWO_SETS.replace("two", "2"));
    fs::write(world.path().join("etc/other.cfg"), "edited\n").unwrap();
    world.shows("plan host.toml", 0, &["-two", "+2", "drifted", "-edited", "+other"]);
    world.shows("apply --yes host.toml", 0, &["2 updated"]);
    assert_eq!(world.holds("other.cfg").as_deref(), Some("other\n"));
}

/// The link is there only, and the reload leaves a trace of what it saw.
#[test]
fn a_set_of_a_namespace_is_checked_and_reloaded_there() {
    let world = World::with_files(
        "[files.web]\nnamespace = \"blue\"\ncheck = [\"/bin/sh\", \"-c\", \"ip link show dev only-there\"]\n\
         reload = [\"/bin/sh\", \"-c\", \"ip -o link show dev only-there > @/reloaded\"]\n\
         [files.web.write]\n\"@/a.cfg\" = { text = \"a\\n\" }\n",
    );
    let world = world.with_own_names();
    world.shows("apply --yes host.toml", 1, &["the namespace `blue` does not exist"]);
    world.ip("netns add blue");
    world.ip("link add only-there type veth peer name other");
    world.shows("apply --yes host.toml", 1, &["its program refuses it", "does not exist"]);
    assert_eq!(world.holds("a.cfg"), None);
    world.ip("link set only-there netns blue");
    world.shows("apply --yes host.toml", 0, &["1 created"]);
    assert_eq!(world.holds("a.cfg").as_deref(), Some("a\n"));
    assert!(world.holds("reloaded").is_some_and(|seen| seen.contains("only-there")));
}

#[test]
fn a_program_that_others_could_replace_is_not_started() {
    let document = "[files.web]\n@check = [\"@/program\"]\n[files.web.write]\n\"@/a.cfg\" = { text = \"a\\n\" }\n";
    for field in ["check", "reload"] {
        let world = World::with_files(&document.replace("@check", field));
        let program = world.write("etc/program", "#!/bin/sh\ntouch $0.ran\n");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o757)).unwrap();
        let words = ["could put another program in its place", "chmod go-w"];
        world.shows("apply --yes host.toml", 1, &words);
        assert_eq!(world.holds("a.cfg"), None, "{field}");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        world.shows("apply --yes host.toml", 0, &["1 created"]);
        assert_eq!(
            world.holds("program.ran").is_some(),
            field == "reload",
            "what a check writes is gone"
        );
    }
}

#[test]
fn a_lost_section_of_files_is_held_and_an_empty_one_is_not() {
    let world = World::with_files(TWO_SETS);
    world.write("key.txt", "x\n");
    world.shows("apply --yes host.toml", 0, &[]);
    world.declare("");
    world.shows("apply --yes host.toml", 1, &["`[files]` is missing", "an empty `[files]`"]);
    assert_eq!(world.holds("other.cfg").as_deref(), Some("other\n"));
    // One set that goes while others stay was removed on purpose.
    world.declare("[files.other.write]\n\"@/other.cfg\" = { text = \"other\\n\" }\n");
    world.shows("apply --yes host.toml", 0, &["3 deleted"]);
    world.declare("[files]\n");
    world.shows("apply --yes host.toml", 0, &["1 deleted"]);
    assert_eq!(fs::read_dir(world.path().join("etc")).unwrap().count(), 0);
}

#[test]
fn a_secret_is_in_no_output() {
    let world = World::with_files(TWO_SETS);
    world.write("key.txt", "CANARY-ONE\n");
    let mut all = String::new();
    let mut run = |args: &str| {
        let ran = world.run(args);
        all.push_str(&ran.stdout);
        all.push_str(&ran.stderr);
    };
    run("plan host.toml");
    run("plan --json host.toml");
    run("apply --yes --json host.toml");
    world.write("key.txt", "CANARY-TWO\n");
    fs::write(world.path().join("etc/web/key"), "CANARY-THREE\n").unwrap();
    for args in ["plan host.toml", "plan --json host.toml", "verify --json host.toml", "show"] {
        run(args);
    }
    run("apply --yes host.toml");
    run("--revert-on-release plan host.toml");
    assert!(all.contains("its content is secret"));
    assert!(!all.contains("CANARY"), "{all}");
    // Whoever can guess a short secret must not be able to compare: digests have a key.
    let ledger = fs::read(world.ledger()).unwrap();
    for program in ["md5sum", "sha1sum", "sha256sum", "sha512sum"] {
        for secret in ["CANARY-ONE\n", "CANARY-TWO\n", "CANARY-THREE\n"] {
            let digest = world.finish_with(world.command(program), secret).exits(0).stdout;
            let digest = digest.split(' ').next().unwrap();
            assert!(digest.len() >= 32 && !all.contains(digest), "{all}");
            let is_kept = ledger.windows(digest.len()).any(|some| some == digest.as_bytes());
            assert!(!is_kept, "the ledger has the {program} of a secret");
        }
    }
}

/// A program that refuses a file may quote it, and one that accepts it, too.
#[test]
fn a_secret_that_a_program_quotes_is_in_no_output() {
    let quoting = "[files.web]\ncheck = [\"/bin/sh\", \"-c\", \"cat @/key >&2; grep -q good @/a\"]\n\
                   [files.web.write]\n\"@/a\" = { text = \"bad\\n\" }\n\
                   \"@/key\" = { copy = \"key.txt\", secret = true }\n";
    let world = World::with_files(quoting);
    world.write("key.txt", "password CANARY-1\n");
    let mut all = String::new();
    let mut run = |args: &str| {
        let ran = world.run(args);
        all.push_str(&ran.stdout);
        all.push_str(&ran.stderr);
    };
    for args in ["plan host.toml", "plan --json host.toml", "apply --yes --json host.toml"] {
        run(args);
    }
    world.declare(&quoting.replace("\"bad", "\"good"));
    for args in ["plan --out saved.plan host.toml", "apply --yes host.toml", "verify host.toml"] {
        run(args);
    }
    all.push_str(&fs::read_to_string(world.path().join("saved.plan")).unwrap());
    for word in ["its program refuses it: ***", "its program says: ***"] {
        assert!(all.contains(word), "{word}: {all}");
    }
    assert!(!all.contains("CANARY"), "{all}");
    assert_eq!(world.holds("a").as_deref(), Some("good\n"));
}

#[test]
fn a_trial_that_nobody_confirms_brings_files_back() {
    let before = "[files.web.write]\n\"@/a\" = { text = \"before\\n\" }\n";
    let world = World::with_files(before);
    world.shows("apply --yes host.toml", 0, &[]);
    fs::write(world.path().join("etc/theirs"), "theirs\n").unwrap();
    let tried = "[files.web.write]\n\"@/a\" = { text = \"tried\\n\" }\n\
                 \"@/new\" = { text = \"new\\n\" }\n\
                 \"@/theirs\" = { text = \"ours\\n\", adopt = true }\n";
    world.declare(tried);
    world.run("apply --yes --confirm-within 1s host.toml").exits(1);
    until("the rollback", || world.holds("a").as_deref() == Some("before\n"));
    until("the end of what is new", || world.holds("new").is_none());
    until("the original", || world.holds("theirs").as_deref() == Some("theirs\n"));
}

#[test]
fn files_of_a_namespace_or_a_sandbox_are_refused() {
    let world = World::with_files(TWO_SETS);
    world.write("key.txt", "x\n");
    world.shows("--sandbox plan host.toml", 1, &["belong to the whole host, not to the sandbox"]);
    world.declare("[namespaces.blue.files.web]\n");
    world.shows("check host.toml", 1, &["files belong to the host, not to a namespace"]);
}

#[test]
fn a_set_that_its_program_refuses_is_not_written() {
    let checked = "[files.web]\ncheck = [\"/bin/sh\", \"-c\", \"grep -q good @/a.cfg || \
                   { echo '@/a.cfg:1: bad' >&2; exit 1; }; echo told; cat @/part\"]\n\
                   [files.web.write]\n\"@/a.cfg\" = { text = \"bad\\n\" }\n\"@/part\" = { text = \"part\\n\" }\n";
    let world = World::with_files(checked);
    let refused = ["its program refuses it", "a.cfg:1: bad; 1: bad", "waits on file"];
    world.shows("plan host.toml", 0, &refused);
    world.shows("apply --yes host.toml", 1, &refused);
    assert_eq!((world.holds("a.cfg"), world.holds("part")), (None, None));
    world.declare(&checked.replace("\"bad\\n", "\"good\\n"));
    world.shows("plan host.toml", 0, &["its program says: told; part"]);
    world.shows("apply --yes host.toml", 0, &["2 created"]);
    world.declare(&checked.replace("/bin/sh", "/usr/sbin/not-installed"));
    world.shows("apply --yes host.toml", 1, &["it could not be checked", "No such file"]);
    assert_eq!(world.holds("a.cfg").as_deref(), Some("good\n"));
}

#[test]
fn a_daemon_heals_an_edit_at_once_and_keeps_sets_apart() {
    let world = World::with_files("");
    let etc = world.path().join("etc").display().to_string();
    let two = format!(
        "[settings.files]\nresync = \"1h\"\n[files.one.write]\n\"{etc}/one\" = {{ text = \"1\\n\" }}\n\
         [files.two.write]\n\"{etc}/two\" = {{ text = \"2\\n\" }}\n"
    );
    let _daemon = world.keep(&two);
    world.converges();
    for _ in 0..5 {
        fs::write(world.path().join("etc/one"), "edited\n").unwrap();
        until("the heal", || world.holds("one").as_deref() == Some("1\n"));
        fs::remove_file(world.path().join("etc/two")).unwrap();
        until("the file", || world.holds("two").as_deref() == Some("2\n"));
    }
    // The file is there before the pass that wrote it has ended.
    let status = world.run("status --wait").exits(0).stdout;
    assert!(status.contains("files/one") && status.contains("files/two"), "{status}");
}
