//! Fields that take one of a few words.

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

use crate::error::ValueError;
use crate::suggest::nearest;

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
