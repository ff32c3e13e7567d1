//! Text that cannot be a real key is refused when the client is built, and a 401 says what may be wrong.

use audience::{Auth, Client, ErrorKind};

use support::{ADA, contacts, printed, respond_with, status, text};

const URL: &str = "https://api.example.com/v1";

#[test]
fn text_that_cannot_be_a_real_key_is_refused_with_the_reason() {
    for (key, reason) in [
        ("", "the key is empty"),
        (" \t\n", "the key is blank"),
        ("hunter2\n", "the key contains a control character"),
        ("\u{feff}hunter2", "the key contains white space"),
        ("hunter2 hunter2", "the key contains white space"),
        ("hunter2\u{a0}2", "the key contains white space"),
        ("<hunter2>", "the key is a placeholder"),
        ("<API_KEY>", "the key is a placeholder"),
        (
            "Bearer hunter2",
            "the key starts with `Bearer`; pass the key alone",
        ),
        (
            "bearer  hunter2",
            "the key starts with `Bearer`; pass the key alone",
        ),
    ] {
        for auth in [Auth::bearer(), Auth::header("x-api-key")] {
            let error = Client::builder(URL, key).auth(auth).build().unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Config, "{key:?}");
            assert!(error.to_string().starts_with(reason), "{key:?}: {error}");
            assert!(!printed(&error).contains("hunter2"), "{error:?}");
        }
    }
}

#[test]
fn text_that_may_be_a_real_key_is_accepted() {
    for key in [
        "key",
        "k-1",
        "test",
        "secret",
        "changeme",
        "sk_live_51H8xxYZ",
        "bearertoken",
        "a2V5OjEyMw==",
    ] {
        assert!(Client::new(URL, key).is_ok(), "{key}");
    }
}

#[tokio::test]
async fn a_401_names_the_likely_causes() {
    for (response, text) in [
        (status(401), "retrieve: the service responded 401: "),
        (
            text(401, r#"{"code": "unknown_key"}"#),
            "retrieve: the service responded 401 unknown_key: ",
        ),
    ] {
        let server = respond_with(response).await;

        let error = contacts(server.uri()).retrieve(ADA).await.unwrap_err();

        let causes = "the key is wrong or belongs to another environment, or the service expects it in another header (see `Auth`)";
        assert_eq!(error.to_string(), format!("{text}{causes}"));
    }
}
