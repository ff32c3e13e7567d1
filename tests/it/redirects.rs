//! A redirect is an error that names a host, and is never followed.

use audience::{ErrorKind, Outcome};

use crate::support::operation::Operation;
use crate::support::script::{bytes, retrieve_once};
use crate::support::{answering, client, contact, ok, printed, received, status};

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_key_goes_nowhere_else() {
    let elsewhere = answering(ok(contact())).await;
    for code in [300, 301, 302, 303, 307, 308] {
        let location = format!("{}/contacts/hunter2?ada@example.com", elsewhere.uri());
        let server = answering(status(code).insert_header("location", location)).await;
        for operation in Operation::ALL {
            let error = operation.run(&client(server.uri())).await.unwrap_err();

            let message = format!(
                "{}: the service answered {code}, a redirect to 127.0.0.1, which is not followed",
                operation.name()
            );
            assert_eq!(error.to_string(), message);
            assert_eq!(
                (error.kind(), error.outcome(), error.attempts()),
                (ErrorKind::Api, Outcome::Refused, 1)
            );
            assert_eq!(error.api().unwrap().status().as_u16(), code);
            assert!(
                !printed(&error).contains("hunter2"),
                "the host and nothing more"
            );
        }
        assert_eq!(received(&server).await.len(), Operation::ALL.len());
    }
    assert!(received(&elsewhere).await.is_empty());
}

#[tokio::test]
async fn a_redirect_names_its_host_and_nothing_else_of_its_location() {
    for (location, host) in [
        (
            Some("https://evil.example.org:444/x?hunter2"),
            "evil.example.org",
        ),
        (
            Some("https://user:hunter2@evil.example.org/"),
            "evil.example.org",
        ),
        (Some("/elsewhere/hunter2"), "127.0.0.1"),
        (Some("//evil.example.org/hunter2"), "evil.example.org"),
        (Some("mailto:hunter2@example.com"), "an unnamed place"),
        (None, "an unnamed place"),
    ] {
        let location =
            location.map_or_else(String::new, |location| format!("location: {location}\r\n"));
        let act = bytes(format!(
            "HTTP/1.1 302 Found\r\n{location}content-length: 0\r\n\r\n"
        ));

        let error = retrieve_once(act).await.unwrap_err();

        assert!(
            error
                .to_string()
                .contains(&format!("a redirect to {host}, ")),
            "{location}{error}"
        );
        assert!(!printed(&error).contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_304_is_no_success() {
    let error = retrieve_once(bytes("HTTP/1.1 304 Not Modified\r\n\r\n"))
        .await
        .unwrap_err();

    assert_eq!(
        (error.kind(), error.api().unwrap().status().as_u16()),
        (ErrorKind::Api, 304)
    );
}
