//! A redirect is followed only to the same origin and with the same request. Any other is an error, which names the host
//! if it is that of the base URL.

use audience::{ErrorKind, Outcome};
use wiremock::{MockServer, Request};

use support::operation::Operation;
use support::scripted_server::{bytes, retrieve_once};
use support::{ADA, KEY, builder, client, contact, ok, printed, received, respond_with, status};

/// Starts a server that responds to the operation under `/moved`, and elsewhere redirects to there with this status.
async fn moved(operation: Operation, code: u16) -> MockServer {
    let good = operation.good_response();
    respond_with(move |request: &Request| {
        if request.url.path().starts_with("/moved/") {
            return ok(&good);
        }
        let mut target = format!("/moved{}", request.url.path());
        if let Some(query) = request.url.query() {
            target = format!("{target}?{query}");
        }
        status(code).insert_header("location", format!("{target}#part"))
    })
    .await
}

#[tokio::test]
async fn a_307_or_308_to_the_same_origin_is_followed_with_method_body_and_key() {
    for code in [307, 308] {
        for operation in Operation::ALL {
            let server = moved(operation, code).await;

            operation.run(&client(server.uri())).await.unwrap();

            let [first, second] = &received(&server).await[..] else {
                panic!("{operation:?} was not sent twice after {code}")
            };
            assert_eq!(second.url.path(), format!("/moved{}", operation.path()));
            assert_eq!(
                (&second.method, &second.body, &second.headers),
                (&first.method, &first.body, &first.headers),
                "{operation:?} after {code}"
            );
            assert_eq!(second.headers["authorization"], format!("Bearer {KEY}"));
        }
    }
}

#[tokio::test]
async fn a_301_or_302_is_followed_only_for_a_get() {
    for code in [301, 302] {
        for operation in Operation::ALL {
            let server = moved(operation, code).await;

            let result = operation.run(&client(server.uri())).await;

            let is_get = operation.method() == "GET";
            let message = format!(
                "{}: the service responded {code}, a redirect to 127.0.0.1, which is not followed (a {code} is \
                 followed only for a GET); check the base URL",
                operation.name()
            );
            let error = result.err().map(|error| error.to_string());
            assert_eq!(error, (!is_get).then_some(message), "{operation:?}");
            let requests = received(&server).await.len();
            assert_eq!(requests, 1 + usize::from(is_get), "{operation:?}");
        }
    }
}

/// Without its filter, the list would have every contact. Without its cursor, it would begin anew.
#[tokio::test]
async fn a_redirect_that_changes_the_query_is_not_followed() {
    for (has_query, target, is_followed) in [
        (true, "/moved/contacts?after=c_1&query=ada", true),
        (true, "/moved/contacts", false),
        (true, "/moved/contacts?", false),
        (true, "/moved/contacts?query=ada", false),
        (true, "/moved/contacts?after=c_1&query=ada&limit=2", false),
        (false, "/moved/contacts", true),
        (false, "/moved/contacts?", true),
        (false, "/moved/contacts?limit=2", false),
    ] {
        let good = Operation::List.good_response();
        let server = respond_with(move |request: &Request| {
            match request.url.path().starts_with("/moved/") {
                true => ok(&good),
                false => status(308).insert_header("location", target),
            }
        })
        .await;
        let contacts = client(server.uri()).contacts();

        let listed = match has_query {
            true => contacts.list().query("ada").after("c_1").await,
            false => contacts.list().await,
        };

        let message = "list: the service responded 308, a redirect to 127.0.0.1 with another query than the request's, which \
                       is not followed; check the base URL";
        let error = listed.err().map(|error| error.to_string());
        assert_eq!(
            error,
            (!is_followed).then(|| message.to_owned()),
            "{target}"
        );
        assert_eq!(received(&server).await.len(), 1 + usize::from(is_followed));
    }
}

#[tokio::test]
async fn a_followed_redirect_is_part_of_one_attempt() {
    let server = moved(Operation::List, 308).await;

    let response = client(server.uri()).contacts().list().response().await;

    assert_eq!(response.unwrap().attempts(), 1);
}

#[tokio::test]
async fn an_endless_redirect_ends_after_five() {
    let server = respond_with(status(307).insert_header("location", "/contacts")).await;

    let call = client(server.uri()).contacts().create(ADA);
    let error = call.await.unwrap_err();

    assert_eq!(received(&server).await.len(), 6);
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Refused, 1));
    assert_eq!(
        error.to_string(),
        "create: the service responded 307, a redirect to 127.0.0.1 after 5 others, which is not followed; check the base URL"
    );
}

#[tokio::test]
async fn a_redirect_to_another_scheme_or_with_a_user_name_is_not_followed() {
    for (scheme_and_user, reason) in [
        ("https://", "over https, not http"),
        ("ftp://", "over another scheme"),
        ("http://ada:hunter2@", "with a user name"),
        ("http://ada@", "with a user name"),
        ("http://:hunter2@", "with a user name"),
    ] {
        let server = respond_with(move |request: &Request| {
            let authority = request.headers["host"].to_str().unwrap();
            let location = format!("{scheme_and_user}{authority}/contacts");
            status(308).insert_header("location", location)
        })
        .await;

        let error = client(server.uri()).contacts().list().await.unwrap_err();

        let message = format!(
            "list: the service responded 308, a redirect to 127.0.0.1 {reason}, which is not followed; check the base URL"
        );
        assert_eq!(error.to_string(), message);
        assert_eq!(received(&server).await.len(), 1, "{scheme_and_user}");
    }
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_not_followed_and_the_key_is_not_sent_there() {
    let elsewhere = respond_with(ok(contact())).await;
    for code in [300, 301, 302, 303, 307, 308] {
        let location = format!("{}/contacts/hunter2?ada@example.com", elsewhere.uri());
        let server = respond_with(status(code).insert_header("location", location)).await;
        for operation in Operation::ALL {
            let error = operation.run(&client(server.uri())).await.unwrap_err();

            let message = format!(
                "{}: the service responded {code}, a redirect to 127.0.0.1 on another port, which is not followed; check the base URL",
                operation.name()
            );
            assert_eq!(error.to_string(), message);
            let outcome = match (code, operation.method()) {
                (303, method) if method != "GET" => Outcome::Unknown,
                _ => Outcome::Refused,
            };
            assert_eq!(
                (error.kind(), error.outcome(), error.attempts()),
                (ErrorKind::Api, outcome, 1),
                "{operation:?} after {code}"
            );
            assert_eq!(error.api().unwrap().status().as_u16(), code);
            assert!(
                !printed(&error).contains("hunter2"),
                "only the host is named"
            );
        }
        assert_eq!(received(&server).await.len(), Operation::ALL.len());
    }
    assert!(received(&elsewhere).await.is_empty());
}

#[tokio::test]
async fn the_error_of_a_redirect_names_no_host_but_that_of_the_base_url() {
    for (location, host) in [
        (
            "https://evil.example.org:444/x?hunter2",
            "another host over https",
        ),
        (
            "https://user:hunter2@evil.example.org/",
            "another host over https",
        ),
        ("//evil.example.org/hunter2", "another host over http"),
    ] {
        let error = redirected_to(location).await;

        assert!(
            error
                .to_string()
                .contains(&format!("a redirect to {host}, ")),
            "{location}: {error}"
        );
        assert!(!printed(&error).contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_location_with_an_unusual_host_or_scheme_is_not_quoted() {
    for (location, text) in [
        ("https://[2001:db8::1]/x", "another host over https"),
        ("http://ex%61mple_x.org/", "another host over http"),
        (
            "https://key-hunter2.example.org/",
            "another host over https",
        ),
        (
            "https://key.hunter2.example.org/",
            "another host over https",
        ),
        ("http://KEY-HUNTER2/", "another host over http"),
        ("https://ada.example.com/", "another host over https"),
        (
            "https://ada-at-example-com.evil.org/",
            "another host over https",
        ),
        ("key-hunter2://key-hunter2.org/", "another host"),
    ] {
        let error = redirected_to(location).await;

        let message = format!(
            "retrieve: the service responded 302, a redirect to {text}, which is not followed; check the base URL"
        );
        assert_eq!(error.to_string(), message, "{location}");
        assert!(!printed(&error).contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_host_with_an_address_of_the_body_or_the_query_is_not_named() {
    let location = "https://ada.example.com.evil.org/";
    let server = respond_with(status(307).insert_header("location", location)).await;
    let contacts = client(server.uri()).contacts();
    let ada = || audience::contacts::NewContact::new(ADA);

    for error in [
        contacts.create(ada()).await.unwrap_err(),
        contacts.create_batch([ada()]).await.unwrap_err(),
        contacts.list().query(ADA).await.unwrap_err(),
    ] {
        assert!(!printed(&error).contains("ada"), "{error:?}");
    }
}

async fn redirected_to(location: &str) -> audience::Error {
    let response =
        format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
    retrieve_once(bytes(response)).await.unwrap_err()
}

#[tokio::test]
async fn a_3xx_without_a_host_is_a_status_like_any_other() {
    let without_location = "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n";

    for error in [
        redirected_to("mailto:hunter2@example.com").await,
        retrieve_once(bytes(without_location)).await.unwrap_err(),
    ] {
        assert_eq!(error.to_string(), "retrieve: the service responded 302");
    }
}

#[tokio::test]
async fn a_custom_http_client_that_follows_redirects_is_detected() {
    let elsewhere = respond_with(ok(contact())).await;
    let server = respond_with(status(302).insert_header("location", elsewhere.uri())).await;
    let client = builder(server.uri())
        .http_client(reqwest::Client::new())
        .build()
        .unwrap();

    let error = client.contacts().unsubscribe(ADA).await.unwrap_err();

    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Transport, Outcome::Unknown)
    );
    assert!(error.to_string().contains("followed a redirect"), "{error}");
}

#[tokio::test]
async fn a_redirect_loop_that_a_custom_http_client_followed_is_not_retried() {
    let server = respond_with(status(302).insert_header("location", "/loop")).await;
    let client = builder(server.uri()).http_client(reqwest::Client::new());

    let call = client.build().unwrap().contacts().retrieve(ADA);
    let error = call.await.unwrap_err();

    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Transport, 1));
    assert!(error.to_string().contains("followed a redirect"), "{error}");
}

#[tokio::test]
async fn a_300_or_303_within_the_origin_is_not_followed_and_a_303_may_have_been_applied() {
    for (code, outcome) in [(300, Outcome::Refused), (303, Outcome::Unknown)] {
        let server = respond_with(status(code).insert_header("location", "/contacts")).await;

        let error = client(server.uri()).contacts().unsubscribe(ADA).await;

        let error = error.unwrap_err();
        let message = format!(
            "unsubscribe: the service responded {code}, a redirect to 127.0.0.1, which is not followed (a {code} never \
             is); check the base URL"
        );
        assert_eq!((error.to_string(), error.outcome()), (message, outcome));
        assert_eq!(received(&server).await.len(), 1);
    }
}

#[tokio::test]
async fn a_status_that_is_no_redirect_is_not_called_one() {
    for code in [304, 305, 306, 399] {
        let server = respond_with(status(code).insert_header("location", "/contacts")).await;

        let error = client(server.uri()).contacts().retrieve(ADA).await;

        let message = format!("retrieve: the service responded {code}");
        assert_eq!(error.unwrap_err().to_string(), message);
    }
}

#[tokio::test]
async fn a_304_is_not_a_success() {
    let error = retrieve_once(bytes("HTTP/1.1 304 Not Modified\r\n\r\n"))
        .await
        .unwrap_err();

    assert_eq!(
        (error.kind(), error.api().unwrap().status().as_u16()),
        (ErrorKind::Api, 304)
    );
}
