//! What becomes a desired state, what stays in force when something fails, and which events are published.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use homeostat_engine::{EventKind, Events};
use homeostat_kit::provider::{Channel, CurrentDesired, Latest, Sender, channel};
use homeostat_shapes::pipeline::{Phase, Pipeline};
use homeostat_shapes::template::Template;
use serde_json::{Value, json};

/// Everything is good but what has the word `bad` in it.
fn check(text: &str) -> Result<String, &'static str> {
    if text.contains("bad") { Err("it is bad") } else { Ok(text.to_owned()) }
}

struct Scene {
    colour: Sender<Value>,
    size: Sender<Value>,
    latest: Latest<Pipeline<String>>,
    published: tokio::sync::broadcast::Receiver<homeostat_engine::Event>,
}

fn scene() -> Scene {
    let events = Events::default();
    let published = events.subscribe();
    let (colour, colours): (_, Channel<Value>) = channel();
    let (size, sizes) = channel();
    let template = Template::new("{{ colour }}/{{ size }}").unwrap();
    let pipeline = Pipeline::new(template, check)
        .with("colour", colours)
        .with("size", sizes)
        .with_events(events, "doors", "here");
    Scene { colour, size, latest: Latest::new(pipeline), published }
}

impl Scene {
    async fn ask(&mut self) -> (Option<String>, Option<String>) {
        match self.latest.ask().await {
            CurrentDesired::Fresh(desired) => (Some((*desired).clone()), None),
            CurrentDesired::Stale { desired, why } => (Some((*desired).clone()), Some(why)),
            CurrentDesired::Unknown { why } => (None, Some(why)),
            CurrentDesired::Nothing => panic!("it never says so"),
        }
    }

    fn published_kinds(&mut self) -> Vec<EventKind> {
        std::iter::from_fn(|| self.published.try_recv().ok().map(|event| event.kind)).collect()
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
    assert!(!scene.published_kinds().iter().any(|what| matches!(what, EventKind::Rendered { .. })));
    scene.size.put(json!(3));
    assert_eq!(scene.ask().await, good("green/3"));
    let kinds = scene.published_kinds();
    assert!(
        matches!(kinds[..], [EventKind::Rendered { bytes: 7, .. }, EventKind::Validated]),
        "{kinds:?}"
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
    scene.published_kinds();
    scene.colour.put(json!("green"));
    for _ in 0..3 {
        assert_eq!(scene.ask().await, good("green/3"));
    }
    assert!(scene.published_kinds().is_empty());
}

#[tokio::test]
async fn the_last_good_desired_state_stands_and_the_error_names_the_phase() {
    let mut scene = scene();
    scene.colour.put(json!("green"));
    scene.size.put(json!(3));
    scene.ask().await;
    scene.published_kinds();
    scene.colour.put(json!("bad"));
    for _ in 0..3 {
        let (desired, why) = scene.ask().await;
        assert_eq!(desired.unwrap(), "green/3");
        assert_eq!(why.unwrap(), "validate: it is bad");
    }
    assert_eq!(scene.latest.provider().pending().collect::<Vec<_>>(), ["colour"]);
    let kinds = scene.published_kinds();
    assert!(
        matches!(&kinds[..], [EventKind::Rendered { .. }, EventKind::Failed { failure }]
            if failure.error == "validate: it is bad"),
        "what was refused is not tried again, and reported once: {kinds:?}"
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
    let mut latest = Latest::new(Pipeline::new(template, check).with("facts", said));
    facts.put(json!({ "shade": 3 }));
    let CurrentDesired::Unknown { why } = latest.ask().await else {
        panic!("it has never been good")
    };
    assert!(why.starts_with("render: undefined"), "{why}");
    facts.put(json!({ "colour": "green" }));
    assert!(matches!(latest.ask().await, CurrentDesired::Fresh(_)));
}

#[tokio::test]
async fn a_change_of_any_input_wakes_who_waits() {
    let mut scene = scene();
    scene.colour.put(json!("green"));
    scene.size.put(json!(3));
    assert_eq!(*scene.latest.next_desired().await.unwrap(), "green/3");
    let waiting = tokio::spawn(async move { (scene.latest.next_desired().await, scene.colour) });
    tokio::task::yield_now().await;
    scene.size.put(json!(4));
    assert_eq!(*waiting.await.unwrap().0.unwrap(), "green/4");
}
