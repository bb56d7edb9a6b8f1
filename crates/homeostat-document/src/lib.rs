//! Text to desired state: TOML, YAML or JSON becomes one spanned tree, and that a checked, typed
//! [`Document`] in which every value knows its place. All mistakes are reported together.
//!
//! It never looks at the machine: whether a link exists or a knob can be written is not its matter.
//! Start at [`DocumentReader`] and [`Document`].

mod checker;
mod data;
mod diagnostic;
mod document;
mod fields;
mod files;
mod json;
mod load;
mod merge;
mod name;
mod node;
mod number;
mod orders;
mod parsed;
mod render;
mod scalar;
mod scope;
mod section;
mod settings;
mod shape;
mod span;
mod time;
mod toml;
mod words;
mod yaml;

pub use checker::{Checker, Twins};
pub use data::{PlainTable, read_data};
pub use diagnostic::{Diagnostic, Diagnostics, Finding};
pub use document::{Ambiguous, Document};
pub use fields::{
    Fields, Keyed, Kinds, Map, NamedRecord, Record, describe_record, read_record, read_table,
};
pub use files::{Files, Location, copy_below};
pub use load::{DocumentReader, Format, Text as SourceText, shown};
pub use name::{DEFAULT_OWNER, HOST, NamespaceName, OwnerName};
pub use node::{Entry, Node, Value, shorten};
pub use number::{Number, Whole};
pub use orders::{ACTIONS, ActionName, OrderSettings};
pub use parsed::ParsedTexts;
pub use scope::{FoundAt, Scope};
pub use section::{
    Assignment, Extension, ExtensionType, Join, Scopes, Section, SectionType, SourceSections,
};
pub use serde_json::Value as Json;
pub use settings::{
    DEFAULT_PROTOCOL, Mode, OnStop, Protocol, SHORT_TRIAL, Settings, SourceSettings, TRIAL,
};
pub use shape::{Definitions, MachinePath, Shape, Text, ValueError, check, read_list};
pub use span::{FileId, Span, Spanned};
pub use time::{Percent, Period};
pub use words::{Advice, Synonyms, nearest, refuse, synonym};
