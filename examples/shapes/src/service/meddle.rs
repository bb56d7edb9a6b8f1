//! What strangers do: all of it behind our back.

use super::{Service, Stored};

impl Service {
    /// Somebody paints a shape, or brings one that nobody has marked.
    pub fn paint(&self, name: &str, colour: &str) {
        let mut state = self.state();
        let mut shape = state.shapes.get(name).cloned().unwrap_or_else(|| Stored::plain(name, ""));
        colour.clone_into(&mut shape.colour);
        state.put(shape);
    }

    /// Somebody takes a shape away.
    pub fn remove(&self, name: &str) {
        self.state().take_away(name);
    }

    /// Somebody takes a label off.
    pub fn strip(&self, name: &str, label: &str) {
        let mut state = self.state();
        if let Some(mut shape) = state.shapes.get(name).cloned() {
            shape.labels.remove(label);
            state.put(shape);
        }
    }

    /// The colour of a shape, if it is there.
    #[must_use]
    pub fn colour(&self, name: &str) -> Option<String> {
        self.state().shapes.get(name).map(|shape| shape.colour.clone())
    }

    /// The names and colours of all shapes, as one line.
    #[must_use]
    pub fn shown(&self) -> String {
        let state = self.state();
        let shapes = state.shapes.values().map(|shape| format!("{} {}", shape.colour, shape.name));
        shapes.collect::<Vec<_>>().join(", ")
    }
}
