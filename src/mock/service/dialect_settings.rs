//! The macro that declares the settings of a dialect.

/// Declares [`Dialect`] and an enum for each of its fields from one table, so that `Dialect::all` and `Display`
/// cannot miss a choice. The first choice of each enum is the default.
macro_rules! dialect_settings {
    ($(
        $(#[$field_doc:meta])*
        $field:ident:
        $(#[$choice_doc:meta])*
        $Choice:ident {
            $(#[$default_doc:meta])* $Default:ident,
            $( $(#[$other_doc:meta])* $Other:ident, )+
        }
    )*) => {
        /// The mock's choices for what the interface document leaves open.
        ///
        /// Each field is one open question, and its type lists the choices. The document does not say which of them
        /// the real service made. Run your tests under each of them with [`Dialect::all`].
        ///
        /// [`Display`](fmt::Display) names the choices that differ from the default, such as `end_of_list: Null`.
        ///
        /// # Example: a server that differs from the default in one choice
        ///
        /// ```
        /// use audience::mock::{Dialect, EndOfList, MockServer};
        ///
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() {
        /// let dialect = Dialect { end_of_list: EndOfList::Null, ..Dialect::default() };
        /// let server = MockServer::builder().dialect(dialect).start().await;
        /// # drop(server);
        ///
        /// assert_eq!(dialect.to_string(), "end_of_list: Null");
        /// assert_eq!(Dialect::default().to_string(), "the default dialect");
        /// # }
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Dialect {
            $(
                $(#[$field_doc])*
                ///
                #[doc = concat!("Default: [`", stringify!($Choice), "::", stringify!($Default), "`].")]
                pub $field: $Choice,
            )*
        }

        impl Dialect {
            /// Returns every dialect that differs from the default in exactly one choice.
            ///
            /// The default dialect is not among them.
            ///
            /// # Example: one test under every dialect
            ///
            /// ```
            /// use audience::mock::{Dialect, MockServer};
            ///
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() {
            /// for dialect in Dialect::all() {
            ///     let server = MockServer::builder().dialect(dialect).start().await;
            ///
            ///     // Run your code against `server`, and name the dialect if an assertion fails.
            ///     assert!(server.requests().is_empty(), "with {dialect}");
            /// }
            /// # }
            /// ```
            pub fn all() -> impl Iterator<Item = Self> {
                [$( $( Self { $field: $Choice::$Other, ..Self::default() }, )+ )*].into_iter()
            }
        }

        impl Dialect {
            /// Returns the name of each field and the names of its choices, the default first.
            ///
            /// These are the names in a [seed](crate::mock#seeds) and in `audience-mock --dialect NAME=CHOICE`.
            ///
            /// # Example: what `--dialect` accepts
            ///
            /// ```
            /// use audience::mock::Dialect;
            ///
            /// let (name, choices) = Dialect::choices().find(|(name, _)| *name == "missing_name").expect("it is a field");
            ///
            /// assert_eq!(choices, ["empty", "null", "absent"], "the choices of {name}");
            /// ```
            pub fn choices() -> impl Iterator<Item = (&'static str, Vec<String>)> {
                [$( (
                    stringify!($field),
                    vec![snake_case(stringify!($Default)), $( snake_case(stringify!($Other)) ),+],
                ), )*].into_iter()
            }

            /// Makes one choice by its name; see [`choices`](Self::choices).
            ///
            /// # Errors
            ///
            /// An [`UnknownChoice`] if there is no field `name`, or if it has no such choice. The message lists the known
            /// ones.
            ///
            /// # Example: a choice from a configuration file
            ///
            /// ```
            /// use audience::mock::{Dialect, EndOfList, UnknownChoice};
            ///
            /// # fn main() -> Result<(), UnknownChoice> {
            /// let dialect = Dialect::default().choose("end_of_list", "null")?;
            ///
            /// assert_eq!(dialect.end_of_list, EndOfList::Null);
            /// # Ok(())
            /// # }
            /// ```
            pub fn choose(mut self, name: &str, choice: &str) -> Result<Self, UnknownChoice> {
                match name {
                    $( stringify!($field) => {
                        let known = [$Choice::$Default, $( $Choice::$Other ),+];
                        let chosen = known.into_iter().find(|known| snake_case(&format!("{known:?}")) == choice);
                        self.$field = chosen.ok_or_else(|| {
                            UnknownChoice::choice(name, choice, known.map(|known| snake_case(&format!("{known:?}"))))
                        })?;
                    } )*
                    _ => return Err(UnknownChoice::name(name, Self::choices().map(|(known, _)| known.to_owned()))),
                }
                Ok(self)
            }
        }

        /// Writes the choices that differ from the default, separated by commas.
        impl fmt::Display for Dialect {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut departures = Vec::new();
                $( if self.$field != $Choice::$Default {
                    departures.push(format!("{}: {:?}", stringify!($field), self.$field));
                } )*
                if departures.is_empty() {
                    return f.write_str("the default dialect");
                }
                f.write_str(&departures.join(", "))
            }
        }

        $(
            $(#[$choice_doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            #[non_exhaustive]
            pub enum $Choice {
                $(#[$default_doc])*
                ///
                /// Default.
                #[default]
                $Default,
                $( $(#[$other_doc])* $Other, )+
            }
        )*
    };
}

/// Returns the name of a variant in snake case: `EarlyNull` becomes `early_null`.
pub(super) fn snake_case(variant: &str) -> String {
    let mut name = String::with_capacity(variant.len() + 2);
    for character in variant.chars() {
        if character.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(character.to_ascii_lowercase());
    }
    name
}

pub(super) use dialect_settings;
