//! Changes by other writers, which the source does not see being made.

use super::{Service, Stored};

impl Service {
    /// Another writer paints a shape, or adds one without a mark.
    pub fn paint(&self, name: &str, colour: &str) {
        let mut state = self.state();
        let mut shape = state.shapes.get(name).cloned().unwrap_or_else(|| Stored::plain(name, ""));
        colour.clone_into(&mut shape.colour);
        state.put(shape);
    }

    /// Another writer deletes a shape.
    pub fn remove(&self, name: &str) {
        self.state().take_away(name);
    }

    /// Another writer removes a label.
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
