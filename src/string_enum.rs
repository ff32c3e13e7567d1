//! Words that the service sends, and may add to: known ones are variants, others are kept as they came.

/// Declares an enum of words, with a variant `Other` for those that are not listed. One list of variants and
/// texts makes the enum, both directions between word and variant, `Display`, `Serialize` and `Deserialize`.
macro_rules! string_enum {
    (
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
            /// One that this version of the crate does not know, as it came.
            Other(String),
        }

        impl $name {
            /// The words that this version of the crate knows.
            pub const KNOWN: &'static [Self] = &[$(Self::$variant,)*];

            /// The word as it stands on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }

            fn known(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        /// By the word: one that a later version knows still equals what an earlier one kept.
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

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::known(text).unwrap_or_else(|| Self::Other(text.to_owned()))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::known(&text).unwrap_or(Self::Other(text))
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

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
                struct Word;

                impl serde::de::Visitor<'_> for Word {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::from(text))
                    }
                }

                deserializer.deserialize_str(Word)
            }
        }
    };
}

pub(crate) use string_enum;

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro makes public types only")]
mod tests {
    string_enum! {
        /// Two words.
        pub enum Answer {
            /// `yes`
            Yes = "yes",
            /// `not_yet`
            NotYet = "not_yet",
        }
    }

    #[test]
    fn every_word_reads_as_its_variant_and_writes_as_itself_known_or_not() {
        for (text, answer) in [
            ("yes", Answer::Yes),
            ("not_yet", Answer::NotYet),
            ("YES", Answer::Other("YES".to_owned())),
            ("", Answer::Other(String::new())),
        ] {
            assert_eq!(Answer::from(text), answer);
            assert_eq!(Answer::from(text.to_owned()), answer);
            assert_eq!(answer.as_str(), text);
            assert_eq!(format!("{answer:>8}"), format!("{text:>8}"));
            assert_eq!(serde_json::to_value(&answer).unwrap(), text);
            assert_eq!(
                serde_json::from_value::<Answer>(text.into()).unwrap(),
                answer
            );
        }
        assert_eq!(Answer::KNOWN, [Answer::Yes, Answer::NotYet]);
        assert!(serde_json::from_str::<Answer>("5").is_err());
    }
}
