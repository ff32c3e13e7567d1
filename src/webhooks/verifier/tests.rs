use super::*;

#[test]
fn deliveries_are_counted_by_secret_and_rejections_by_status() {
    let verifier = Verifier::builder().secret("new", "6Jm0nFq2pXvZk4Tt");
    let verifier = verifier.secret("o\"l\\d", "Wb8cQe1sLr5uYh7o").build();
    let (verifier, now) = (verifier.unwrap(), SystemTime::now());
    let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    let deliver = |secret: &str, at: SystemTime| {
        let signer = crate::webhooks::Signer::new(secret).unwrap();
        let headers = signer.sign(&crate::webhooks::EventType::Sent, at, body);
        let _ = verifier.clone().verify(&headers, body);
    };

    deliver("6Jm0nFq2pXvZk4Tt", now);
    deliver("Wb8cQe1sLr5uYh7o", now);
    deliver("Wb8cQe1sLr5uYh7o", now);
    deliver("an0ther-s3cret-value", now); // 401: forged
    deliver("6Jm0nFq2pXvZk4Tt", now - Duration::from_secs(3_600)); // 401: too late
    let _ = verifier.verify(&HeaderMap::new(), body); // 400

    let metrics = verifier.metrics();
    let rejected = [metrics.malformed, metrics.unauthorized, metrics.too_large];
    assert_eq!((metrics.accepted["new"], rejected), (1, [1, 2, 0]));
    assert_eq!(
        metrics.to_prometheus(),
        "# HELP audience_webhooks_accepted_total Deliveries by the secret that they were signed with.\n\
         # TYPE audience_webhooks_accepted_total counter\n\
         audience_webhooks_accepted_total{secret=\"new\"} 1\n\
         audience_webhooks_accepted_total{secret=\"o\\\"l\\\\d\"} 2\n\
         # HELP audience_webhooks_malformed_total Deliveries that were rejected with 400 because of their headers.\n\
         # TYPE audience_webhooks_malformed_total counter\n\
         audience_webhooks_malformed_total 1\n\
         # HELP audience_webhooks_unauthorized_total Deliveries that were rejected with 401.\n\
         # TYPE audience_webhooks_unauthorized_total counter\n\
         audience_webhooks_unauthorized_total 2\n\
         # HELP audience_webhooks_too_large_total Deliveries that were rejected with 413.\n\
         # TYPE audience_webhooks_too_large_total counter\n\
         audience_webhooks_too_large_total 0\n"
    );
}

fn builder_from(variables: &[(&str, &str)]) -> Result<VerifierBuilder, ConfigError> {
    VerifierBuilder::from_variables(|name| {
        let found = variables.iter().find(|(other, _)| *other == name);
        found.map_or(Err(VarError::NotPresent), |(_, value)| {
            Ok((*value).to_owned())
        })
    })
}

fn from_variables(variables: &[(&str, &str)]) -> Result<Verifier, ConfigError> {
    builder_from(variables)?.build()
}

#[test]
fn a_verifier_with_both_secrets_of_the_environment_accepts_a_body_up_to_a_limit_of_its_own() {
    let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    let [secret, old] = ["6Jm0nFq2pXvZk4Tt", "Wb8cQe1sLr5uYh7o"];
    let verifier = |limit| {
        let builder = builder_from(&[(SECRET, secret), (OLD_SECRET, old)]).unwrap();
        builder.body_limit(limit).build().unwrap()
    };
    let now = SystemTime::now();
    let signer = crate::webhooks::Signer::new(old).unwrap();
    let headers = signer.sign(&crate::webhooks::EventType::Sent, now, body);

    let accepted = verifier(body.len()).verify_at(&headers, body, now);
    let refused = verifier(body.len() - 1).verify_at(&headers, body, now);

    assert!(accepted.is_ok(), "{accepted:?}");
    assert_eq!(refused.unwrap_err().status(), 413);
}

#[test]
fn the_secrets_come_from_variables_or_files_and_the_old_one_is_accepted_too() {
    let file = std::env::temp_dir().join(format!("audience-secret-{}", std::process::id()));
    std::fs::write(&file, "from a file\n").unwrap();
    let path = file.to_str().unwrap();
    let names = |verifier: &Verifier| -> Vec<String> {
        verifier
            .0
            .keys
            .0
            .iter()
            .map(|key| key.name.to_string())
            .collect()
    };

    let one = from_variables(&[(SECRET, "6Jm0nFq2pXvZk4Tt"), (OLD_SECRET, " ")]).unwrap();
    assert_eq!(names(&one), ["default"]);
    for variables in [
        [(SECRET, "6Jm0nFq2pXvZk4Tt"), (OLD_SECRET_FILE, path)],
        [(SECRET_FILE, path), (OLD_SECRET, "6Jm0nFq2pXvZk4Tt")],
    ] {
        assert_eq!(
            names(&from_variables(&variables).unwrap()),
            ["default", "old"]
        );
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_byte_order_mark_before_the_secret_in_a_file_does_not_belong_to_it() {
    let file = std::env::temp_dir().join(format!("audience-mark-{}", std::process::id()));
    std::fs::write(&file, "\u{feff}6Jm0nFq2pXvZk4Tt\r\n").unwrap();
    let verifier = from_variables(&[(SECRET_FILE, file.to_str().unwrap())]);
    std::fs::remove_file(&file).unwrap();

    let signer = crate::webhooks::Signer::new("6Jm0nFq2pXvZk4Tt").unwrap();
    let now = SystemTime::now();
    let body = br#"{"id":"evt_1","type":"email.sent","created_at":1700000000,"data":{}}"#;
    let headers = signer.sign(&crate::webhooks::EventType::Sent, now, body);
    let verified = verifier.unwrap().verify_at(&headers, body, now);

    assert!(verified.is_ok(), "{verified:?}");
}

#[test]
fn a_variable_that_cannot_be_used_is_named_without_its_value() {
    for (variables, expected) in [
        (
            &[][..],
            "neither of the environment variables `AUDIENCE_WEBHOOK_SECRET` and `AUDIENCE_WEBHOOK_SECRET_FILE` is set",
        ),
        (
            &[(SECRET, "hunter2"), (SECRET_FILE, "hunter2")],
            "both `AUDIENCE_WEBHOOK_SECRET` and `AUDIENCE_WEBHOOK_SECRET_FILE` are set",
        ),
        (
            &[(SECRET_FILE, "/no/hunter2")],
            "could not read the file that `AUDIENCE_WEBHOOK_SECRET_FILE` names",
        ),
        (
            &[(SECRET, "a secret"), (OLD_SECRET_FILE, "/no/hunter2")],
            "the file that `AUDIENCE_WEBHOOK_SECRET_OLD_FILE` names",
        ),
        (&[(SECRET, "<hunter2>")], "is a placeholder"),
        (&[(SECRET, "'hunter2'")], "is in quotation marks"),
        (
            &[(SECRET, "a secret"), (OLD_SECRET, "\"hunter2\"")],
            "\"old\" is in quotation marks",
        ),
    ] {
        let text = from_variables(variables).unwrap_err().to_string();

        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

const SECRETS: [&[u8]; 3] = [b"the first", b"the second", b"the third"];

fn key_ring() -> KeyRing {
    let mut ring = KeyRing::default();
    for (name, secret) in ["1", "2", "3"].into_iter().zip(SECRETS) {
        ring.add(name.to_owned(), secret).unwrap();
    }
    ring
}

fn tag(secret: &[u8]) -> Tag {
    let signature = SigningKey::new(secret).sign(b"1700000000", b"{}");
    Tag::parse(signature.as_bytes()).unwrap()
}

fn name_of(secret: Option<&NamedKey>) -> Option<&str> {
    secret.map(|secret| secret.name.as_str())
}

#[test]
fn each_secret_is_found_by_what_it_signed() {
    for (name, secret) in ["1", "2", "3"].into_iter().zip(SECRETS) {
        let ring = key_ring();

        let found = name_of(ring.matching(&tag(secret), b"1700000000", b"{}"));

        assert_eq!(found, Some(name));
    }
}

#[test]
fn no_secret_is_found_for_a_forgery() {
    let ring = key_ring();

    let forged = name_of(ring.matching(&tag(b"another"), b"1700000000", b"{}"));
    let changed = name_of(ring.matching(&tag(b"the first"), b"1700000000", b"{ }"));

    assert_eq!((forged, changed), (None, None));
}

#[test]
fn the_first_of_two_equal_secrets_is_named() {
    let mut ring = key_ring();
    ring.add("4".to_owned(), b"the second").unwrap();

    let found = name_of(ring.matching(&tag(b"the second"), b"1700000000", b"{}"));

    assert_eq!(found, Some("2"));
}

#[test]
fn the_debug_text_of_a_verified_event_contains_neither_its_body_nor_a_secret() {
    let event = br#"{"id":"evt_1","type":"x","created_at":1,"data":{}}"#;
    let delivery = VerifiedEvent::new(
        Event::from_unverified_json(event).unwrap(),
        Bytes::from_static(event),
        "2026".into(),
        Arrival::now(),
    );

    let text = format!("{delivery:?}");

    assert!(text.contains("evt_1") && text.contains("2026"), "{text}");
    assert!(!text.contains("created_at\":"), "{text}");
}
