//! A daemon over what changes around it: the files of its document, and the namespaces it works in.

use std::time::{Duration, UNIX_EPOCH};

use snapbox::str;

use crate::program::{HOMEOSTAT, Holder, output};
use crate::world::World;

const LISTS: &str = "[[routes]]\nfrom-file = \"lists/one.routes\"\n";
const RED: &str = "[namespaces.red.links.lo]\naddresses = [\"10.7.0.1/32\"]\n\
                   [[namespaces.red.routes]]\nto = \"10.8.0.0/16\"\ntype = \"blackhole\"\n";

/// However busy the machine is, what takes longer does not come.
const PATIENCE: Duration = Duration::from_mins(2);

/// Looks until it is so.
#[track_caller]
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    assert!(comes(so), "{what} never came");
}

/// Whether it comes to be so.
pub(crate) fn comes(so: impl Fn() -> bool) -> bool {
    let deadline = UNIX_EPOCH.elapsed().unwrap() + PATIENCE;
    while !so() {
        if UNIX_EPOCH.elapsed().unwrap() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

impl World {
    fn in_red(&self, args: &str) -> String {
        let mut command = self.command("ip");
        command.args(["netns", "exec", "red", "ip"]).args(args.split_whitespace());
        output(command)
    }

    fn is_red_kept(&self) -> bool {
        self.in_red("address show dev lo").contains("10.7.0.1/32")
            && self.in_red("route show proto 76").contains("blackhole 10.8.0.0/16")
    }

    /// A namespace of somebody else's, with one end of a cable in it: the other end goes with it.
    fn add_red(&self, end: &str) {
        self.ip("netns add red");
        self.ip(&format!("link add {end} type veth peer name eth0 netns red"));
    }

    fn has_link(&self, name: &str) -> bool {
        self.namespace.ip(&["link", "show", "dev", name]).is_ok()
    }
}

#[test]
fn a_changed_list_alone_is_taken_over_wherever_it_is() {
    let world = World::new();
    world.write("lists/one.routes", "10.20.0.0/16 dev lo\n");
    world.ip("link set lo up");
    let _daemon = world.keep(LISTS);
    world.converges();
    let mut events = world.follow();
    world.write("lists/one.routes", "10.20.0.0/16 dev lo\n10.21.0.0/16 dev lo\n");
    let is_made = |key: &'static str| {
        move |event: &serde_json::Value| event["event"] == "step-applied" && event["key"] == key
    };
    events.until(is_made("route 10.21.0.0/16"));
    // Another list, in another directory, which the daemon has not watched so far.
    world.write("more/two.routes", "10.22.0.0/16 dev lo\n");
    world.write("host.toml", format!("{LISTS}[[routes]]\nfrom-file = \"more/two.routes\"\n"));
    events.until(is_made("route 10.22.0.0/16"));
    world.write("more/two.routes", "10.22.0.0/16 dev lo\n10.23.0.0/16 dev lo\n");
    events.until(is_made("route 10.23.0.0/16"));
    world.converges();
    assert_eq!(world.listed("route show proto 76").len(), 4);
}

const ROUTE: &str = "[[routes]]\nto = \"10.20.0.0/16\"\ntype = \"blackhole\"\n";

#[test]
fn a_document_behind_a_link_is_taken_over_when_it_changes() {
    let world = World::new();
    world.write("elsewhere/real.toml", "");
    std::os::unix::fs::symlink("elsewhere/real.toml", world.path().join("host.toml")).unwrap();
    let _daemon = world.keep("");
    world.converges();
    world.write("elsewhere/real.toml", ROUTE);
    until("the route", || world.listed("route show proto 76").len() == 1);
}

#[test]
fn a_directory_of_documents_may_be_put_in_the_place_of_another() {
    let world = World::new();
    world.write("conf/a.toml", "");
    world.write("next/a.toml", ROUTE);
    let _daemon = world.keep_at("conf");
    world.converges();
    let rename = |from: &str, to: &str| {
        std::fs::rename(world.path().join(from), world.path().join(to)).unwrap();
    };
    rename("conf", "former");
    until("the refusal", || {
        assert_eq!(world.listed("route show proto 76").len(), 0);
        world.log().contains("conf")
    });
    rename("next", "conf");
    until("the route", || world.listed("route show proto 76").len() == 1);
    // It is watched as the former one was.
    world.write("conf/b.toml", ROUTE.replace("10.20", "10.21"));
    until("another route", || world.listed("route show proto 76").len() == 2);
}

#[test]
fn a_bad_list_is_refused_and_the_last_good_one_stands() {
    let world = World::new();
    world.write("lists/one.routes", "10.20.0.0/16 dev lo\n");
    world.ip("link set lo up");
    let _daemon = world.keep(LISTS);
    world.converges();
    world.write("lists/one.routes", "10.20.0.0/16 dev lo\nnonsense\n");
    until("the refusal", || {
        assert_eq!(world.listed("route show proto 76").len(), 1);
        world.log().contains("one.routes")
    });
    world.write("lists/one.routes", "10.20.0.0/16 dev lo\n10.21.0.0/16 dev lo\n");
    until("the good list", || world.listed("route show proto 76").len() == 2);
}

#[test]
fn a_daemon_has_no_use_for_a_document_on_standard_input() {
    let world = World::new();
    world.finish_with(world.homeostat("run -"), LISTS).fails(str![[r#"
error: the daemon reads its document again when it changes, and cannot do so from standard input
help: write the document to a file

"#]]);
}

#[test]
fn another_mode_or_pace_is_taken_over_with_the_document() {
    let world = World::new();
    let routes = "[[routes]]\nto = \"10.9.0.0/16\"\ntype = \"blackhole\"\n";
    let _daemon = world.keep(routes);
    world.converges();
    world.write("host.toml", format!("[settings.rtnl]\nmode = \"observe\"\n{routes}"));
    world.run("reload").exits(0);
    let mut events = world.follow();
    world.ip("route del blackhole 10.9.0.0/16");
    events.until(|event| event["event"] == "completed" && event["converged"] == false);
    assert!(world.listed("route show proto 76").is_empty(), "it only observes");
    world.write("host.toml", format!("[settings.rtnl]\nresync = \"1h\"\n{routes}"));
    world.run("reload").exits(0);
    world.converges();
    assert_eq!(world.listed("route show proto 76").len(), 1);
    let status = world.run("status --json").json(0);
    let loops = status["loops"].as_array().unwrap();
    let rtnl = loops.iter().find(|one| one["source"] == "rtnl").unwrap();
    assert!(rtnl["next_due_in_ms"].as_u64().unwrap() > 60_000, "{rtnl}");
}

#[test]
fn a_namespace_that_goes_is_let_go_of_and_what_was_inside_is_not_made_elsewhere() {
    let world = World::new().with_own_names();
    world.add_red("cable");
    let _daemon = world.keep(RED);
    world.converges();
    assert!(world.is_red_kept());
    world.ip("netns delete red");
    // Any descriptor of ours in there would keep it, and with it the other end of the cable.
    until("the end of the namespace", || !world.has_link("cable"));
    let status = world.run("status --json").json(2);
    assert_eq!(status["converged"], false);
    let loops = status["loops"].as_array().unwrap();
    let waits = loops.iter().filter(|one| one["waits_on"] == "namespace red");
    assert!(waits.count() > 0, "{status}");
    assert_eq!(world.listed("route show proto 76").len(), 0, "nothing of it came to the host");
}

/// Quirk `mounts-send-no-event`: on a busy machine, a namespace comes long after the file of its name.
#[test]
fn a_namespace_that_comes_after_its_file_was_looked_at_is_kept() {
    let world = World::new().with_own_names();
    let run = |program: &str, args: &[&str]| {
        let mut command = world.command(program);
        command.args(args);
        output(command)
    };
    let _daemon = world.keep(RED);
    world.stands();
    run("touch", &["/run/netns/red"]);
    let waits = "namespace red: \\\"red\\\" is not a network namespace";
    until("a look", || world.run("status --json").stdout.contains(waits));
    run("unshare", &["--net=/run/netns/red", "true"]);
    until("the namespace", || world.is_red_kept());
}

#[test]
fn a_namespace_that_was_replaced_at_its_path_is_kept_anew_and_the_former_is_let_go_of() {
    let world = World::new().with_own_names();
    world.add_red("cable");
    let _daemon = world.keep(RED);
    world.converges();
    for (before, after) in [("cable", "second"), ("second", "third")] {
        world.ip("netns delete red");
        world.add_red(after);
        until("the new namespace", || world.is_red_kept());
        until("the end of the former one", || !world.has_link(before));
        assert!(world.has_link(after));
    }
    // Its loop receives the events of what happens in there.
    let mut events = world.follow();
    world.in_red("route del blackhole 10.8.0.0/16");
    events.until_healed("route 10.8.0.0/16");
}

/// A soft limit of 1024 is usual, for programs that use `select`.
#[test]
fn more_namespaces_than_the_soft_limit_of_open_files_are_kept() {
    let world = World::new().with_own_names();
    let space = |nth| {
        format!("[namespaces.n{nth}]\ncreate = true\n[namespaces.n{nth}.links.lo]\nup = true\n")
    };
    let document = (0..20).map(space).collect::<Vec<_>>().concat();
    world.write("host.toml", document);
    let mut command = world.command("prlimit");
    command.arg("--nofile=64:4096").arg(HOMEOSTAT).args(["run", "host.toml", "--state-dir"]);
    command.arg(world.state());
    let daemon = world.keep_by(command);
    world.converges();
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    assert!(open > 64, "{open}");
}

/// Declares something in the namespace that the daemon is started for.
const INSIDE: &str = "[links.lo]\naddresses = [\"10.7.0.1/32\"]\n\
                      [[routes]]\nto = \"10.8.0.0/16\"\ntype = \"blackhole\"\n";

impl World {
    /// Waits until a namespace is gone, which any descriptor of ours would keep, and with it the cable's other end;
    /// meanwhile the daemon says what it waits on.
    fn is_let_go_of(&self, cable: &str, waits_on: &str) {
        until("the end of the namespace", || !self.has_link(cable));
        // It says so a moment after it has closed its descriptors.
        let waits = format!("\"waits_on\":\"{waits_on}\"");
        until("the reason", || self.run("status --json").stdout.contains(&waits));
        self.run("status").exits(2);
        assert_eq!(self.listed("route show proto 76").len(), 0, "nothing of it came to the host");
    }
}

#[test]
fn a_daemon_for_a_name_waits_until_the_name_is_made_again() {
    let world = World::new().with_own_names();
    world.add_red("cable");
    let _daemon = world.keep_with(INSIDE, "--netns red");
    world.converges();
    for end in ["cable", "second"] {
        assert!(world.is_red_kept());
        world.ip("netns delete red");
        world.is_let_go_of(end, "namespace red");
        world.add_red("second");
        until("the new namespace", || world.is_red_kept());
    }
    world.converges();
}

/// What keeps the namespace alive is a mount anywhere, as container engines make it: it may go without its file.
#[test]
fn a_namespace_at_a_path_is_let_go_of_and_kept_anew() {
    let world = World::new().with_own_names();
    let run = |program: &str, args: &str| {
        let mut command = world.command(program);
        command.args(args.split_whitespace());
        output(command)
    };
    run("mkdir", "/run/engine");
    run("touch", "/run/engine/box");
    let mount = |cable: &str| {
        world.add_red(cable);
        run("mount", "--bind /run/netns/red /run/engine/box");
        world.ip("netns delete red");
    };
    let by_path =
        "[namespaces.box]\npath = \"/run/engine/box\"\n[namespaces.box.links.lo]\nup = true\n";
    for (document, options) in [(INSIDE, "--netns /run/engine/box"), (by_path, "")] {
        mount("cable");
        let daemon = world.keep_with(document, options);
        world.converges();
        run("umount", "--lazy /run/engine/box");
        until("the end of the namespace", || !world.has_link("cable"));
        let status = world.run("status --json").json(2);
        let loops = status["loops"].as_array().unwrap();
        let waits = loops.iter().filter(|one| one["waits_on"] != serde_json::Value::Null);
        assert!(waits.count() > 0, "{status}");
        mount("second");
        world.converges();
        run("umount", "--lazy /run/engine/box");
        until("the end of the second", || !world.has_link("second"));
        drop(daemon);
    }
}

#[test]
fn a_daemon_for_a_process_ends_with_it() {
    let world = World::new();
    for with_path in [false, true] {
        let holder = Holder::start("--net", "ip link set lo up");
        let pid = holder.pid();
        world.ip(&format!("link add cable type veth peer name eth0 netns {pid}"));
        let netns = if with_path { format!("/proc/{pid}/ns/net") } else { pid.to_string() };
        let daemon = world.keep_with(INSIDE, &format!("--netns {netns}"));
        world.converges();
        drop(holder);
        assert_eq!(daemon.wait().code(), Some(3));
        until("the end of the namespace", || !world.has_link("cable"));
    }
}

#[test]
fn a_namespace_of_a_process_that_a_file_names_is_kept_as_long_as_the_process_lives() {
    let world = World::new();
    let document = "[namespaces.box]\npid-file = \"box.pid\"\n[namespaces.box.links.lo]\n\
                    addresses = [\"10.7.0.1/32\"]\n";
    let _daemon = world.keep(document);
    world.stands();
    for cable in ["first", "second"] {
        let holder = Holder::start("--net", "ip link set lo up");
        let pid = holder.pid();
        world.ip(&format!("link add {cable} type veth peer name eth0 netns {pid}"));
        world.write("box.pid", format!("{pid}\n"));
        world.converges();
        let mut inside = world.command("nsenter");
        inside.args([&*format!("--net=/proc/{pid}/ns/net"), "ip", "address", "show", "dev", "lo"]);
        assert!(output(inside).contains("10.7.0.1/32"));
        drop(holder);
        world.is_let_go_of(cable, "namespace pid-file @DIR/box.pid");
    }
}

#[test]
fn a_link_whose_other_end_lies_in_a_namespace_that_is_not_there_waits_for_it() {
    let world = World::new().with_own_names();
    let cable = "[links.cable]\nkind = \"veth\"\npeer = { name = \"eth0\", namespace = \"red\" }\n";
    let rest = "[[routes]]\nto = \"10.9.0.0/16\"\ntype = \"blackhole\"\n";
    world.write("host.toml", format!("{cable}{rest}"));
    // Whose namespace it is, and when it comes, is not for the document to know.
    world.run("check host.toml").exits(0);
    let _daemon = world.keep(&format!("{cable}{rest}"));
    world.stands();
    let status = world.run("status").exits(2).stdout;
    assert!(status.contains("link cable (rtnl in host): pending"), "{status}");
    assert!(status.contains("reason: waits on namespace red"), "{status}");
    assert_eq!(world.listed("route show proto 76").len(), 1, "nothing else waits for it");
    for _ in 0..2 {
        world.ip("netns add red");
        world.converges();
        assert!(world.has_link("cable"));
        assert!(world.in_red("link show eth0").contains("eth0"));
        world.ip("netns delete red");
        until("the end of the link", || !world.has_link("cable"));
        until("the wait", || world.run("status").stdout.contains("waits on namespace red"));
    }
}
