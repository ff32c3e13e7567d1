//! Guides, one task each.
//!
//! [The first page](crate#guides) says what each of them is about. [The interface of the service][crate::interface] has
//! every field, status and limit that the guides rely on.
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
    unsubscribe: "unsubscribe.md",
    newsletter: "newsletter.md",
    moving_a_list: "moving-a-list.md",
    keeping_in_step: "keeping-in-step.md",
    support: "support.md",
    errors: "errors.md",
    receiving_webhooks: "receiving-webhooks.md",
    webhooks_in_production: "webhooks-in-production.md",
    scaling: "scaling.md",
    examine: "examine.md",
    testing: "testing.md",
    other_languages: "other-languages.md",
    verifying_webhooks: "verifying-webhooks.md",
    mock_over_http: "mock-over-http.md",
}
