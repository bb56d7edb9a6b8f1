//! What is loaded, what is left alone, and what fails alone.

use std::fs;

use homeostat_engine::Explain as _;

use crate::world::{World, desired, report_lines};

#[test]
fn a_module_is_loaded_once_and_never_unloaded() {
    let world = World::new();
    let modules = desired("8021q br-netfilter");
    let report = world.pass(&modules);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(world.asked(), ["-- 8021q", "-- br_netfilter"]);
    let report = world.pass(&modules);
    assert!(report.is_converged() && report.plan().steps.is_empty());

    let report = world.pass(&desired("8021q"));
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(report_lines(&report), ["- module br_netfilter (released, it stays as it is)"]);
    assert_eq!(world.loaded(), ["8021q", "br_netfilter"]);
    assert_eq!(world.asked().len(), 2);
    assert!(world.pass(&desired("8021q")).plan().steps.is_empty());
}

#[test]
fn one_that_another_program_has_unloaded_is_loaded_again() {
    let world = World::new();
    assert!(world.pass(&desired("dummy")).is_converged());
    fs::remove_dir_all(world.path("module/dummy")).unwrap();
    assert!(world.pass(&desired("dummy")).is_converged());
    assert_eq!(world.asked(), ["-- dummy", "-- dummy"]);
}

#[test]
fn a_part_of_the_kernel_is_not_loaded() {
    let world = World::new();
    fs::write(world.path("modules.builtin"), "kernel/net/8021q/8021q.ko\n").unwrap();
    assert!(world.pass(&desired("8021q")).is_converged());
    assert!(world.asked().is_empty());
}

#[test]
fn what_cannot_be_loaded_fails_alone_with_the_way_out() {
    let world = World::new();
    let report = world.pass(&desired("denied dummy net-pf-10 nosuch"));
    let lines = report_lines(&report);
    let failed: Vec<&String> = lines.iter().filter(|line| line.starts_with("failed")).collect();
    assert_eq!(
        failed,
        [
            "failed module denied: modprobe: could not insert 'denied': Operation not permitted \
             (it needs CAP_SYS_MODULE (the drop-in modules.conf of the unit) and \
             `kernel.modules_disabled = 0`)",
            "failed module net_pf_10: modprobe has loaded something of another name \
             (it is an alias: `modinfo net_pf_10` shows the module)",
            "failed module nosuch: modprobe: Module nosuch not found in directory /lib/modules/6.1 \
             (the running kernel has no module `nosuch`: install the package of its modules, or \
             leave it out if it is a part of the kernel)",
        ]
    );
    assert_eq!(world.loaded(), ["dummy", "ipv6"]);
}

#[test]
fn without_modprobe_the_refusal_says_so() {
    let world = World::new();
    fs::remove_file(world.path("modprobe")).unwrap();
    let lines = report_lines(&world.pass(&desired("dummy")));
    let failed = lines.iter().find(|line| line.starts_with("failed")).unwrap();
    assert!(failed.contains("cannot be started") && failed.contains("install kmod"), "{failed}");
}
