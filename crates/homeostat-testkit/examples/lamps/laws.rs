#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use homeostat_kit::Objects;
    use homeostat_kit::engine::Ownership;
    use homeostat_kit::simple::{Adapted, DesiredObjects};
    use homeostat_kit::strategy::{Marker, Strategy};
    use homeostat_testkit::laws::{self, Ability, AsyncHarness, DesiredState, Disturbance, Meter};

    use super::{Lamp, Lamps, Wall};

    /// A wall for each check, and the owner for whom it is kept.
    struct Bench {
        wall: Arc<Wall>,
        strategy: Strategy,
    }

    impl Bench {
        fn of(marker: Marker) -> Self {
            Bench { wall: Arc::default(), strategy: Strategy::Marker(marker) }
        }
    }

    fn white(percent: u8) -> Lamp {
        Lamp { percent, colour: "white".to_owned() }
    }

    impl AsyncHarness for Bench {
        type Source = Adapted<Lamps>; // The source that an `Api` becomes.

        async fn reset(&mut self) {
            self.wall = Arc::default();
        }

        fn source(&self) -> Adapted<Lamps> {
            Adapted::new(Lamps { wall: self.wall.clone(), strategy: self.strategy.clone() })
        }

        fn ownership(&self) -> Ownership {
            self.strategy.ownership()
        }

        fn desired(&self, which: DesiredState) -> DesiredObjects<Lamps> {
            let lamps: &[_] = match which {
                DesiredState::First => &[("bed", 10), ("desk", 80), ("door", 30)],
                DesiredState::Second => &[("bed", 10), ("desk", 50)], // Keeps, changes and drops one.
                DesiredState::Nothing => &[],
            };
            let lamps = lamps.iter().map(|(name, percent)| ((*name).to_owned(), white(*percent)));
            DesiredObjects::from(lamps.collect::<Objects<Lamps>>())
        }

        async fn snapshot(&self) -> BTreeMap<String, String> {
            let lamps = self.wall.lamps.lock().await;
            lamps.iter().map(|(name, lamp)| (name.clone(), format!("{lamp:?}"))).collect()
        }

        fn meter(&self) -> Meter {
            let wall = self.wall.clone();
            Arc::new(move || wall.writes.load(Ordering::Relaxed))
        }

        async fn disturb(&mut self, how: Disturbance<'_, String>) -> Ability {
            let mut lamps = self.wall.lamps.lock().await;
            let theirs = (white(100), "somebody".to_owned());
            match how {
                Disturbance::Remove(name) => _ = lamps.remove(name),
                Disturbance::Alter(name) => {
                    lamps.entry(name.clone()).and_modify(|(lamp, _)| lamp.percent = 99);
                }
                Disturbance::Stranger => _ = lamps.insert("stranger".to_owned(), theirs),
                Disturbance::Occupy(name) => _ = lamps.insert(name.clone(), theirs),
            }
            Ability::Done
        }
    }

    #[tokio::test]
    async fn the_lamps_keep_the_laws() {
        let mut bench = Bench::of(Marker::new("me").unwrap());
        let verdict = laws::check(&mut bench).await.unwrap();
        // This wall never fails, so no fault was checked.
        let faults = ["a target that cannot be observed", "an object that cannot be read"];
        let [blind, unreadable] = faults.map(|fault| (1, fault));
        assert_eq!(verdict.unchecked, [blind, unreadable, (9, "a target that refuses any write")]);
    }

    #[tokio::test]
    async fn the_lamps_survive_every_crash() {
        let mut bench = Bench::of(Marker::new("me").unwrap());
        let points = laws::check_crashes(&mut bench).await.unwrap();
        assert!(points >= 5, "{points}"); // Fewer: it was hardly interrupted.
    }
}
