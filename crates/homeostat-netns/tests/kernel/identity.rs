//! Which namespace is which, while names come and go.

use homeostat_netns::{Identity, Netns, create, remove};

use crate::setting::{name, ordinary_user, sandbox};

pub(crate) fn a_cookie_belongs_to_one_namespace_and_needs_no_privileges_for_ones_own() {
    ordinary_user();
    let host = Netns::current().unwrap();
    let cookie = host.cookie().unwrap();
    assert_eq!(cookie, Netns::current().unwrap().cookie().unwrap());
    let sandbox = sandbox();
    assert_ne!(cookie, sandbox.netns().cookie().unwrap());
    let first = Netns::anonymous().unwrap();
    let second = Netns::anonymous().unwrap();
    assert_ne!(first.cookie().unwrap(), second.cookie().unwrap());
    let [one, other] = [&first, &second].map(|netns| Identity::of(netns).unwrap());
    assert_ne!(one, other);
    assert_eq!(Identity::of(&first).unwrap().to_string(), one.to_string());
}

pub(crate) fn an_open_descriptor_keeps_a_deleted_namespace_alive() {
    sandbox();
    let pinned = create(&name("blue")).unwrap();
    let cookie = pinned.cookie().unwrap();
    assert!(remove(&name("blue")).unwrap());
    assert!(Netns::named(&name("blue")).is_err());
    assert_eq!(pinned.cookie().unwrap(), cookie);
    assert!(pinned.run(|| std::path::Path::new("/proc/sys/net/ipv4").exists()).unwrap());
}

pub(crate) fn a_deleted_and_recreated_path_is_another_namespace() {
    sandbox();
    let first = create(&name("blue")).unwrap();
    assert!(first.same_as(&Netns::named(&name("blue")).unwrap()).unwrap());
    remove(&name("blue")).unwrap();
    create(&name("blue")).unwrap();
    let second = Netns::named(&name("blue")).unwrap();
    assert!(!first.same_as(&second).unwrap());
    assert_ne!(first.cookie().unwrap(), second.cookie().unwrap());
}
