//! A document of shapes, as a person writes it.
//!
//! ```
//! use homeostat_shapes::document::Document;
//!
//! let document: Document = r#"
//!     owner = "demo"
//!     ownership = "mark"
//!
//!     [shapes.door]
//!     type = "square"
//!     colour = "green"
//! "#.parse()?;
//! assert_eq!(document.shapes["door"].shape.colour, "green");
//! # Ok::<(), homeostat_shapes::document::Error>(())
//! ```

use std::collections::BTreeMap;
use std::str::FromStr;

use homeostat_engine::{DuplicateKey, Exclusive, PrefixRefused, Prefixes};
use homeostat_kit::simple::{DesiredObjects, Versioned};
use homeostat_kit::strategy::{MarkerRefused, Strategy};
use serde::Deserialize;

use crate::shape::{FIELDS, Shape};
use crate::source::Shapes;

/// Everything that one owner declares.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Whose desired state it is.
    pub owner: String,
    /// How the owner's shapes are distinguished from others'.
    pub ownership: Ownership,
    /// The shapes by name.
    #[serde(default)]
    pub shapes: BTreeMap<String, Declared>,
}

/// How shapes are distinguished from others'. It has no default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ownership {
    /// By a label with the owner's name.
    Mark,
    /// By names that begin with the owner's and a dash.
    Prefix,
    /// By the ledger.
    Checkpoint,
    /// Everything in the service is the owner's.
    Exclusive,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Declared {
    /// What it is like.
    #[serde(flatten)]
    pub shape: Shape,
    /// Whether it may be taken from another owner.
    #[serde(default)]
    pub adopt: bool,
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is no such document.
    #[error("the document cannot be read")]
    Parse(#[from] toml::de::Error),
    /// A name is no name.
    #[error("`{0}` is no name of a shape: it must have letters, and no slash")]
    Name(String),
    /// The owner's name cannot stand in a mark.
    #[error("the owner cannot be used")]
    Owner(#[from] MarkerRefused),
    /// The owner's name makes no prefix.
    #[error("the owner makes no prefix")]
    Prefix(#[from] PrefixRefused),
    /// A shape is declared twice.
    #[error("the shapes are not unique")]
    Twice(#[from] DuplicateKey),
}

impl FromStr for Document {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let document: Document = toml::from_str(text)?;
        match document.shapes.keys().find(|name| name.is_empty() || name.contains('/')) {
            Some(name) => Err(Error::Name(name.clone())),
            None => Ok(document),
        }
    }
}

impl Document {
    /// How the owner's shapes are distinguished from others'.
    pub fn strategy(&self) -> Result<Strategy, Error> {
        Ok(match self.ownership {
            Ownership::Mark => Strategy::marker(&self.owner)?,
            Ownership::Prefix => {
                let prefix = format!("{}-", self.owner);
                Strategy::Prefix(Prefixes::default().claim(&prefix)?)
            }
            Ownership::Checkpoint => Strategy::Checkpoint,
            Ownership::Exclusive => {
                Strategy::Exclusive(Exclusive::everything_in_this_scope_is_mine())
            }
        })
    }

    /// The desired state in the form that the source takes.
    pub fn desired_states(&self) -> Result<DesiredObjects<Shapes>, Error> {
        let normal = |shape: &Shape| Versioned::declared(FIELDS.normalized(shape.clone()));
        let desired_states =
            self.shapes.iter().map(|(name, one)| (name.clone(), normal(&one.shape)));
        let adopted = self.shapes.iter().filter(|(_, one)| one.adopt).map(|(name, _)| name.clone());
        Ok(DesiredObjects::new(desired_states)?.adopting(adopted))
    }
}
