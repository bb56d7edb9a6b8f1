//! Fields and what a target makes of them: normal forms, comparison, and the proof that they hold.
//!
//! A target that lowercases, sorts, trims or rounds what it is given shows drift for ever, unless both
//! sides are brought to one form before they are compared. The law of a field is
//! `normalize(read(write(x))) == normalize(x)`; [`broken`] holds a source's fields to it, with a real
//! target and whatever samples a property test comes up with. A field that its author does not vouch
//! for ([`Trust::Unproven`]) is reported when it differs, and never corrected.
//!
//! ```
//! use homeostat_engine::Agreement;
//! use homeostat_kit::normalize::{Field, Fields, Trust};
//!
//! #[derive(Clone)]
//! struct Guest { tags: String, note: String }
//!
//! /// Tags are a set in small letters; the target cuts notes wherever it likes.
//! const FIELDS: Fields<Guest> = Fields::new(&[
//!     Field {
//!         name: "tags",
//!         normalize: |mut guest| { guest.tags.make_ascii_lowercase(); guest },
//!         agrees: |wanted, seen| wanted.tags == seen.tags,
//!         trust: Trust::Proven,
//!     },
//!     Field {
//!         name: "note",
//!         normalize: |guest| guest,
//!         agrees: |wanted, seen| wanted.note == seen.note,
//!         trust: Trust::Unproven,
//!     },
//! ]);
//!
//! let guest = |tags: &str, note: &str| Guest { tags: tags.into(), note: note.into() };
//! let (wanted, seen) = (guest("WEB", "a long story"), guest("web", "a long"));
//! assert!(FIELDS.changed(&wanted, &seen).is_empty(), "nothing to correct");
//! let Agreement::Unsure { differs: false, why } = FIELDS.compare(&wanted, &seen) else { panic!() };
//! assert_eq!(why, "`note` differs, and is not known to read back as it was written");
//! ```

use homeostat_engine::{Agreement, Failure};

/// One field of an object.
pub struct Field<O: 'static> {
    /// Its name, for people and for patches.
    pub name: &'static str,
    /// Brings this field into its normal form, and leaves the others alone. Idempotent.
    pub normalize: fn(O) -> O,
    /// Whether this field of a normal object, the second, is as declared by the first. A field that the
    /// desired state leaves open agrees with anything.
    pub agrees: fn(&O, &O) -> bool,
    /// Whether it is corrected.
    pub trust: Trust,
}

/// Whether a field is known to read back as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A test shows it: it is corrected.
    Proven,
    /// It is reported when it differs, and never corrected.
    Unproven,
}

/// All managed fields of an object.
pub struct Fields<O: 'static>(&'static [Field<O>]);

impl<O: Clone> Fields<O> {
    /// The fields, in the order in which they are reported.
    #[must_use]
    pub const fn new(fields: &'static [Field<O>]) -> Self {
        Fields(fields)
    }

    /// An object with every field in its normal form.
    #[must_use]
    pub fn normalized(&self, object: O) -> O {
        self.0.iter().fold(object, |object, field| (field.normalize)(object))
    }

    /// The names of the fields that are to be corrected: those that differ and are proven.
    pub fn changed(&self, wanted: &O, seen: &O) -> Vec<&'static str> {
        self.differing(wanted, seen, Trust::Proven)
    }

    /// Compares field by field, both sides normalized.
    pub fn compare(&self, wanted: &O, seen: &O) -> Agreement {
        let differs = !self.changed(wanted, seen).is_empty();
        let unsure = self.differing(wanted, seen, Trust::Unproven);
        if unsure.is_empty() {
            return Agreement::when(!differs);
        }
        let names = unsure.join("`, `");
        let verb = if unsure.len() == 1 { "differs, and is" } else { "differ, and are" };
        let why = format!("`{names}` {verb} not known to read back as it was written");
        Agreement::Unsure { differs, why }
    }

    fn differing(&self, wanted: &O, seen: &O, trust: Trust) -> Vec<&'static str> {
        let both = [wanted, seen].map(|object| self.normalized(object.clone()));
        let [wanted, seen] = &both;
        let differs = |field: &&Field<O>| field.trust == trust && !(field.agrees)(wanted, seen);
        self.0.iter().filter(differs).map(|field| field.name).collect()
    }
}

/// A proven field that is none, and the sample that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
#[non_exhaustive]
pub struct Broken<O> {
    pub field: &'static str,
    /// What was written.
    pub wrote: O,
    /// What was read.
    pub read: O,
    pub law: &'static str,
}

/// Writes a sample to a target, reads it back, and returns which proven fields did not come back as
/// `normalize(read(write(x))) == normalize(x)` says, or have a normal form that is none.
pub async fn broken<O: Clone>(
    fields: &Fields<O>,
    sample: O,
    trip: impl AsyncFnOnce(O) -> Result<O, Failure>,
) -> Result<Vec<Broken<O>>, Failure> {
    let normal = fields.normalized(sample.clone());
    let again = fields.normalized(normal.clone());
    let read = trip(sample.clone()).await?;
    let broken_by = |law, read: &O| {
        let wrote = normal.clone();
        let names = fields.changed(&wrote, read);
        let broken = |field| Broken { field, wrote: sample.clone(), read: read.clone(), law };
        names.into_iter().map(broken).collect::<Vec<_>>()
    };
    let mut found = broken_by("normalizing twice is normalizing once", &again);
    found.extend(broken_by("what was written reads back equal", &read));
    Ok(found)
}
