//! What a page is asked for, as the query of its address: a form makes it, and it can be sent to a colleague.

use homeostat_engine::{Kind, OpenCounts};
use maud::{Markup, html};

/// What is shown of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filters {
    pub(super) source: Option<String>,
    pub(super) scope: Option<String>,
    /// The name of a kind of open keys.
    pub(super) why: Option<String>,
    /// Only keys with these characters.
    pub(super) q: Option<String>,
    /// What is looked for among everything that is declared.
    pub(super) find: Option<String>,
    /// Whether it is shown what a plan would change.
    pub(super) diff: bool,
    /// Where the list of open keys begins.
    pub(super) after: Option<String>,
}

/// How long one of them may be, in characters.
const LONGEST: usize = 200;

impl Filters {
    /// Words that no form makes are passed over.
    pub(super) fn read(query: &str) -> Self {
        let mut filters = Filters::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value: String = value.trim().chars().take(LONGEST).collect();
            let value = Some(value).filter(|value| !value.is_empty());
            match &*name {
                "source" => filters.source = value,
                "scope" => filters.scope = value,
                "why" => filters.why = value,
                "q" => filters.q = value,
                "find" => filters.find = value,
                "after" => filters.after = value,
                "diff" => filters.diff = value.is_some(),
                _ => {}
            }
        }
        filters
    }

    /// The address of the page with these.
    pub(super) fn address(&self, part: &str) -> String {
        let mut query = form_urlencoded::Serializer::for_suffix(String::from("/?"), 2);
        let Filters { source, scope, why, q, find, diff, after } = self;
        for (name, value) in [
            ("source", source),
            ("scope", scope),
            ("why", why),
            ("q", q),
            ("find", find),
            ("after", after),
        ] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        if *diff {
            query.append_pair("diff", "show");
        }
        format!("{}#{part}", query.finish())
    }

    /// Whether a loop is shown.
    pub(super) fn has_loop(&self, source: &str, scope: &str) -> bool {
        let is = |wanted: &Option<String>, found| wanted.as_deref().is_none_or(|one| one == found);
        is(&self.source, source) && is(&self.scope, scope)
    }

    /// Whether a key is shown.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.q.as_deref().is_none_or(|text| key.contains(text))
    }

    pub(super) fn is_set(&self) -> bool {
        self.source.is_some() || self.scope.is_some() || self.why.is_some() || self.q.is_some()
    }

    /// The form that sets them.
    pub(super) fn form(&self, sources: &[&str]) -> Markup {
        let kinds: Vec<&str> = Kind::open().map(OpenCounts::kind_name).collect();
        let choose = |name: &str, label: &str, chosen: &Option<String>, all: &[&str]| {
            html! {
                label { (label) " "
                    select name=(name) {
                        option value="" { "all" }
                        @for one in all {
                            option value=(one) selected[chosen.as_deref() == Some(*one)] { (one) }
                        }
                    }
                }
            }
        };
        html! {
            form .filters action="/#needs" aria-label="Filter the lists" {
                (choose("source", "Source", &self.source, sources))
                label { "Scope " input name="scope" size="10" value=[self.scope.as_ref()]; }
                (choose("why", "Why", &self.why, &kinds))
                label { "Key has " input name="q" size="14" value=[self.q.as_ref()]; }
                button { "Filter" }
                @if self.is_set() { " " a href="/" { "Show all" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_back_as_what_it_was_made_of() {
        let filters = Filters {
            source: Some("rtnl".to_owned()),
            scope: Some("a&b=c".to_owned()),
            why: Some("held".to_owned()),
            q: Some("10.0.0.0/8 \u{fc}".to_owned()),
            find: Some("eth0".to_owned()),
            diff: true,
            after: Some("rtnl/host/route 10.0.0.0/8".to_owned()),
        };
        let address = filters.address("needs");
        let query = address.strip_prefix("/?").and_then(|rest| rest.strip_suffix("#needs"));
        assert_eq!(Filters::read(query.unwrap()), filters);
        assert_eq!(Filters::read("x=y&&=&q=++&source="), Filters::default());
    }
}
