//! Fields that take one of a few words, and guesses which known word a misspelt one was meant to be.

/// Defines an enum that is written as one of its words.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal: $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
        }

        impl $name {
            /// The word as it is written in a document.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        $crate::word_values! { $name, $what: $($word = Self::$variant),+ }
    };
}

/// Lets a type be written as one of a few words.
#[macro_export]
macro_rules! word_values {
    ($name:ty, $what:literal: $($word:literal = $value:expr),+ $(,)?) => {
        impl $crate::Text for $name {
            const WHAT: &'static str = $what;

            fn from_text(text: &str) -> Result<Self, $crate::ValueError> {
                match text {
                    $($word => Ok($value),)+
                    other => Err($crate::refuse(other, $what, &[$($word),+])),
                }
            }

            fn words() -> Vec<&'static str> {
                vec![$($word),+]
            }
        }
    };
}

use strsim::osa_distance;

use crate::shape::ValueError;

/// "`brige` is not a kind of link", with the nearest word or all of them.
#[must_use]
pub fn refuse(text: &str, what: &str, words: &[&str]) -> ValueError {
    let all = words.join(", ");
    let help = match nearest(text, words.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? (one of {all})"),
        None => format!("one of {all}"),
    };
    ValueError::is_not(text, what).help(help)
}

/// Words that other tools use, each with the word of documents for it.
pub type Synonyms = &'static [(&'static str, &'static str)];

/// Words of other tools for what documents have no field for, with what to write or run instead.
#[derive(Clone, Copy, Debug)]
pub struct Advice {
    /// The [`Record::NAME`](crate::Record::NAME) of each table where the words may stand.
    pub tables: &'static [&'static str],
    /// In lower case, with hyphens for underscores.
    pub words: &'static [&'static str],
    pub help: &'static str,
}

/// What to do about a word of another tool in this table.
pub(crate) fn advice(
    word: &str,
    table: &str,
    advices: impl IntoIterator<Item = &'static Advice>,
) -> Option<&'static str> {
    let word = plain(word);
    let fits = |one: &&Advice| one.tables.contains(&table) && one.words.contains(&word.as_str());
    advices.into_iter().find(fits).map(|one| one.help)
}

/// The one of `known` that `word` stands for.
pub fn synonym<'a>(
    word: &str,
    synonyms: impl IntoIterator<Item = Synonyms>,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = plain(word);
    let all = synonyms.into_iter().flatten().filter(|(other, _)| *other == word);
    let meant: Vec<&str> = all.map(|(_, ours)| *ours).collect();
    known.into_iter().find(|name| meant.contains(name))
}

/// The known word nearest to `word`, if one is near enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    let ranked = known.into_iter().map(|name| (osa_distance(&word, name), name));
    let (far, name) = ranked.min()?;
    let most = (word.chars().count().max(name.len()) / 3).clamp(1, 3);
    (far <= most).then_some(name)
}

fn plain(word: &str) -> String {
    // Only the beginning matters: a key of a megabyte is near to nothing.
    word.chars().take(64).collect::<String>().to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["addresses", "kind", "mtu", "mac", "via", "to", "min-interval"];
        for (word, meant) in [
            ("adresses", Some("addresses")),
            ("addreses", Some("addresses")),
            ("address", Some("addresses")),
            ("mut", Some("mtu")),
            ("MTU", Some("mtu")),
            ("min_interval", Some("min-interval")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn a_word_of_another_tool_stands_for_a_word_that_is_known_here() {
        let synonyms: [Synonyms; 2] =
            [&[("gateway", "via"), ("pref", "priority")], &[("pref", "to")]];
        let known = ["to", "via"];
        for (word, meant) in [
            ("gateway", Some("via")),
            ("Gateway", Some("via")),
            ("pref", Some("to")),
            ("via", None),
        ] {
            assert_eq!(synonym(word, synonyms, known), meant, "{word}");
        }
    }

    #[test]
    fn advice_is_for_its_own_tables() {
        static ADVICES: [Advice; 1] =
            [Advice { tables: &["link"], words: &["dhcp4"], help: "run a client" }];
        for (word, table, help) in [
            ("dhcp4", "link", Some("run a client")),
            ("DHCP4", "link", Some("run a client")),
            ("dhcp4", "route", None),
            ("dhcp", "link", None),
        ] {
            assert_eq!(advice(word, table, &ADVICES), help, "{word} in {table}");
        }
    }

    #[test]
    fn a_swap_counts_once() {
        assert_eq!(osa_distance("mut", "mtu"), 1);
        assert_eq!(osa_distance("kitten", "sitting"), 3);
        assert_eq!(osa_distance("", "abc"), 3);
    }
}
