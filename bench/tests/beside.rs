//! The same controller of shapes as one would write it with kube-rs's runtime: what the page beside
//! kube-rs claims of it is so.
//!
//! Declarations live in a reflector's store, which a test feeds as a watch of an API server would. The
//! part between the two marks is the controller; the page counts its lines.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use homeostat_engine::Failure;
use homeostat_shapes::client::{Client, Conditions, Request};
use homeostat_shapes::service::Service;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_runtime::controller::{Action, Config, ReconcileReason, ReconcileRequest, applier};
use kube_runtime::reflector::ObjectRef;
use kube_runtime::reflector::store::{Store, Writer};
use kube_runtime::watcher;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

// The controller begins here.
struct Context {
    client: Client,
    again: Action,
}

async fn reconcile(desired: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Failure> {
    let name = desired.metadata.name.clone().unwrap_or_default();
    let colour = desired.data.as_ref().and_then(|data| data.get("colour")).cloned();
    let body = json!({ "name": name, "type": "square", "colour": colour });
    let path = format!("/shapes/{name}");
    let there = context.client.read(&path).await?;
    let call = match there.status {
        404 => Request::new("POST", "/shapes"),
        200 if there.body["colour"] != json!(colour) => Request::new("PATCH", &path),
        200 => return Ok(context.again.clone()),
        _ => return Err(there.failure()),
    };
    let sent = context.client.send(call, Conditions::default(), &body).await;
    let reply =
        sent.map_err(|error| Failure::new(error.to_string(), homeostat_engine::Retry::Soon))?;
    if reply.status == 200 { Ok(context.again.clone()) } else { Err(reply.failure()) }
}

fn error_policy(_: Arc<ConfigMap>, _: &Failure, _: Arc<Context>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

fn controller(
    context: Context,
    store: Store<ConfigMap>,
    queue: impl Stream<Item = Result<ReconcileRequest<ConfigMap>, Infallible>>,
) -> impl Stream<Item = bool> {
    let reconcile = |desired, context| Box::pin(reconcile(desired, context));
    applier(reconcile, error_policy, Arc::new(context), store, queue, Config::default())
        .map(|done| done.is_ok())
}
// The controller ends here.

type Requests = UnboundedSender<Result<ReconcileRequest<ConfigMap>, Infallible>>;

struct Stage {
    service: Service,
    writer: Writer<ConfigMap>,
    requests: Requests,
    done: UnboundedReceiver<bool>,
}

fn declared(name: &str, colour: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let data = Some(BTreeMap::from([("colour".to_owned(), colour.to_owned())]));
    ConfigMap { metadata, data, ..ConfigMap::default() }
}

impl Stage {
    fn new(again: Action) -> Self {
        let service = Service::start().unwrap();
        let mut writer = Writer::default();
        writer.apply_watcher_event(&watcher::Event::Init);
        writer.apply_watcher_event(&watcher::Event::InitDone);
        let (requests, mut asked) = unbounded_channel();
        let queue = stream::poll_fn(move |context| asked.poll_recv(context));
        let (sender, done) = unbounded_channel();
        let context = Context { client: Client::new(service.addr()), again };
        let store = writer.as_reader();
        tokio::spawn(async move {
            let mut running = std::pin::pin!(controller(context, store, queue));
            while let Some(done) = running.next().await {
                let _ = sender.send(done);
            }
        });
        Stage { service, writer, requests, done }
    }

    /// The watch sends an event, and the controller is asked to reconcile.
    async fn send(&mut self, event: watcher::Event<ConfigMap>) -> bool {
        self.writer.apply_watcher_event(&event);
        let (watcher::Event::Apply(object) | watcher::Event::Delete(object)) = event else {
            return false;
        };
        let (obj_ref, reason) = (ObjectRef::from_obj(&object), ReconcileReason::ObjectUpdated);
        self.requests.send(Ok(ReconcileRequest { obj_ref, reason })).unwrap();
        self.done.recv().await.unwrap()
    }
}

#[tokio::test]
async fn it_makes_what_is_declared_and_follows_an_edit() {
    let mut stage = Stage::new(Action::await_change());
    assert!(stage.send(watcher::Event::Apply(declared("door", "green"))).await);
    assert_eq!(stage.service.shown(), "green door");
    assert!(stage.send(watcher::Event::Apply(declared("door", "blue"))).await);
    assert_eq!(stage.service.shown(), "blue door");
}

#[tokio::test]
async fn without_a_requeue_drift_stays() {
    let mut stage = Stage::new(Action::await_change());
    stage.send(watcher::Event::Apply(declared("door", "green"))).await;
    stage.service.paint("door", "red");
    let reads = stage.service.state().reads;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.service.state().reads, reads, "there was no read");
    assert_eq!(stage.service.shown(), "red door");
}

#[tokio::test]
async fn with_a_requeue_drift_of_what_is_declared_heals() {
    let mut stage = Stage::new(Action::requeue(Duration::from_millis(20)));
    stage.send(watcher::Event::Apply(declared("door", "green"))).await;
    stage.service.paint("door", "red");
    while stage.service.shown() != "green door" {
        assert!(stage.done.recv().await.unwrap());
    }
}

#[tokio::test]
async fn what_was_deleted_without_a_finalizer_is_leaked() {
    let mut stage = Stage::new(Action::await_change());
    stage.send(watcher::Event::Apply(declared("door", "green"))).await;
    // The event even arrives; the object is no longer in the store, and the reconciler is not called.
    assert!(!stage.send(watcher::Event::Delete(declared("door", "green"))).await);
    assert_eq!(stage.service.shown(), "green door");
}

#[tokio::test]
async fn a_strangers_shape_on_a_declared_name_is_painted_over_unless_the_author_thinks_of_it() {
    let mut stage = Stage::new(Action::await_change());
    stage.service.paint("door", "red");
    stage.send(watcher::Event::Apply(declared("door", "green"))).await;
    assert_eq!(stage.service.shown(), "green door");
}

#[tokio::test]
async fn a_panic_in_the_reconciler_ends_the_controller() {
    let mut writer = Writer::default();
    writer.apply_watcher_event(&watcher::Event::Init);
    writer.apply_watcher_event(&watcher::Event::InitApply(declared("door", "green")));
    writer.apply_watcher_event(&watcher::Event::InitDone);
    let obj_ref = ObjectRef::from_obj(&declared("door", "green"));
    let request = ReconcileRequest { obj_ref, reason: ReconcileReason::ObjectUpdated };
    // A queue that ends takes the controller with it: this one stays open.
    let queue = stream::iter([Ok::<_, Infallible>(request)]).chain(stream::pending());
    let (store, client) = (writer.as_reader(), Client::new(([127, 0, 0, 1], 1).into()));
    let context = Arc::new(Context { client, again: Action::await_change() });
    let ran = tokio::spawn(async move {
        let reconcile = |_: Arc<ConfigMap>, _: Arc<Context>| {
            Box::pin(async { panic!("a bug of the author's") })
        };
        applier(reconcile, error_policy, context, store, queue, Config::default()).count().await
    });
    assert!(ran.await.unwrap_err().is_panic());
}

#[test]
fn the_page_counts_its_lines_right() {
    let code = |text: &str| {
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        text.lines().filter(is_code).count()
    };
    let file = include_str!("beside.rs");
    let theirs = file.split("// The controller begins here.").nth(1).unwrap();
    let theirs = code(theirs.split("// The controller ends here.").next().unwrap());
    let ours = code(include_str!("../../examples/shapes/src/source.rs"));
    let page = include_str!("../../docs/beside-kube-rs.md");
    let row = format!("| lines of code | {theirs} | {ours} |");
    assert!(page.contains(&row), "{row}");
}
