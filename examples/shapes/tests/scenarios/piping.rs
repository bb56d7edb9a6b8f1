//! A document that is rendered from facts and validated before it is a desired state.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::pacing::{Reason, Reasons};
use homeostat_engine::{Control as _, Event, EventKind, Events, Handle, Loop, LoopDeps, Pace};
use homeostat_kit::provider::{Latest, Sender, channel};
use homeostat_kit::simple::{Adapted, place};
use homeostat_shapes::document::Document;
use homeostat_shapes::pipeline::Pipeline;
use homeostat_shapes::source::Shapes;
use homeostat_shapes::template::{Template, host_facts};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;

use crate::stage::{Stage, in_time, marker, until};

const TEMPLATE: &str = r#"
owner = "me"
ownership = "mark"
{% for name in names %}
[shapes.{{ name }}]
type = "square"
colour = "{{ paint.colour }}"
labels = { machine = "{{ facts.hostname }}" }
{% endfor %}
"#;

struct Piped {
    names: Sender<Value>,
    paint: Sender<Value>,
    handle: Handle<Adapted<Shapes>>,
    published: Receiver<Event>,
}

/// A loop that is fed by a pipeline; it is started by the first desired state.
async fn piped(stage: &Stage) -> Piped {
    let events = Events::default();
    let published = events.subscribe();
    let ((names, said_names), (paint, said_paint)) = (channel(), channel());
    let pipeline = Pipeline::new(Template::new(TEMPLATE).unwrap(), str::parse::<Document>)
        .with("names", said_names)
        .with("paint", said_paint)
        .with("facts", Arc::new(host_facts()))
        .with_events(events.clone(), "shapes", "loopback");
    names.put(json!(["my-door", "my-window"]));
    paint.put(json!({ "colour": "green" }));
    let mut desired_states = Latest::new(pipeline);
    let source = stage.source.clone();
    let bound = move |document: &Document| {
        let place = place::<Shapes>("me", "loopback");
        source
            .bind(&document.strategy().unwrap(), document.desired_states().unwrap(), place)
            .unwrap()
    };
    let first = desired_states.next_desired().await.unwrap();
    let lock = std::sync::Arc::new(homeostat_engine::Alone::i_am_the_only_writer());
    let deps = LoopDeps::new(lock, stage.ledger.clone()).with_events(events);
    let pace = Pace::of::<Adapted<Shapes>>(1).with_resync(Duration::from_hours(1)).unwrap();
    // A loop that waited for its pace would not see the second desired state in this test.
    let pace = pace.with_min_interval(Duration::from_hours(1));
    let (kept, handle) = Loop::new(bound(&first), deps, pace);
    tokio::spawn(kept.run());
    let fed = handle.clone();
    tokio::spawn(async move {
        loop {
            // The pipeline publishes its own trouble as events.
            if let Ok(desired) = desired_states.next_desired().await {
                fed.replace(bound(&desired)).unwrap();
            }
        }
    });
    Piped { names, paint, handle, published }
}

async fn next_event(published: &mut Receiver<Event>, so: impl Fn(&EventKind) -> bool) -> EventKind {
    in_time("the event", async {
        loop {
            let what = published.recv().await.unwrap().kind;
            if so(&what) {
                return what;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_rendered_desired_state_is_kept_and_its_acceptance_is_a_command() {
    let stage = Stage::new(marker());
    let mut piped = piped(&stage).await;
    next_event(&mut piped.published, |what| matches!(what, EventKind::Rendered { .. })).await;
    next_event(&mut piped.published, |what| matches!(what, EventKind::Validated)).await;
    until("both", || stage.service.shown() == "green my-door, green my-window").await;
    piped.paint.put(json!({ "colour": "blue" }));
    next_event(&mut piped.published, |what| matches!(what, EventKind::Validated)).await;
    let woken =
        next_event(&mut piped.published, |what| matches!(what, EventKind::Woken { .. })).await;
    let EventKind::Woken { reasons, .. } = woken else { unreachable!() };
    assert_eq!(reasons, Reasons::from(Reason::Desired));
    until("the paint", || stage.service.shown() == "blue my-door, blue my-window").await;
    drop(piped.handle);
}

#[tokio::test]
async fn a_desired_state_that_cannot_be_rendered_or_validated_deletes_nothing() {
    let stage = Stage::new(marker());
    let mut piped = piped(&stage).await;
    until("both", || stage.service.shown() == "green my-door, green my-window").await;
    piped.paint.put(json!({ "tint": "blue" }));
    let failed =
        next_event(&mut piped.published, |what| matches!(what, EventKind::Failed { .. })).await;
    let EventKind::Failed { failure } = failed else { unreachable!() };
    assert!(failure.error.starts_with("render: "), "{failure}");
    piped.paint.put(json!({ "colour": "\" x" }));
    let failed =
        next_event(&mut piped.published, |what| matches!(what, EventKind::Failed { .. })).await;
    let EventKind::Failed { failure } = failed else { unreachable!() };
    assert!(failure.error.starts_with("validate: "), "{failure}");
    assert!(piped.handle.pass().await.unwrap().unwrap().is_converged(), "the last good one stands");
    assert_eq!(stage.service.shown(), "green my-door, green my-window");
    piped.names.put(json!(["my-door"]));
    until("the names alone", || stage.service.shown() == "green my-door").await;
}
