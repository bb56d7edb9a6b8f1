//! Random values of every option of a kind.

use homeostat_engine::Explain as _;
use homeostat_qdisc::kinds::{HTB_CLASS, KINDS, Opt, Unit};
use homeostat_qdisc::quantity::{Rate, Share, Size, Time};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use crate::bench::{Bench, desired, report_lines};

/// Passes over random values of these kinds: each converges, and the one after it writes nothing.
pub(crate) fn check(kinds: &[&str]) {
    let cases = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 500 } else { 24 };
    for spec in KINDS.into_iter().filter(|spec| kinds.contains(&spec.name)) {
        let bench = Bench::new();
        let class = options(HTB_CLASS.options, HTB_CLASS.required);
        let strategy = (options(spec.options, spec.required), class);
        let mut runner =
            TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let ran = runner.run(&strategy, |(mut words, class)| {
            words.insert("kind".to_owned(), json!(spec.name));
            if spec.has_classes() {
                words.insert("classes".to_owned(), json!({ "10": class }));
            }
            let wanted = desired(&[("qdisc va", Value::Object(words))]);
            let report = bench.pass(&wanted);
            prop_assert!(report.is_converged(), "{:#?}", report_lines(&report));
            let again = bench.pass(&wanted);
            prop_assert!(again.plan().steps.is_empty(), "{:#?}", report_lines(&again));
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{}: {error}", spec.name));
    }
}

/// Values that mean something: the kernel refuses none of them.
fn value_of(option: &'static Opt) -> BoxedStrategy<Value> {
    let text = |it: &dyn std::fmt::Display| json!(it.to_string());
    match (option.unit, option.name) {
        // It is an exponent.
        (_, "buckets") => (1_u32..12).prop_map(|exponent| json!(1_u32 << exponent)).boxed(),
        (_, "flows") => (1_u32..4096).prop_map(|flows| json!(flows)).boxed(),
        (Unit::Rate, _) => (1_i64..500_000_000).prop_map(move |it| text(&Rate(it * 8))).boxed(),
        (Unit::Size, _) => (2000_i64..4_000_000).prop_map(move |it| text(&Size(it))).boxed(),
        (Unit::Time, _) => (0_i64..5_000_000).prop_map(move |it| text(&Time(it * 1000))).boxed(),
        (Unit::Share, _) => (0_i64..=0xffff_ffff).prop_map(move |it| text(&Share(it))).boxed(),
        (Unit::Count(least, most), _) => {
            (least..=most.min(least + 100_000)).prop_map(|it| json!(it)).boxed()
        }
        (Unit::Flag, _) => any::<bool>().prop_map(|it| json!(it)).boxed(),
        (Unit::Class, _) => Just(json!("10")).boxed(),
        (unit, _) => {
            let words = unit.words().unwrap().words;
            proptest::sample::select(words).prop_map(|(word, _)| json!(word)).boxed()
        }
    }
}

/// Some of the options, and all that are required.
fn options(
    options: &'static [Opt],
    required: &'static [&'static str],
) -> BoxedStrategy<Map<String, Value>> {
    let all: Vec<_> = options
        .iter()
        .map(|option| {
            let always = required.contains(&option.name) || option.name == "limit";
            let is_there = if always { Just(true).boxed() } else { any::<bool>().boxed() };
            (is_there, value_of(option))
                .prop_map(|(is_there, value)| is_there.then(|| (option.name.to_owned(), value)))
        })
        .collect();
    all.prop_map(|all| all.into_iter().flatten().collect()).boxed()
}
