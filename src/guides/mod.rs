//! Guides: one task each, from the first call to tests and other languages.
//!
//! - [First steps][first_steps]: the dependency, a client, create, retrieve and list, and what each error means.
//! - [Double opt-in][double_opt_in]: sign people up so that nobody gets a broadcast before the confirmation.
//! - [A preference page][preference_page]: show a contact's topics, record the form, unsubscribe with one click.
//! - [Moving a list here][moving_a_list]: a CSV file from another service, with the consent of everybody in it.
//! - [Receiving webhooks in production][receiving_webhooks]: each event once, on which store, behind which server.
//! - [Testing your application][testing]: contacts in any state, faults, hours that pass at once, deliveries.
//! - [Examine your receiver][examine]: what is wrong with a receiver of webhooks, in any language.
//! - [Errors and retries][errors]: what a failed call means, and the settings for a web handler.
//! - [Other languages][other_languages]: the mock server from a shell and from Python.
//!
//! The sources are in the folder `docs` of the package. This module exists only in the documentation.

/// Defines a module whose documentation is one file of `docs`.
///
/// A link of a guide has two targets. `links.md` comes first, so rustdoc uses its paths, and checks them. The file of
/// the guide ends with the same labels and the addresses on docs.rs, for readers of the plain Markdown.
macro_rules! guides {
    ($($name:ident: $file:literal),+ $(,)?) => {
        $(
            // Without it, rustdoc names the file of the guide when a test fails.
            #[cfg_attr(not(doctest), doc = include_str!("links.md"))]
            #[doc = include_str!(concat!("../../docs/", $file))]
            pub mod $name {}
        )+
    };
}

guides! {
    first_steps: "first-steps.md",
    double_opt_in: "double-opt-in.md",
    preference_page: "preference-page.md",
    moving_a_list: "moving-a-list.md",
    receiving_webhooks: "receiving-webhooks.md",
    testing: "testing.md",
    examine: "examine.md",
    errors: "errors.md",
    other_languages: "other-languages.md",
}
