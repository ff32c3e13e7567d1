//! Enums for strings that the service sends and may add to. Known strings are variants; any other is kept verbatim.

/// Declares such an enum, with a variant `Other` for unknown strings.
///
/// From one list of variants and their strings, the macro makes the enum, `KNOWN`, `as_str`, the conversions from
/// text, `Display`, `Serialize` and `Deserialize`. With `ignoring case` after the name, a known string is recognized in
/// upper and lower case.
macro_rules! string_enum {
    ($(#[$docs:meta])* pub enum $name:ident { $($variants:tt)* }) => {
        crate::string_enum::string_enum! {
            @compare eq, "Returns the variant with exactly this text, or `Other` if there is none. Case matters.";
            $(#[$docs])* pub enum $name { $($variants)* }
        }
    };
    ($(#[$docs:meta])* pub enum $name:ident ignoring case { $($variants:tt)* }) => {
        crate::string_enum::string_enum! {
            @compare eq_ignore_ascii_case, "Returns the variant with this text, or `Other` if there is none. Case is ignored.";
            $(#[$docs])* pub enum $name { $($variants)* }
        }
    };
    (
        @compare $equals:ident, $from_docs:literal;
        $(#[$docs:meta])*
        pub enum $name:ident {
            $($(#[$variant_docs:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$docs])*
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_docs])* $variant,)*
            /// A value that this version of the crate does not know, verbatim.
            ///
            /// Create it with `from`, which returns the proper variant for a known text.
            Other(String),
        }

        impl $name {
            /// All values that this version of the crate knows, in the order of the variants.
            pub const KNOWN: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the text of this value, as the service writes it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }

            fn from_known(text: &str) -> Option<Self> {
                $(
                    if $text.$equals(text) {
                        return Some(Self::$variant);
                    }
                )*
                None
            }
        }

        /// Compares the text: `Other` with the text of a known variant equals that variant.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.as_str() == other.as_str()
            }
        }

        impl Eq for $name {}

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.as_str().hash(state);
            }
        }

        #[doc = $from_docs]
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::from_known(text).unwrap_or_else(|| Self::Other(text.to_owned()))
            }
        }

        #[doc = $from_docs]
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::from_known(&text).unwrap_or(Self::Other(text))
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        /// Writes the text of the value.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct TextVisitor;

                impl serde::de::Visitor<'_> for TextVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::from(text))
                    }
                }

                deserializer.deserialize_str(TextVisitor)
            }
        }
    };
}

pub(crate) use string_enum;

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro makes public types only")]
mod tests {
    string_enum! {
        /// Two sizes.
        pub enum Size {
            /// `small`
            Small = "small",
            /// `extra_large`
            ExtraLarge = "extra_large",
        }
    }

    string_enum! {
        /// The results of a check.
        pub enum Verdict ignoring case {
            /// `pass`
            Pass = "pass",
        }
    }

    #[test]
    fn case_is_ignored_only_if_the_enum_says_so() {
        for text in ["pass", "Pass", "PASS"] {
            let read = serde_json::from_value::<Verdict>(text.into()).unwrap();
            assert!(matches!(read, Verdict::Pass), "{text}");
            assert!(matches!(Verdict::from(text.to_owned()), Verdict::Pass));
        }
        assert_eq!(Verdict::KNOWN, [Verdict::from("PASS")]);
        assert_eq!(Verdict::from("Odd").as_str(), "Odd");
        assert!(matches!(Size::from("Small"), Size::Other(_)));
    }

    #[test]
    fn known_and_unknown_texts_convert_in_both_directions() {
        for (text, size) in [
            ("small", Size::Small),
            ("extra_large", Size::ExtraLarge),
            ("SMALL", Size::Other("SMALL".to_owned())),
            ("", Size::Other(String::new())),
        ] {
            assert_eq!(Size::from(text), size);
            assert_eq!(Size::from(text.to_owned()), size);
            assert_eq!(size.as_str(), text);
            assert_eq!(format!("{size:>8}"), format!("{text:>8}"));
            assert_eq!(serde_json::to_value(&size).unwrap(), text);
            assert_eq!(serde_json::from_value::<Size>(text.into()).unwrap(), size);
        }
        assert_eq!(Size::KNOWN, [Size::Small, Size::ExtraLarge]);
        assert!(serde_json::from_str::<Size>("5").is_err());
    }
}
