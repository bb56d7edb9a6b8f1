//! The section of the document: `[services."NAME"]`.

use homeostat_document::{
    Checker, Diagnostic, Document, Fields, Join, Json, Map, NamedRecord, Record, Scope, Scopes,
    Section, SectionType, SourceSections, Spanned,
};
use homeostat_systemd::UnitName;
use serde_json::json;

use crate::key::{Aspect, Key};
use crate::model::{DesiredState, Wanted};

/// All that services add to documents.
pub const SECTIONS: SourceSections =
    SourceSections::new("services", &[SectionType::of::<ServiceSection>()]);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub name: Spanned<String>,
    pub unit: Option<UnitName>,
    pub values: Vec<(Aspect, bool)>,
    /// Whether they may be taken over from another owner.
    pub adopt: bool,
}

/// `[services]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSection(pub Vec<Service>);

impl Section for ServiceSection {
    const NAME: &'static str = "services";
    const DOC: &'static str = "Units of systemd by name";
    const SCOPES: Scopes = Scopes::Host("services belong to the host, not to a namespace");
    const JOIN: Join = Join::Tables(&["*"]);

    type Value = Map<Service>;
    const NEW: fn(Self::Value) -> Self = |Map(services)| Self(services);

    fn check(document: &Document, checker: &mut Checker) {
        for (_, scope) in document.scopes() {
            services(scope).for_each(|service| service.check(checker));
        }
    }
}

impl Record for Service {
    const NAME: &'static str = "service";
    const DOC: &'static str = "A systemd unit; fields that are left out are not managed";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let enabled: Option<bool> = fields
            .optional("enabled", "Whether it starts with the units that want it, such as at boot");
        let active: Option<bool> = fields.optional("active", "Whether it runs");
        let masked: Option<bool> = fields.optional("masked", "Whether it cannot be started at all");
        let adopt = fields.flag("adopt", "Take this over from any owner");
        let name: Spanned<String> = fields.name()?;
        if fields.lacks(&Aspect::ALL.map(Aspect::word)) {
            let message = format!("nothing is declared of `{}`", name.value);
            let help = "write `enabled`, `active` or `masked`";
            fields.report(Diagnostic::new(name.span, message).help(help));
        }
        let values =
            [(Aspect::Masked, masked), (Aspect::Enabled, enabled), (Aspect::Active, active)];
        let values = values.into_iter().filter_map(|(aspect, value)| Some((aspect, value?)));
        let unit = name.value.parse().ok();
        Some(Self { unit, name, values: values.collect(), adopt })
    }
}

impl NamedRecord for Service {
    const KEY: &'static str = "the whole name of a unit, such as `haproxy.service`";
}

impl Service {
    fn check(&self, checker: &mut Checker) {
        if let Err(error) = self.name.value.parse::<UnitName>() {
            let diagnostic = Diagnostic::new(self.name.span, error.to_string());
            checker.report(diagnostic.help(error.help()));
        }
        let is = |aspect, value| self.values.contains(&(aspect, value));
        if is(Aspect::Masked, true) && (is(Aspect::Enabled, true) || is(Aspect::Active, true)) {
            let message = format!("`{}` cannot be masked and run", self.name.value);
            let help = "a masked unit is neither enabled nor started: keep one of them";
            checker.report(Diagnostic::new(self.name.span, message).help(help));
        }
    }

    fn wanted(&self) -> impl Iterator<Item = (Key, Wanted)> + '_ {
        let unit = self.unit.iter();
        unit.flat_map(|unit| {
            self.values.iter().map(|(aspect, value)| {
                let key = Key { unit: unit.clone(), aspect: *aspect };
                (key, Wanted { value: *value, adopt: self.adopt })
            })
        })
    }
}

pub(crate) fn services(scope: &Scope) -> impl Iterator<Item = &Service> {
    scope.get::<ServiceSection>().into_iter().flat_map(|section| &section.0)
}

/// Every declared value of a scope.
pub fn keys(scope: &Scope) -> impl Iterator<Item = Key> + '_ {
    services(scope).flat_map(Service::wanted).map(|(key, _)| key)
}

/// What a scope declares.
#[must_use]
pub fn desired(scope: &Scope) -> DesiredState {
    DesiredState::of(services(scope).flat_map(Service::wanted).collect())
}

/// Observed values, as a section of a document.
pub fn show(found: impl IntoIterator<Item = (Key, bool)>) -> serde_json::Map<String, Json> {
    let mut units = serde_json::Map::new();
    for (Key { unit, aspect }, value) in found {
        let unit = units.entry(unit.to_string()).or_insert_with(|| json!({}));
        unit[aspect.word()] = json!(value);
    }
    if units.is_empty() {
        return serde_json::Map::new();
    }
    serde_json::Map::from_iter([(ServiceSection::NAME.to_owned(), Json::Object(units))])
}
