//! What the README shows is what the program does.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends where its ground is missing"
)]

use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The text of the fenced block that opens with these words.
fn block(fence: &str) -> String {
    block_of("README.md", fence)
}

fn block_of(file: &str, fence: &str) -> String {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    let (_, rest) = text.split_once(fence).expect("the file has this block");
    let (block, _) = rest.split_once("```").expect("the block ends");
    block.to_owned()
}

/// What a knob held before depends on the machine; what it shall hold does not.
fn without_values_before(text: &str) -> String {
    let cut = |line: &str| match (line.split_once("  ~ "), line.split_once(" -> ")) {
        (Some((_, change)), Some((_, after))) => {
            let key = change.split("  ").next().unwrap_or_default();
            format!("    ~ {key}  -> {after}")
        }
        _ => line.to_owned(),
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_document_in_the_readme_is_the_example() {
    let example = std::fs::read_to_string(root().join("examples/router.toml")).unwrap();
    assert_eq!(block("```toml\n"), example);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test runs the program as a user does")]
fn every_example_is_a_good_document() {
    let mut examples = 0;
    let files = |folder: &str| std::fs::read_dir(root().join(folder)).unwrap();
    for entry in files("examples").chain(files("examples/hosts")) {
        let path = entry.unwrap().path();
        // Lists and rulesets are read through the document that names them; a directory is a program with
        // tests of its own.
        let is_named = |kind: &std::ffi::OsStr| kind == "routes" || kind == "nft";
        if path.is_dir() || path.extension().is_some_and(is_named) {
            continue;
        }
        let output =
            Command::new(env!("CARGO_BIN_EXE_homeostat")).arg("check").arg(&path).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{}: {stderr}", path.display());
        examples += 1;
    }
    assert!(examples >= 2 + 12, "the examples are gone");
}

/// What a plan in a sandbox prints.
#[expect(clippy::disallowed_methods, reason = "the test runs the program as a user does")]
fn planned(document: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_homeostat"))
        .args(["--sandbox", "plan", document])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_plan_in_the_readme_is_the_plan_of_the_example() {
    let shown = block("```text\n$ homeostat --sandbox plan examples/router.toml\n");
    let printed = planned("examples/router.toml");
    assert_eq!(without_values_before(&printed), without_values_before(&shown));
}

#[test]
fn the_guide_to_firewalls_shows_the_example_and_its_plan() {
    let example = std::fs::read_to_string(root().join("examples/firewall.nft")).unwrap();
    assert_eq!(block_of("docs/firewall.md", "```nft\n"), example);
    let shown = block_of("docs/firewall.md", "$ homeostat --sandbox plan examples/firewall.toml\n");
    assert_eq!(planned("examples/firewall.toml"), shown);
}

#[test]
fn the_haproxy_of_the_page_about_files_is_the_example() {
    let example = std::fs::read_to_string(root().join("examples/programs/haproxy.toml"));
    let block = block_of("docs/files.md", "examples/programs/haproxy.toml):\n\n```toml\n");
    assert_eq!(block, example.unwrap());
}

/// The pages for users: the README and the book.
fn pages() -> Vec<(String, String)> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let names = docs.map(|path| format!("docs/{}", path.file_name().unwrap().to_str().unwrap()));
    let paths = names.chain(["README.md".to_owned()]);
    paths.map(|path| (path.clone(), std::fs::read_to_string(root().join(path)).unwrap())).collect()
}

/// The pages whose shell blocks are all run by tests: that of fleets in `fleet`, the others in `e2e`.
const FOLLOWED: [&str; 5] = [
    "README.md",
    "docs/daemon.md",
    "docs/first-host.md",
    "docs/fleet.md",
    "docs/upgrade-and-uninstall.md",
];

#[test]
fn every_shell_block_is_run_by_a_test_or_says_why_not() {
    let mut blocks = 0;
    for (path, text) in pages() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("```sh")) {
            blocks += 1;
            let above = at.checked_sub(1).map_or("", |above| lines[above]);
            let reason = above.strip_prefix("<!-- not run: ");
            let is_fine = match reason.and_then(|reason| reason.strip_suffix(" -->")) {
                Some(reason) => reason.len() > 10,
                None => FOLLOWED.contains(&path.as_str()),
            };
            assert!(is_fine, "{path}:{}: run this block in a test, or say why not", at + 1);
        }
    }
    assert!(blocks > 10, "the blocks are gone");
}

#[test]
fn the_ways_to_uninstall_are_the_same_on_both_pages() {
    let of = |page: &str| {
        let (_, end) = page.split_once("homeostat uninstall --yes").unwrap();
        end.split_once("```").unwrap().0.to_owned()
    };
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let first = read("docs/first-host.md");
    assert_eq!(of(&first), of(&read("docs/upgrade-and-uninstall.md")));
}

/// All sources of the program.
fn sources(directory: &Path, to: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, to);
        } else if path.extension().is_some_and(|end| end == "rs") {
            to.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_message_of_the_page_about_troubleshooting_is_one_of_the_program() {
    let mut texts = Vec::new();
    sources(&root().join("crates"), &mut texts);
    let page = std::fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let mut messages = 0;
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let message = row.split('`').nth(1).unwrap();
        let parts: Vec<&str> = message.split("...").map(str::trim).collect();
        let is_known = |text: &String| parts.iter().all(|part| text.contains(part));
        assert!(texts.iter().any(is_known), "no message has `{message}`");
        messages += 1;
    }
    assert!(messages > 15, "the messages are gone");
}

/// What differs between two runs of the demo: times, and how many objects events named.
fn without_measures(text: &str) -> Vec<String> {
    let is_time = |word: &str, next: &str| {
        word.trim_start_matches('~').parse::<f64>().is_ok() && ["ms", "s"].contains(&next)
    };
    let shape = |line: &str| {
        let line = line.split("   at most ").next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut kept = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let next = words.get(at + 1).copied().unwrap_or_default();
            match *word {
                "ms" | "s" => kept.push("TIME"),
                "objects" if at + 1 == words.len() => _ = kept.pop(),
                word if is_time(word, next) => {}
                word => kept.push(word),
            }
        }
        kept.join(" ")
    };
    text.trim_end().lines().map(shape).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test runs the program as a user does")]
fn the_demo_in_the_readme_is_what_the_demo_shows() {
    const BEGIN: &str = "# homeostat run demo.toml";
    let shown = block("```text\n$ homeostat demo\n...\n");
    let output = Command::new(env!("CARGO_BIN_EXE_homeostat")).arg("demo").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{stderr}");
    let begin = printed.find(BEGIN).expect("the demo comes to its sabotage");
    assert_eq!(without_measures(&printed[begin..]), without_measures(&shown));
}

#[test]
fn only_measures_are_left_out_of_the_comparison() {
    let check = |one: &str, other: &str, is_same: bool| {
        assert_eq!(without_measures(one) == without_measures(other), is_same, "{one} | {other}");
    };
    check("  flush  0.31 ms   37 objects", "  flush  12 ms", true);
    check("  cut  ~31 ms   5 objects", "  cut  ~1.20 s   4 objects", true);
    check("  many  0.31 ms   at most 4 ms", "  many  1 ms   at most 2 s", true);
    check("  flush  0.31 ms", "  flush NOT HEALED: lan0", false);
    check("# 50 of 50 healed", "# 49 of 50 healed", false);
    check("  foreign objects: 107, untouched", "  foreign objects: 106, untouched", false);
}
