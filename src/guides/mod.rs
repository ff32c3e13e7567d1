//! Guides, one task each.
//!
//! - [First steps][first_steps]: create, retrieve and list contacts, and read an error.
//! - [Double opt-in][double_opt_in]: sign people up with no broadcast before they confirm.
//! - [Unsubscribe links][unsubscribe]: one click and a preference page, and no opt-out is lost.
//! - [A newsletter in one program][newsletter]: signup, preference page, one click and webhooks together.
//! - [Importing a list][moving_a_list]: import a CSV file from another service and keep every opt-out in it.
//! - [Keeping a list in step][keeping_in_step]: send the changes of a table every night, opt-outs first.
//! - [For your support team][support]: why somebody gets no mail, a changed address, and erasing a contact.
//! - [Errors and retries][errors]: what to do after a failed call, in a web handler and in a job.
//! - [Receiving webhooks][receiving_webhooks]: verify each delivery and drop duplicates.
//! - [Webhooks in production][webhooks_in_production]: choose a store, connect to Postgres, handle an event exactly
//!   once, shut down.
//! - [Scaling the inbox][scaling]: what 10, 100 and 1,000 million events a day need, and when to split them.
//! - [Examine your receiver][examine]: find the mistakes of a webhook receiver in any language.
//! - [Testing your application][testing]: start the mock server in a test, cause failures, move the clock.
//! - [The mock in other languages][other_languages]: test an application in Python, JavaScript or a shell.
//! - [Verifying webhooks in other languages][verifying_webhooks]: the rules, and a verifier in Python.
//! - [The mock over HTTP][mock_over_http]: the program `audience-mock`, its seed files and its HTTP calls.
//!
//! [The interface of the service][crate::interface] has every field, status and limit that the guides rely on.
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
