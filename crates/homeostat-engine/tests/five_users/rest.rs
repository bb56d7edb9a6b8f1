//! A REST API, through the kit's adapter: this is all that its author writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use homeostat_engine::{Bound, Explain as _, Failure, Kind, Owner, Ownership, Seen};
use homeostat_kit::simple::{Adapted, Api, DesiredObjects, Listed, Refusal, Written};

use crate::stage::{Scene, Writes, bind, keys};

/// A colour, and the label that names its owner.
type Shape = (String, Option<&'static str>);

#[derive(Clone)]
pub(crate) struct Cloud {
    shapes: Arc<Mutex<BTreeMap<String, Shape>>>,
    writes: Writes,
}

impl Cloud {
    pub(crate) fn new(writes: &Writes) -> Self {
        Cloud { shapes: Arc::default(), writes: writes.clone() }
    }

    fn put(&self, key: &str, colour: &str, label: Option<&'static str>) {
        self.shapes.lock().unwrap().insert(key.to_owned(), (colour.to_owned(), label));
    }
}

impl Api for Cloud {
    const NAME: &'static str = "shapes";
    type Key = String;
    type Object = String;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let shapes = self.shapes.lock().unwrap();
        let owner = |label: Option<&str>| match label {
            Some("me") => Owner::Ours,
            _ => Owner::foreign("a stranger"),
        };
        let seen = shapes.iter().map(|(key, (colour, label))| Seen::Present {
            key: key.clone(),
            object: colour.clone(),
            owner: owner(*label),
        });
        Ok(seen.collect())
    }

    async fn create(&self, key: &String, wanted: &String) -> Written<Self> {
        self.writes.add();
        self.put(key, wanted, Some("me"));
        Ok(Some(wanted.clone()))
    }

    async fn update(&self, key: &String, _: &String, wanted: &String) -> Written<Self> {
        self.create(key, wanted).await
    }

    async fn delete(&self, key: &String, _: &String) -> Result<(), Refusal> {
        self.writes.add();
        self.shapes.lock().unwrap().remove(key).map(|_| ()).ok_or(Refusal::Gone)
    }
}

pub(crate) fn bound(cloud: Cloud, shapes: &[(&str, &str)]) -> Bound<Adapted<Cloud>> {
    let desired_states =
        shapes.iter().map(|(key, colour)| ((*key).to_owned(), (*colour).to_owned()));
    bind(Adapted::new(cloud), DesiredObjects::new(desired_states).unwrap(), Ownership::Marked)
}

#[tokio::test]
async fn a_strangers_shape_is_left_alone_and_ours_comes_back() {
    let cloud = Cloud::new(&Writes::default());
    cloud.put("cloud", "white", None);
    let mut scene = Scene::open(bound(cloud.clone(), &[("door", "green")]));
    assert!(scene.pass().await.is_converged());
    cloud.shapes.lock().unwrap().remove("door");
    assert_eq!(keys(&scene.pass().await, Kind::Applied), ["door"]);
    scene.bound.desired = Arc::new(DesiredObjects::default());
    assert!(scene.pass().await.is_converged());
    assert_eq!(cloud.shapes.lock().unwrap().keys().collect::<Vec<_>>(), ["cloud"]);
}
