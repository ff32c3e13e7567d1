//! Text that cannot be a real key is refused when the client is built, and a 401 says what may be wrong.

use audience::{Auth, Client, ErrorKind};

use support::{
    ADA, KEY, builder, contact, contacts, ok, printed, received, respond_with, status, text,
};

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
        ("\"hunter2\"", "the key is in quotation marks"),
        ("'hunter2'", "the key is in quotation marks"),
        ("\"Bearer hunter2\"", "the key is in quotation marks"),
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

#[tokio::test]
async fn the_key_is_sent_in_the_way_that_the_service_expects() {
    let server = respond_with(ok(contact())).await;
    for (auth, name, value) in [
        (Auth::bearer(), "authorization", "Bearer key-hunter2"),
        (Auth::scheme("Token"), "authorization", "Token key-hunter2"),
        (
            Auth::basic("api"),
            "authorization",
            "Basic YXBpOmtleS1odW50ZXIy",
        ),
        (Auth::basic(""), "authorization", "Basic OmtleS1odW50ZXIy"),
        (Auth::header("X-Api-Key"), "x-api-key", KEY),
    ] {
        let client = builder(server.uri()).auth(auth).build().unwrap();

        client.contacts().retrieve(ADA).await.unwrap();

        let requests = received(&server).await;
        assert_eq!(requests.last().unwrap().headers[name], value);
        assert!(!format!("{client:?}").contains("hunter2"));
    }
    assert_eq!(Auth::scheme("Bearer"), Auth::bearer());
}

#[test]
fn a_scheme_or_a_user_name_that_http_does_not_allow_is_refused() {
    for auth in [
        Auth::scheme(""),
        Auth::scheme("Token "),
        Auth::scheme("a b"),
        Auth::scheme("Token:"),
        Auth::scheme("a\nb"),
        Auth::basic("a:b"),
        Auth::basic("a\nb"),
    ] {
        let error = Client::builder(URL, "hunter2")
            .auth(auth.clone())
            .build()
            .unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Config, "{auth:?}");
        assert!(!printed(&error).contains("hunter2"), "{error:?}");
    }
}

#[test]
fn a_header_that_is_sent_with_another_value_cannot_hold_the_key() {
    for name in [
        "Accept",
        "accept-encoding",
        "content-type",
        "user-agent",
        "host",
        "te",
    ] {
        let client = Client::builder(URL, KEY).auth(Auth::header(name)).build();

        let error = client.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let reason = format!(
            "the key cannot be sent in the header `{}`",
            name.to_lowercase()
        );
        assert!(error.to_string().starts_with(&reason), "{error}");
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
