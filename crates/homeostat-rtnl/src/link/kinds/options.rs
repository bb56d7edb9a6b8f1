//! What the options of all kinds of links have in common: a table of options per kind, from which the reader of
//! documents, the comparison and the netlink codec follow.

use std::net::IpAddr;

#[cfg(feature = "document")]
use homeostat_document::Fields;
use homeostat_netlink::{Attr, Attrs, Malformed, MessageWriter};

use crate::link::LinkName;
use crate::link::kinds::Refs;
use crate::link::model::LinkRef;
use crate::message::{put_ip, read_ip};

/// The options of one kind of link. What a kind leaves out follows from its table of options.
pub(crate) trait Options: OptionTable {
    /// Refuses options that are never valid and says why; brings the others to the form in which they are compared.
    fn check(&mut self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Whether what differs can be changed while the link exists.
    fn changes_in_place(&self, seen: &Self) -> bool {
        self.is_alike(seen)
    }

    /// The declared options that are written to change a link.
    fn without(&self, seen: &Self) -> Self {
        self.differing_from(seen)
    }

    /// Whether there cannot be a link of each at once, where the kind says that one can be in the way of another.
    fn excludes(&self, _other: &Self) -> bool {
        false
    }

    /// The kernel's word for the kind, if it is another than that in documents.
    fn kernel_name(&self) -> Option<&'static str> {
        None
    }

    /// The kernel module that brings the kind, if it has another name.
    fn module(&self) -> Option<&'static str> {
        None
    }

    /// Whether something is declared that the kernel takes only while the link is down.
    fn needs_down(&self) -> bool {
        false
    }

    /// The other end of a pair.
    fn peer(&self) -> Option<&LinkRef> {
        None
    }

    fn peer_mut(&mut self) -> Option<&mut LinkRef> {
        None
    }

    fn encode(&self, data: &mut MessageWriter<'_>, _refs: &Refs) {
        self.put_attrs(data);
    }

    /// Reads the options, and the numbers of the links that they refer to.
    fn decode(data: Attrs<'_>, refs: &mut Refs) -> Result<Self, Malformed> {
        let mut options = Self::default();
        for attr in data {
            options.decode_attr(&attr?, refs)?;
        }
        Ok(options)
    }

    fn decode_attr(&mut self, attr: &Attr<'_>, _refs: &mut Refs) -> Result<(), Malformed> {
        self.read_attr(attr)
    }
}

/// What follows from the table of options of a kind.
pub(crate) trait OptionTable: Clone + Default {
    /// Whether every declared option is as declared.
    fn is_alike(&self, seen: &Self) -> bool;

    /// The declared options that are not as declared.
    fn differing_from(&self, seen: &Self) -> Self;

    /// Writes the options that have an attribute.
    fn put_attrs(&self, data: &mut MessageWriter<'_>);

    /// Reads the option that an attribute is for, if it is for one.
    fn read_attr(&mut self, attr: &Attr<'_>) -> Result<(), Malformed>;

    /// The word of the option that is written as an attribute.
    fn word_of(_attr: u16) -> Option<&'static str> {
        None
    }

    #[cfg(feature = "document")]
    fn read(fields: &mut Fields<'_>) -> Option<Self>;
}

/// The value of an option as an attribute.
pub(crate) trait AttrValue: Sized + PartialEq {
    fn put(&self, data: &mut MessageWriter<'_>, kind: u16);

    /// None, if the kernel says something that cannot be declared.
    fn read(attr: &Attr<'_>) -> Result<Option<Self>, Malformed>;

    /// Whether a declared value is as declared; some cannot be kept to the last digit.
    fn is_alike(&self, seen: &Self) -> bool {
        self == seen
    }
}

macro_rules! attr_values {
    ($($type:ty: |$value:ident, $data:ident, $kind:ident| $put:expr, |$attr:ident| $read:expr;)+) => {$(
        impl AttrValue for $type {
            fn put(&self, $data: &mut MessageWriter<'_>, $kind: u16) {
                let $value = *self;
                $put;
            }

            fn read($attr: &Attr<'_>) -> Result<Option<Self>, Malformed> {
                Ok($read)
            }
        }
    )+};
}

attr_values! {
    bool: |on, data, kind| data.attr_u8(kind, on.into()), |attr| Some(attr.u8()? != 0);
    u8: |value, data, kind| data.attr_u8(kind, value), |attr| Some(attr.u8()?);
    u16: |value, data, kind| data.attr_u16(kind, value), |attr| Some(attr.u16()?);
    u32: |value, data, kind| data.attr_u32(kind, value), |attr| Some(attr.u32()?);
    Be16: |value, data, kind| data.attr_be16(kind, value.0), |attr| Some(Be16(attr.be16()?));
    // An address that is not set reads back as all zeroes.
    IpAddr: |ip, data, kind| put_ip(data, kind, ip),
        |attr| Some(read_ip(attr)?).filter(|ip| !ip.is_unspecified());
}

/// A link is a number in an attribute, which the kind of link writes and reads by itself.
impl AttrValue for LinkName {
    fn put(&self, _data: &mut MessageWriter<'_>, _kind: u16) {}

    fn read(_attr: &Attr<'_>) -> Result<Option<Self>, Malformed> {
        Ok(None)
    }
}

/// Its name, up to a NUL.
impl AttrValue for String {
    fn put(&self, data: &mut MessageWriter<'_>, kind: u16) {
        data.attr_str(kind, self);
    }

    fn read(attr: &Attr<'_>) -> Result<Option<Self>, Malformed> {
        Ok(Some(attr.str()?.to_owned()))
    }
}

/// A number in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Be16(pub(crate) u16);

pub(crate) fn is_alike<T: AttrValue>(desired: Option<&T>, seen: Option<&T>) -> bool {
    match (desired, seen) {
        (None, _) => true,
        (Some(desired), Some(seen)) => desired.is_alike(seen),
        (Some(_), None) => false,
    }
}

/// A struct of options, each with its name in documents, what it is about and, where it is a number, which
/// numbers it takes, or the type `as` which it is written. Those in brackets are always declared, the others may be left out. An option with
/// `=> ATTRIBUTE` is written and read as that attribute; the kind itself writes and reads the others.
macro_rules! options {
    ($(#[$doc:meta])* $name:ident
        [$($must:ident: $fixed:ty = $must_key:literal, $must_text:literal $(, $must_number:tt)? $(as $must_written:ty)? $(=> $must_attr:ident)?;)*]
        { $($field:ident: $type:ty = $key:literal, $text:literal $(, $number:tt)? $(as $written:ty)? $(=> $attr:ident)?;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            $(
                #[doc = concat!($must_text, ".")]
                #[serde(rename = $must_key)]
                pub $must: $fixed,
            )*
            $(
                #[doc = concat!($text, ".")]
                #[serde(default, skip_serializing_if = "Option::is_none", rename = $key)]
                pub $field: Option<$type>,
            )*
        }

        impl $crate::link::kinds::options::OptionTable for $name {
            fn is_alike(&self, seen: &Self) -> bool {
                true $(&& self.$must == seen.$must)*
                    $(&& $crate::link::kinds::options::is_alike(self.$field.as_ref(), seen.$field.as_ref()))*
            }

            fn differing_from(&self, seen: &Self) -> Self {
                let _ = seen;
                Self {
                    $($must: self.$must.clone(),)*
                    $($field: self.$field.clone().filter(|desired| {
                        !$crate::link::kinds::options::is_alike(Some(desired), seen.$field.as_ref())
                    }),)*
                }
            }

            fn put_attrs(&self, data: &mut homeostat_netlink::MessageWriter<'_>) {
                let _ = &data;
                $($($crate::link::kinds::options::AttrValue::put(&self.$must, data, $must_attr);)?)*
                $($(
                    if let Some(value) = &self.$field {
                        $crate::link::kinds::options::AttrValue::put(value, data, $attr);
                    }
                )?)*
            }

            fn read_attr(
                &mut self,
                attr: &homeostat_netlink::Attr<'_>,
            ) -> Result<(), homeostat_netlink::Malformed> {
                match attr.kind {
                    $($($must_attr => {
                        self.$must =
                            $crate::link::kinds::options::AttrValue::read(attr)?.unwrap_or_default();
                    })?)*
                    $($($attr => self.$field = $crate::link::kinds::options::AttrValue::read(attr)?,)?)*
                    _ => {}
                }
                Ok(())
            }

            fn word_of(attr: u16) -> Option<&'static str> {
                match attr {
                    $($($must_attr => Some($must_key),)?)*
                    $($($attr => Some($key),)?)*
                    _ => None,
                }
            }

            #[cfg(feature = "document")]
            fn read(fields: &mut homeostat_document::Fields<'_>) -> Option<Self> {
                $(let $must = $crate::link::kinds::options::field!(
                    fields, required, required_number, $must_key, $must_text
                    $(, $must_number)? $(as $must_written)?
                );)*
                $(let $field = $crate::link::kinds::options::field!(
                    fields, optional, number, $key, $text $(, $number)? $(as $written)?
                );)*
                Some(Self { $($must: $must?,)* $($field,)* })
            }
        }
    };
}

/// Reads an option: a number in a range, a value that is written as another type, or any other value.
#[cfg(feature = "document")]
macro_rules! field {
    ($fields:ident, $any:ident, $ranged:ident, $key:literal, $text:literal) => {
        $fields.$any($key, $text)
    };
    ($fields:ident, $any:ident, $ranged:ident, $key:literal, $text:literal as $written:ty) => {
        $fields.$any::<$written>($key, $text).map(Into::into)
    };
    ($fields:ident, $any:ident, $ranged:ident, $key:literal, $text:literal, ($what:literal, $range:expr)) => {
        $fields.$ranged(
            $key,
            $text,
            homeostat_document::Number { what: $what, least: *$range.start(), most: *$range.end() },
        )
    };
}

/// An enum whose variants have a text in documents and a number in the kernel.
macro_rules! named_values {
    ($(#[$doc:meta])* $name:ident($int:ty), $what:literal: $($(#[$of:meta])* $variant:ident = $text:literal, $number:expr;)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn number(self) -> $int {
                match self {
                    $(Self::$variant => $number,)+
                }
            }
        }

        impl $crate::link::kinds::options::AttrValue for $name {
            fn put(&self, data: &mut homeostat_netlink::MessageWriter<'_>, kind: u16) {
                $crate::link::kinds::options::AttrValue::put(&self.number(), data, kind);
            }

            /// None, if the kernel knows one more than we do.
            fn read(
                attr: &homeostat_netlink::Attr<'_>,
            ) -> Result<Option<Self>, homeostat_netlink::Malformed> {
                let read = <$int as $crate::link::kinds::options::AttrValue>::read(attr)?;
                Ok(Self::ALL.iter().copied().find(|value| Some(value.number()) == read))
            }
        }

        #[cfg(feature = "document")]
        homeostat_document::word_values! { $name, $what: $($text = $name::$variant),+ }
    };
}

#[cfg(feature = "document")]
pub(crate) use field;
pub(crate) use {named_values, options};
