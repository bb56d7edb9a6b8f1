//! Who has changed a file: named where the kernel says it, and unknown else.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use homeostat_core::{Hint, Reader as _, Source as _, View};
use homeostat_engine::Focus;
use homeostat_files::Reader;

use crate::bench::{Bench, Declared, block_on};

/// Writes something, and goes on until its input ends.
#[expect(clippy::disallowed_methods, reason = "somebody else, in a process of his own")]
fn shell(script: &str) -> Child {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("{script}; read -r _")]).stdin(Stdio::piped());
    command.spawn().unwrap()
}

async fn look(bench: &Bench, reader: &mut Reader, declared: &[Declared<'_>]) {
    let (desired, records) = (Arc::new(bench.desired(declared)), std::collections::BTreeMap::new());
    let view =
        View { desired: &desired, records: &records, focus: &Focus::All, is_caught_up: false };
    reader.observe(&view, &mut |_| {}).await.unwrap();
}

/// What hints say of a path until it is named by somebody.
async fn culprit(reader: &mut Reader, path: &str) -> String {
    loop {
        let Hint::Keys(keys) = reader.hint().await.unwrap() else { panic!("notices were lost") };
        let named = keys.into_iter().find(|(key, by)| key.to_string() == path && by.is_some());
        if let Some((_, Some(by))) = named {
            return by.to_string();
        }
    }
}

#[test]
fn a_process_is_named_with_its_command_and_only_its_program_where_a_secret_is() {
    let bench = Bench::new();
    let declared = [Declared::File("/etc/open", "x\n"), Declared::Secret("/etc/secret", "x\n")];
    let at = |path: &str| bench.at(path).display().to_string();
    block_on(async {
        let mut reader = bench.source.reader().unwrap();
        look(&bench, &mut reader, &declared).await;
        for (path, expected) in
            [("/etc/open", "/bin/sh -c echo CANARY"), ("/etc/secret", "sh (pid ")]
        {
            let mut other = shell(&format!("echo CANARY > {}", at(path)));
            let by = culprit(&mut reader, &format!("file {path}")).await;
            assert!(by.contains(expected) && by.contains(&format!("(pid {}", other.id())), "{by}");
            assert_eq!(by.contains("CANARY"), path == "/etc/open", "{by}");
            drop(other.stdin.take());
            other.wait().unwrap();
        }
    });
}

/// Whatever user it runs as by now.
#[test]
fn the_user_who_has_logged_in_is_named() {
    let bench = Bench::new();
    let declared = [Declared::File("/etc/open", "x\n")];
    block_on(async {
        let mut reader = bench.source.reader().unwrap();
        look(&bench, &mut reader, &declared).await;
        let path = bench.at("/etc/open").display().to_string();
        let mut other = shell(&format!("echo 4711 > /proc/self/loginuid; echo edited > {path}"));
        let by = culprit(&mut reader, "file /etc/open").await;
        assert!(by.ends_with(&format!("(pid {}, login uid 4711)", other.id())), "{by}");
        drop(other.stdin.take());
        other.wait().unwrap();
    });
}

/// Without the capability for it, the kernel does not say who it was.
#[test]
fn without_fanotify_a_change_is_noticed_and_nobody_is_named() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    let bench = Bench::new();
    let declared = [Declared::File("/etc/open", "x\n")];
    // Of this thread only, which ends with the test.
    let mut own = capabilities(None).unwrap();
    own.effective.remove(CapabilitySet::SYS_ADMIN);
    set_capabilities(None, own).unwrap();
    block_on(async {
        let mut reader = bench.source.reader().unwrap();
        look(&bench, &mut reader, &declared).await;
        let mut other = shell(&format!("echo edited > {}", bench.at("/etc/open").display()));
        let Hint::Keys(keys) = reader.hint().await.unwrap() else { panic!("notices were lost") };
        let keys: Vec<_> = keys.into_iter().map(|(key, by)| (key.to_string(), by)).collect();
        assert_eq!(keys, [("file /etc/open".to_owned(), None)]);
        drop(other.stdin.take());
        other.wait().unwrap();
    });
}

/// We ourselves are not accused, nor is a process that has ended.
#[test]
fn who_cannot_be_known_is_not_guessed() {
    let bench = Bench::new();
    let declared = [Declared::File("/etc/a", "x\n")];
    block_on(async {
        let mut reader = bench.source.reader().unwrap();
        look(&bench, &mut reader, &declared).await;
        fs::write(bench.at("/etc/a"), "ours\n").unwrap();
        let mut other = shell(&format!("echo theirs > {}; exit", bench.at("/etc/a").display()));
        other.wait().unwrap();
        let Hint::Keys(keys) = reader.hint().await.unwrap() else { panic!("notices were lost") };
        let keys: Vec<_> = keys.into_iter().collect();
        assert_eq!(keys.len(), 1, "{keys:?}");
        assert_eq!(keys[0].1, None, "{keys:?}");
    });
}

#[test]
fn files_of_the_same_name_in_other_directories_are_not_confused() {
    let bench = Bench::new();
    for name in ["/etc/a", "/etc/b"] {
        crate::bench::make_directory(&bench.at(name));
    }
    let declared = [Declared::File("/etc/a/x", "x\n"), Declared::File("/etc/b/x", "x\n")];
    block_on(async {
        let mut reader = bench.source.reader().unwrap();
        look(&bench, &mut reader, &declared).await;
        fs::write(bench.at("/etc/b/x"), "edited\n").unwrap();
        let Hint::Keys(keys) = reader.hint().await.unwrap() else { panic!("notices were lost") };
        let keys: Vec<String> = keys.keys().map(ToString::to_string).collect();
        assert_eq!(keys, ["file /etc/b/x"]);
        // A directory that is not declared any more is not watched any more.
        look(&bench, &mut reader, &declared[..1]).await;
        fs::write(bench.at("/etc/b/x"), "edited\n").unwrap();
        fs::write(bench.at("/etc/a/x"), "edited\n").unwrap();
        let Hint::Keys(keys) = reader.hint().await.unwrap() else { panic!("notices were lost") };
        let keys: Vec<String> = keys.keys().map(ToString::to_string).collect();
        assert_eq!(keys, ["file /etc/a/x"]);
    });
}
