//! What becomes a desired state, what stands when something fails, and what is told.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use homeostat_engine::{EventKind, Events};
use homeostat_kit::pipeline::{Check, Facts, Phase, Pipeline, Program, Refused, Template, Typed};
use homeostat_kit::provider::{Channel, Latest, Sender, Standing, channel};
use serde_json::{Value, json};

type Bad = Typed<fn(&str) -> Result<String, String>>;

/// Everything is good but what has the word `bad` in it.
fn typed() -> Bad {
    Typed(|text| if text.contains("bad") { Err("it is bad".to_owned()) } else { Ok(text.into()) })
}

struct Scene {
    colour: Sender<Value>,
    size: Sender<Value>,
    latest: Latest<Pipeline<Template, Bad>>,
    told: tokio::sync::broadcast::Receiver<homeostat_engine::Event>,
}

fn scene() -> Scene {
    let events = Events::default();
    let told = events.subscribe();
    let (colour, colours): (_, Channel<Value>) = channel();
    let (size, sizes) = channel();
    let template = Template::new("{{ colour }}/{{ size }}").unwrap();
    let pipeline = Pipeline::new(template, typed())
        .with("colour", colours)
        .with("size", sizes)
        .with_events(events, "doors", "here");
    Scene { colour, size, latest: Latest::new(pipeline), told }
}

impl Scene {
    async fn ask(&mut self) -> (Option<String>, Option<String>) {
        match self.latest.ask().await {
            Standing::Fresh(desired) => (Some((*desired).clone()), None),
            Standing::Stale { desired, why } => (Some((*desired).clone()), Some(why)),
            Standing::Unknown { why } => (None, Some(why)),
            Standing::Nothing => panic!("it never says so"),
        }
    }

    fn told(&mut self) -> Vec<EventKind> {
        std::iter::from_fn(|| self.told.try_recv().ok().map(|event| event.kind)).collect()
    }

    fn phase(&self) -> Option<Phase> {
        self.latest.provider().trouble().map(|trouble| trouble.phase)
    }
}

fn good(text: &str) -> (Option<String>, Option<String>) {
    (Some(text.to_owned()), None)
}

#[tokio::test]
async fn a_desired_state_of_several_inputs_is_unknown_until_each_has_answered() {
    let mut scene = scene();
    assert_eq!(scene.ask().await.0, None);
    scene.colour.put(json!("green"));
    let (desired, why) = scene.ask().await;
    assert_eq!(desired, None);
    assert!(why.unwrap().starts_with("input: `size` has not answered yet"));
    assert_eq!(scene.phase(), Some(Phase::Input));
    assert!(!scene.told().iter().any(|what| matches!(what, EventKind::Rendered { .. })));
    scene.size.put(json!(3));
    assert_eq!(scene.ask().await, good("green/3"));
    let told = scene.told();
    assert!(
        matches!(told[..], [EventKind::Rendered { bytes: 7, .. }, EventKind::Validated]),
        "{told:?}"
    );
}

#[tokio::test]
async fn an_input_that_cannot_answer_any_more_keeps_its_word() {
    let mut scene = scene();
    scene.colour.put(json!("green"));
    scene.size.put(json!(3));
    scene.ask().await;
    scene.colour.unknown("the store is away");
    scene.size.put(json!(4));
    assert_eq!(scene.ask().await, good("green/4"));
}

#[tokio::test]
async fn nothing_is_rendered_while_no_input_says_anything_new() {
    let mut scene = scene();
    scene.colour.put(json!("green"));
    scene.size.put(json!(3));
    scene.ask().await;
    scene.told();
    scene.colour.put(json!("green"));
    for _ in 0..3 {
        assert_eq!(scene.ask().await, good("green/3"));
    }
    assert!(scene.told().is_empty());
}

#[tokio::test]
async fn the_last_good_desired_state_stands_and_the_error_names_the_phase() {
    let mut scene = scene();
    scene.colour.put(json!("green"));
    scene.size.put(json!(3));
    scene.ask().await;
    scene.told();
    scene.colour.put(json!("bad"));
    for _ in 0..3 {
        let (desired, why) = scene.ask().await;
        assert_eq!(desired.unwrap(), "green/3");
        assert_eq!(why.unwrap(), "validate: it is bad");
    }
    assert_eq!(scene.latest.provider().pending().collect::<Vec<_>>(), ["colour"]);
    let told = scene.told();
    assert!(
        matches!(&told[..], [EventKind::Rendered { .. }, EventKind::Failed { failure }]
            if failure.error == "validate: it is bad"),
        "what was refused is not tried again, and told once: {told:?}"
    );
    scene.colour.put(json!("green"));
    assert_eq!(scene.ask().await, good("green/3"), "the bad word was taken back");
    assert_eq!(scene.phase(), None);
}

#[tokio::test]
async fn an_input_is_pending_until_it_is_validated_and_good_ones_do_not_wait_for_bad_ones() {
    let mut scene = scene();
    scene.colour.put(json!("green"));
    scene.size.put(json!(3));
    scene.ask().await;
    scene.colour.put(json!("bad"));
    scene.size.put(json!(4));
    assert_eq!(scene.ask().await, good("green/4"));
    assert_eq!(scene.phase(), Some(Phase::Validate));
    assert_eq!(scene.latest.provider().pending().collect::<Vec<_>>(), ["colour"]);
    scene.colour.put(json!("blue"));
    assert_eq!(scene.ask().await, good("blue/4"));
    assert_eq!(scene.latest.provider().pending().count(), 0);
}

#[tokio::test]
async fn a_template_that_cannot_be_filled_fails_in_its_phase() {
    let (facts, said) = channel();
    let template = Template::new("{{ facts.colour }}").unwrap();
    let mut latest = Latest::new(Pipeline::new(template, typed()).with("facts", said));
    facts.put(json!({ "shade": 3 }));
    let Standing::Unknown { why } = latest.ask().await else { panic!("it has never been good") };
    assert!(why.starts_with("render: undefined"), "{why}");
    facts.put(json!({ "colour": "green" }));
    assert!(matches!(latest.ask().await, Standing::Fresh(_)));
}

#[tokio::test]
async fn a_real_program_checks_what_was_rendered() {
    let (script, said) = channel();
    let render = |facts: &Facts| Ok::<_, String>(facts["script"].as_str().unwrap().to_owned());
    let check = Program::new("sh", ["-n", "{}"], typed());
    let mut latest = Latest::new(Pipeline::new(render, check).with("script", said));
    script.put(json!("if true; then echo yes; fi\n"));
    assert!(matches!(latest.ask().await, Standing::Fresh(_)));
    script.put(json!("if true; then echo yes\n"));
    let Standing::Stale { desired, why } = latest.ask().await else { panic!("it has no end") };
    assert!(desired.ends_with("fi\n"), "the last good one stands");
    assert!(why.starts_with("validate: `sh` refused it"), "{why}");
    script.put(json!("echo bad\n"));
    let Standing::Stale { why, .. } = latest.ask().await else { panic!("the next check") };
    assert_eq!(why, "validate: it is bad");
}

/// Cannot be run the first time.
struct Flaky(AtomicU32);

impl Check for Flaky {
    type DesiredState = String;

    async fn check(&self, text: String) -> Result<String, Refused> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Refused::Unchecked("not now".to_owned())),
            _ => Ok(text),
        }
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_tried_again() {
    let check = Program::new("/no/such/program", [], typed());
    let Err(Refused::Unchecked(why)) = check.check("text".to_owned()).await else {
        panic!("there is no such program")
    };
    assert!(why.contains("cannot run `/no/such/program`"), "{why}");

    let (colour, said) = channel();
    let render = |facts: &Facts| Ok::<_, String>(facts["colour"].to_string());
    let pipeline = Pipeline::new(render, Flaky(AtomicU32::new(0))).with("colour", said);
    let mut latest = Latest::new(pipeline);
    colour.put(json!("green"));
    assert!(matches!(latest.ask().await, Standing::Unknown { .. }));
    assert_eq!(latest.ask().await, Standing::Fresh(Arc::new("\"green\"".to_owned())));
}

#[tokio::test]
async fn a_change_of_any_input_wakes_who_waits() {
    let mut scene = scene();
    scene.colour.put(json!("green"));
    scene.size.put(json!(3));
    assert_eq!(*scene.latest.next_desired().await, "green/3");
    let waiting = tokio::spawn(async move { (scene.latest.next_desired().await, scene.colour) });
    tokio::task::yield_now().await;
    scene.size.put(json!(4));
    assert_eq!(*waiting.await.unwrap().0, "green/4");
}
