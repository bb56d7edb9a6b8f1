//! Named namespaces, shared with `ip netns` in both directions.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::symlink;

use homeostat_netns::{
    Error, Netns, create, create_over_leftover, is_leftover, names, remove, remove_leftover,
};

use rustix::mount::mount_bind;

use crate::program::{ip, shell_in_own_mounts};
use crate::setting::{limit, name, ordinary_user, sandbox, user_namespace};

pub(crate) fn a_created_name_is_one_for_ip_and_starts_with_lo_down() {
    sandbox();
    let blue = create(&name("blue")).unwrap();
    assert_eq!(ip(&["netns", "list"]).trim(), "blue");
    let seen_by_ip = ip(&["netns", "exec", "blue", "readlink", "/proc/self/ns/net"]);
    let seen_by_us = blue.run(|| fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    assert_eq!(seen_by_ip.trim(), seen_by_us.to_str().unwrap());
    let links = ip(&["-n", "blue", "-o", "link"]);
    assert!(links.contains("<LOOPBACK>") && links.lines().count() == 1, "{links}");
    ip(&["netns", "delete", "blue"]);
    assert!(!remove(&name("blue")).unwrap(), "what `ip` removed is missing, and that is no error");
}

pub(crate) fn a_name_made_by_ip_is_entered_and_removed_by_us() {
    sandbox();
    ip(&["netns", "add", "blue"]);
    ip(&["-n", "blue", "link", "set", "lo", "up"]);
    let blue = Netns::named(&name("blue")).unwrap();
    let links = blue.run(|| ip(&["-o", "link"])).unwrap();
    assert!(links.contains("<LOOPBACK,UP,LOWER_UP>"), "{links}");
    assert_eq!(names().unwrap(), [name("blue")]);
    assert!(remove(&name("blue")).unwrap());
    assert_eq!(ip(&["netns", "list"]), "");
    assert!(!name("blue").path().exists());
}

pub(crate) fn a_taken_name_is_an_error_of_its_own() {
    sandbox();
    let first = create(&name("blue")).unwrap();
    let error = create(&name("blue")).unwrap_err();
    assert!(matches!(&error, Error::AlreadyExists { name } if name.as_str() == "blue"), "{error}");
    assert!(first.same_as(&Netns::named(&name("blue")).unwrap()).unwrap(), "the first one stays");
}

pub(crate) fn a_missing_name_is_answered_with_those_that_exist() {
    sandbox();
    create(&name("red")).unwrap();
    create(&name("green")).unwrap();
    let error = Netns::named(&name("blue")).unwrap_err();
    assert_eq!(error.to_string(), "there is no network namespace named \"blue\"");
    let help = "there is \"green\", \"red\"; make it with `ip netns add blue`";
    assert_eq!(error.help().unwrap(), help);
}

pub(crate) fn a_leftover_file_is_no_namespace_and_can_be_removed() {
    sandbox();
    fs::write(name("blue").path(), "").unwrap();
    let error = Netns::named(&name("blue")).unwrap_err();
    assert!(matches!(error, Error::NotNetns { .. }), "{error}");
    assert!(error.help().unwrap().contains("ip netns delete blue"));
    assert!(remove(&name("blue")).unwrap());
    assert!(names().unwrap().is_empty());
}

pub(crate) fn a_leftover_file_becomes_a_namespace() {
    sandbox();
    fs::write(name("blue").path(), "").unwrap();
    assert!(is_leftover(&name("blue")));
    let blue = create_over_leftover(&name("blue")).unwrap();
    assert!(blue.same_as(&Netns::named(&name("blue")).unwrap()).unwrap());
    assert_eq!(ip(&["netns", "list"]).trim(), "blue");
    assert!(remove(&name("blue")).unwrap());
    assert!(names().unwrap().is_empty());
}

pub(crate) fn only_an_empty_file_with_nothing_on_it_is_a_leftover() {
    sandbox();
    create(&name("netns")).unwrap();
    fs::write(name("notes").path(), "notes").unwrap();
    fs::create_dir(name("directory").path()).unwrap();
    symlink("/dev/null", name("link").path()).unwrap();
    for taken in ["netns", "notes", "directory", "link"].map(name) {
        assert!(!is_leftover(&taken), "{taken}");
        let error = create_over_leftover(&taken).unwrap_err();
        assert!(matches!(error, Error::NotLeftover { .. }), "{taken}: {error}");
        let error = remove_leftover(&taken).unwrap_err();
        assert!(matches!(error, Error::NotLeftover { .. }), "{taken}: {error}");
        assert!(fs::symlink_metadata(taken.path()).is_ok(), "{taken}");
    }
    Netns::named(&name("netns")).unwrap();
    fs::write(name("blue").path(), "").unwrap();
    assert!(remove_leftover(&name("blue")).unwrap());
    assert!(
        !remove_leftover(&name("blue")).unwrap(),
        "what is gone is missing, and that is no error"
    );
}

/// A process with another view of the mounts loses the name, too; the namespace lives on while it is held.
pub(crate) fn a_removed_name_is_gone_in_every_mount_namespace() {
    sandbox();
    let blue = create(&name("blue")).unwrap();
    let mut other =
        shell_in_own_mounts("stat -f -c %t /run/netns/blue; read go; ls /run/netns; echo end");
    // The number of nsfs: not every `stat` knows its name.
    assert_eq!(other.line(), "6e736673");
    assert!(remove(&name("blue")).unwrap());
    assert!(!name("blue").path().exists());
    other.say("go");
    assert_eq!(other.line(), "end", "a file is left over");
    blue.run(|| ()).unwrap();
}

/// Two mounts on one name: only one was meant, so both stay.
pub(crate) fn a_removal_that_fails_leaves_what_is_mounted() {
    sandbox();
    let below = create(&name("blue")).unwrap();
    let above = Netns::anonymous().unwrap();
    mount_bind(format!("/proc/self/fd/{}", above.as_fd().as_raw_fd()), name("blue").path())
        .unwrap();
    let error = remove(&name("blue")).unwrap_err();
    assert!(matches!(error, Error::Remove { .. }), "{error}");
    assert!(above.same_as(&Netns::named(&name("blue")).unwrap()).unwrap());
    assert!(!below.same_as(&above).unwrap());
}

pub(crate) fn a_failed_create_leaves_no_name_behind() {
    ordinary_user();
    user_namespace();
    // Room for the sandbox's own namespace and no other.
    limit("max_net_namespaces", 1);
    sandbox();
    let error = create(&name("blue")).unwrap_err();
    assert!(matches!(error, Error::Detach { .. }), "{error:?}");
    assert!(error.help().unwrap().contains("user.max_net_namespaces"), "{:?}", error.help());
    assert!(names().unwrap().is_empty());
}

pub(crate) fn the_directory_is_mounted_once_however_many_names_are_made() {
    sandbox();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = |mounts: &str, path: &str| {
        mounts.lines().filter(|line| line.split(' ').nth(4) == Some(path)).count()
    };
    // The host's own, if it has one, lies hidden below the sandbox's `/run`.
    let hidden = at(&mounts(), "/run/netns");
    create(&name("blue")).unwrap();
    ip(&["netns", "add", "red"]);
    create(&name("green")).unwrap();
    let mounts = mounts();
    assert_eq!(at(&mounts, "/run/netns"), hidden + 1, "{mounts}");
    for path in ["/run/netns/blue", "/run/netns/red", "/run/netns/green"] {
        assert_eq!(at(&mounts, path), 1, "{path}\n{mounts}");
    }
}
