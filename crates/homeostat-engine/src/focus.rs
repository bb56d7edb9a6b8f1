//! Widens a focus by what depends on its keys. Pure.

use homeostat_core::{Desired, Focus, most_keys};

/// The keys in focus, with what depends on them, and on that in turn.
pub(crate) fn widened<D: Desired>(desired: &D, focus: &Focus<D::Key>) -> Focus<D::Key> {
    let Focus::Keys(keys) = focus else { return Focus::All };
    let most = most_keys(desired.len());
    let (mut wide, mut fresh) = (keys.clone(), keys.clone());
    while let Some(key) = fresh.pop_first() {
        desired.dependants(&key, &mut |key| {
            if wide.len() <= most && wide.insert(key.clone()) {
                fresh.insert(key);
            }
        });
        if wide.len() > most {
            return Focus::All;
        }
    }
    Focus::Keys(wide)
}

#[cfg(test)]
mod tests {
    use homeostat_core::{Agreement, Slot, Table};

    use super::*;

    /// On every number below its length hang its double and the number behind that.
    struct Tree(Table<String, u32>);

    impl Tree {
        fn of(len: u32) -> Self {
            Tree(Table::new((1..len).map(|number| (number.to_string(), 0))).unwrap())
        }
    }

    impl Desired for Tree {
        type Key = String;
        type Object = u32;

        fn len(&self) -> usize {
            self.0.len()
        }

        fn slot(&self, key: &String, near: Option<Slot>) -> Option<Slot> {
            self.0.slot(key, near)
        }

        fn key(&self, slot: Slot) -> String {
            self.0.key(slot)
        }

        fn object(&self, slot: Slot) -> u32 {
            self.0.object(slot)
        }

        fn compare(&self, slot: Slot, seen: &u32) -> Agreement {
            self.0.compare(slot, seen)
        }

        fn dependants(&self, key: &String, emit: &mut dyn FnMut(String)) {
            let number: usize = key.parse().unwrap();
            let on = [number * 2, number * 2 + 1].into_iter();
            on.filter(|number| *number <= self.len()).for_each(|number| emit(number.to_string()));
        }
    }

    fn wide(len: u32, keys: &[&str]) -> Option<Vec<String>> {
        let focus = Focus::Keys(keys.iter().map(|key| (*key).to_owned()).collect());
        match widened(&Tree::of(len), &focus) {
            Focus::All => None,
            Focus::Keys(keys) => Some(keys.into_iter().collect()),
        }
    }

    #[test]
    fn what_depends_on_a_key_is_looked_at_and_what_depends_on_that() {
        assert_eq!(wide(11, &["3"]).unwrap(), ["3", "6", "7"]);
        assert_eq!(wide(11, &["2", "4"]).unwrap(), ["10", "2", "4", "5", "8", "9"]);
        assert_eq!(wide(11, &[]).unwrap(), <[&str; 0]>::default());
    }

    #[test]
    fn an_undeclared_key_counts_with_its_dependants() {
        assert_eq!(wide(11, &["77"]).unwrap(), ["77"]);
    }

    #[test]
    fn beyond_some_thousands_everything_is_looked_at() {
        assert_eq!(wide(20_000, &["1"]), None);
        assert_eq!(wide(4096, &["1"]).unwrap().len(), 4095);
    }

    #[test]
    fn where_more_is_declared_more_keys_are_worth_single_looks() {
        let many: Vec<String> = (100_000..110_000).map(|number: u32| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(wide(90_000, &many).is_none());
        assert_eq!(wide(200_000, &many).unwrap().len(), 10_000);
    }
}
