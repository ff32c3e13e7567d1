use std::time::UNIX_EPOCH;

use http::HeaderValue;

use super::*;

fn refusal(status: u16, body: &'static str) -> Error {
    refusal_of(&Target::Contact, status, body)
}

fn refusal_of(target: &Target, status: u16, body: &'static str) -> Error {
    let response = http::Response::builder().status(status);
    let response = response.body(Bytes::from_static(body.as_bytes())).unwrap();
    Error::from_response(response, &Method::POST, target, None, None)
}

#[cfg(any(feature = "import", feature = "unsubscribe"))]
#[test]
fn a_text_of_more_than_500_characters_is_shortened() {
    let (long, longer) = ("é".repeat(500), "é".repeat(501));

    assert_eq!(shortened(&long), long);
    assert_eq!(shortened(&longer), long + "…");
}

#[test]
fn an_explanation_advises_a_retry_only_if_it_may_help_and_never_of_an_opt_in() {
    let refused = |status| Error::refused(ApiError::new(status, None, "ada@example.com"));

    let down = refused(StatusCode::SERVICE_UNAVAILABLE).explanation();
    assert_eq!(
        down,
        "the service is not available (503); the change may have been made or not: check before you repeat it; try again \
         later"
    );
    let opt_in = refused(StatusCode::TOO_MANY_REQUESTS).at("subscribe");
    let opt_in = opt_in.explanation();
    assert!(opt_in.ends_with("ask the person again before you repeat an opt-in"));
    let confirmed = refused(StatusCode::SERVICE_UNAVAILABLE).at("confirm_opt_in");
    assert!(
        confirmed
            .explanation()
            .ends_with("look at the contact; ask the person again before you repeat an opt-in")
    );
    let key = refused(StatusCode::UNAUTHORIZED).explanation();
    assert!(key.starts_with("the service does not accept the key"));
    for text in [opt_in, key] {
        assert!(!text.contains("try again") && !text.contains('@'), "{text}");
    }
    let changed = refused(StatusCode::SERVICE_UNAVAILABLE).at("change_address");
    assert!(changed.explanation().contains("it is safe to repeat it"));
    let opt_out = refused(StatusCode::SERVICE_UNAVAILABLE).repeatable(true);
    let opt_out = opt_out.explanation();
    assert!(
        opt_out.contains("or not, and it is safe to repeat it; try again later"),
        "{opt_out}"
    );
    let setting = Error::config("the base URL is invalid").explanation();
    assert_eq!(setting, "the base URL is invalid");
}

#[test]
fn an_explanation_of_an_opt_in_asks_the_person_again_unless_a_correction_has_to_come_first() {
    let again = "; ask the person again before you repeat an opt-in";
    let unreadable = Error::decode("the response is not JSON at line 1 column 1");
    let unreadable = unreadable.with_outcome(Outcome::Unknown).at("subscribe");
    let invalid = Error::input("the address is empty").at("subscribe");

    let text = unreadable.explanation();

    assert!(!unreadable.is_retryable());
    assert!(text.ends_with(again), "{text}");
    assert_eq!(invalid.explanation(), "the address is empty");
}

#[test]
fn an_explanation_says_that_a_mail_was_not_sent_only_if_a_retry_may_help() {
    let refused = |status| {
        let refused = Error::refused(ApiError::new(status, None, ""));
        refused.at("send_email").explanation()
    };

    let limited = refused(StatusCode::TOO_MANY_REQUESTS);
    let key = refused(StatusCode::UNAUTHORIZED);

    assert!(limited.contains("; the mail was not sent"), "{limited}");
    assert!(!key.contains("; the mail was not sent"), "{key}");
}

#[test]
fn an_explanation_says_what_to_do_about_a_refusal_without_a_slug_and_an_unreadable_response() {
    let unreadable = |outcome| {
        let error = Error::decode("the response is not JSON at line 1 column 1");
        error.with_outcome(outcome).explanation()
    };
    let source = Error::input("x");
    let not_read = Error::not_read_back(None, Bytes::new(), source).explanation();

    assert!(
        refusal(422, "")
            .explanation()
            .contains("look at the contact")
    );
    assert!(refusal(402, "").explanation().contains("look at the plan"));
    let read = unreadable(Outcome::Unchanged);
    assert_eq!(
        read,
        "the response of the service cannot be used (the response is not JSON at line 1 column 1); tell your developers"
    );
    let write = unreadable(Outcome::Applied);
    assert!(
        write.ends_with("; the change was made, so do not repeat it"),
        "{write}"
    );
    assert!(not_read.starts_with("the change was made, but the response has no contact"));
    assert!(not_read.ends_with("; do not repeat it"), "{not_read}");
}

#[test]
fn a_slug_takes_precedence_over_the_status() {
    assert!(!refusal(404, r#"{"code": "no_such_route"}"#).is_not_found());
    assert!(refusal(400, r#"{"code": "not_found"}"#).is_not_found());
}

#[test]
fn a_404_409_or_402_with_an_object_without_a_slug_counts_as_the_documented_refusal() {
    let strict = Target::NewContact { must_be_new: true };

    assert!(refusal(404, "{}").is_not_found());
    assert!(refusal_of(&strict, 409, r#"{"code": 409}"#).is_already_exists());
    assert!(refusal_of(&Target::Batch, 402, " {} ").is_quota_exceeded());
}

#[test]
fn a_404_409_or_402_with_another_body_does_not_count() {
    let strict = Target::NewContact { must_be_new: true };
    for body in ["", "<html>", "[]", "{", "null"] {
        assert!(!refusal(404, body).is_not_found());
        assert!(!refusal_of(&strict, 409, body).is_already_exists());
        assert!(!refusal_of(&strict, 402, body).is_quota_exceeded());
    }
}

#[test]
fn a_visitor_reads_404_409_or_422_only_if_they_are_the_reason() {
    let status = |status, slug| {
        let status = StatusCode::from_u16(status).unwrap();
        let code = Some(ErrorCode::from_slug(slug)).filter(|code| !code.is_empty());
        Error::refused(ApiError::new(status, code, ""))
            .visitor_status()
            .as_u16()
    };
    let missing = |thing| {
        Error::refused(ApiError::missing(thing))
            .visitor_status()
            .as_u16()
    };

    assert_eq!(missing(Missing::Contact), 404);
    assert_eq!(missing(Missing::Topic), 500);
    assert_eq!(missing(Missing::Segment), 500);
    assert_eq!(status(404, "not_found"), 500, "contact or topic");
    assert_eq!(status(422, "failed_precondition"), 409);
    assert_eq!(status(409, "already_exists"), 409);
    assert_eq!(status(422, "validation_error"), 422);
    assert_eq!(status(429, ""), 503);
    assert_eq!(status(502, ""), 503);
    assert_eq!(status(402, "quota_exceeded"), 500);
    assert_eq!(status(401, ""), 500);
    assert_eq!(Error::input("no address").visitor_status().as_u16(), 500);
}

#[test]
fn a_422_or_403_without_a_slug_is_never_guessed() {
    assert!(!refusal(422, "").is_complaint_locked());
    assert!(!refusal(422, "").is_validation_error());
    assert!(!refusal(403, "").is_key_not_permitted());
}

#[test]
fn the_least_certain_attempt_decides_the_outcome() {
    assert_eq!(refusal(422, "").outcome(), Outcome::Refused);
    assert_eq!(refusal(503, "").outcome(), Outcome::Unknown);
    assert_eq!(
        refusal(422, "").after(2, Outcome::Unknown).outcome(),
        Outcome::Unknown
    );
    assert_eq!(
        Error::input("x").after(1, Outcome::NotSent).outcome(),
        Outcome::NotSent
    );
}

#[test]
fn no_text_of_a_body_is_printed() {
    let error = refusal(
        422,
        r#"{"code": "ada@example.com", "message": "ada@example.com is taken"}"#,
    );

    let printed = format!("{error} {error:?} {:?}", error.api());

    assert!(!printed.contains("ada"), "{printed}");
    assert_eq!(
        error.api().unwrap().message(),
        Some("ada@example.com is taken")
    );
}

#[test]
fn a_refusal_that_was_created_is_like_one_that_was_received() {
    let refusal = ApiError::new(
        StatusCode::CONFLICT,
        ErrorCode::AlreadyExists,
        "a@x.io is there",
    );
    assert_eq!(refusal.message(), Some("a@x.io is there"));

    let error = Error::refused(refusal);

    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Api, 1));
    assert!(error.is_already_exists() && !error.is_retryable());
    assert_eq!(error.outcome(), Outcome::Refused);
    assert_eq!(
        error.to_string(),
        "the service responded 409 already_exists"
    );
}

#[test]
fn a_refusal_without_a_slug_and_a_message_has_neither() {
    let refusal = ApiError::new(StatusCode::NOT_FOUND, None, "");

    assert_eq!((refusal.code(), refusal.message()), (None, None));
    assert!(Error::refused(refusal).is_not_found());
}

#[test]
fn a_kind_is_written_as_one_lowercase_word() {
    assert_eq!(ErrorKind::Timeout.to_string(), "timeout");
    assert_eq!(format!("{:>7}|", ErrorKind::Api), "    api|");
}

#[test]
fn only_a_101_a_408_a_5xx_or_a_303_to_a_write_leaves_the_outcome_unknown() {
    for (status, outcome) in [
        (101, Outcome::Unknown),
        (302, Outcome::Refused),
        (303, Outcome::Unknown),
        (408, Outcome::Unknown),
        (422, Outcome::Refused),
        (429, Outcome::Refused),
        (500, Outcome::Unknown),
        (503, Outcome::Unknown),
    ] {
        let status = StatusCode::from_u16(status).unwrap();

        assert_eq!(
            Outcome::from_status(status, &Method::PATCH),
            outcome,
            "{status}"
        );
    }
    let read = Outcome::from_status(StatusCode::SEE_OTHER, &Method::GET);
    assert_eq!(read, Outcome::Refused);
}

#[test]
fn a_slug_is_read_without_regard_to_case_and_with_hyphens() {
    for text in ["not_found", "not-found", "NOT_FOUND", "Not-Found"] {
        assert_eq!(ErrorCode::from_slug(text), ErrorCode::NotFound);
    }
    assert_eq!(ErrorCode::from_slug("On-Holiday").as_str(), "On-Holiday");
}

#[test]
fn the_known_slugs_are_those_of_section_7() {
    let slugs = ErrorCode::KNOWN.iter().map(ErrorCode::as_str);

    assert!(slugs.eq([
        "validation_error",
        "already_exists",
        "quota_exceeded",
        "key_not_permitted",
        "not_found",
        "failed_precondition",
    ]));
}

fn unprocessable(body: &str) -> ErrorBody {
    ErrorBody::read(StatusCode::UNPROCESSABLE_ENTITY, body.as_bytes())
}

#[test]
fn slug_and_message_are_found_in_every_common_shape() {
    for body in [
        r#"{"code": "not_found", "message": "m"}"#,
        r#"{"slug": "not_found", "message": "m"}"#,
        r#"{"error": "not_found", "message": "m"}"#,
        r#"{"error": {"code": "not_found", "message": "m"}}"#,
        r#"{"error": {"slug": "not_found", "message": "m"}}"#,
        r#"{"error": {"type": "not_found", "message": "m"}}"#,
        r#"{"error": {"name": "not_found", "detail": "m"}}"#,
        r#"{"type": "not_found", "detail": "m"}"#,
        r#"{"name": "not_found", "message": "m", "statusCode": 422}"#,
        r#"{"code": 422, "error": {"code": "not_found"}, "message": "m"}"#,
        r#"{"error_code": "not_found", "message": "m"}"#,
        r#"{"status": "not_found", "message": "m"}"#,
        r#"{"status": "error", "code": "NOT_FOUND", "message": "m"}"#,
        r#"{"errors": [{"code": "not_found", "message": "m"}]}"#,
        r#"{"errors": ["x", {"code": "other"}, {"status": "404", "code": "not-found", "detail": "m"}]}"#,
        r#"{"detail": {"code": "not_found", "message": "m"}}"#,
        r#"{"error": {"error": "not_found", "message": "m"}}"#,
        r#"{"error": {"code": 404, "status": "NOT_FOUND", "message": "m"}}"#,
    ] {
        let read = unprocessable(body);

        assert_eq!(read.code, Some(ErrorCode::NotFound), "{body}");
        assert_eq!(read.message.as_deref(), Some("m"), "{body}");
    }
}

#[test]
fn no_code_is_read_from_a_body_without_a_slug() {
    for body in [
        r#"{"code": "422"}"#,
        r#"{"error": "Unprocessable Content", "message": "m"}"#,
        "",
        "null",
        "[]",
        "<html>422</html>",
        "{}",
        r#"{"code": 422}"#,
        r#"{"code": ""}"#,
        "{\"code",
        r#"{"status": "error", "errors": []}"#,
        r#"{"code": "Failed", "errors": [[], {}]}"#,
    ] {
        assert_eq!(unprocessable(body).code, None, "{body}");
    }
}

#[test]
fn a_body_over_1_mib_is_not_searched() {
    let object = r#"{"code": "not_found", "message": "no topic 'news'"}"#;
    let body = |length: usize| object.to_owned() + &" ".repeat(length - object.len());
    let answer = Target::Answer {
        address: "ada@x.io".to_owned(),
        topic: "news".to_owned(),
    };

    assert_eq!(
        unprocessable(&body(LONGEST)).code,
        Some(ErrorCode::NotFound)
    );
    assert_eq!(unprocessable(&body(LONGEST + 1)), ErrorBody::default());
    let missing = |length| answer.missing(body(length).as_bytes());
    assert_eq!(missing(LONGEST), Some(Missing::Topic));
    assert_eq!(missing(LONGEST + 1), None);
}

#[test]
fn a_sentence_or_a_page_is_not_a_slug() {
    let sentence = unprocessable(r#"{"error": "Not Found"}"#);
    let problem = unprocessable(
        r#"{"type": "https://example.com/no-contact.html", "title": "No such contact"}"#,
    );

    assert_eq!(
        (sentence.code, sentence.message.as_deref()),
        (None, Some("Not Found"))
    );
    assert_eq!(
        (problem.code, problem.message.as_deref()),
        (None, Some("No such contact"))
    );
}

#[test]
fn retry_after_is_parsed_in_seconds_and_as_a_date() {
    let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
    let parse = |text: &'static str| {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
        retry_after(&headers, now).map(|wait| wait.as_secs())
    };

    assert_eq!(parse("120"), Some(120));
    assert_eq!(parse("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
    assert_eq!(parse("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0));
    assert_eq!(parse("-1"), None);
    assert_eq!(parse("soon"), None);
    assert_eq!(parse("+1"), None);
    assert_eq!(parse(""), None);
    assert_eq!(parse("99999999999999999999999"), Some(u64::MAX));
    assert_eq!((parse("1.5"), parse("30.0")), (Some(2), Some(30)));
    assert_eq!(
        (parse("1."), parse(".5"), parse("1.5.2")),
        (None, None, None)
    );
}
