//! Create several contacts: `POST /contacts/batch` (section 4.2).

use serde_json::{Value, json};

use super::audience_state::AudienceState;
use super::contacts::apply;
use super::dialect::BatchMessage;
use super::json;
use super::message::Reply;
use super::raw_json::split_array;
use super::refusal::Refusal;
use super::request_body::CreateBody;

/// The number of entries in the longest batch (section 8).
const MAX_ENTRIES: usize = 100;

/// Applies each entry of a batch in order, and returns a result for each.
///
/// # Errors
///
/// - 422 `validation_error` if the body is not a JSON array;
/// - the status and slug that the dialect chooses if the batch has zero or more than 100 entries.
///
/// Then nothing is applied. An invalid entry does not refuse the batch: it fails by itself, even if it cannot be parsed.
pub(super) fn create_batch(
    state: &mut AudienceState,
    body: &[u8],
    now: i64,
) -> Result<Reply, Refusal> {
    let entries = split_array(body, MAX_ENTRIES).map_err(Refusal::invalid)?;
    let count = entries.len;
    if count == 0 || count > MAX_ENTRIES {
        let message = format!("a batch must have 1 to {MAX_ENTRIES} entries, not {count}");
        return Err(Refusal::batch(message, state.dialect().batch_refusal));
    }
    let mut quota_exceeded = None;
    let results: Vec<Value> = entries
        .first
        .into_iter()
        .map(|entry| apply_entry(state, entry, &mut quota_exceeded, now))
        .collect();
    Ok(Reply::json(200, &json!({ "data": results })))
}

/// Applies an entry and returns its result (section 2.5).
///
/// Once an entry exceeds the quota, every entry after it reports the same, even an invalid one (section 4.2).
fn apply_entry(
    state: &mut AudienceState,
    entry: &str,
    quota_exceeded: &mut Option<Refusal>,
    now: i64,
) -> Value {
    let sent = CreateBody::address_in(entry);
    let applied = match &*quota_exceeded {
        Some(refusal) => Err(refusal.clone()),
        None => json::parse(entry.as_bytes())
            .map_err(Refusal::invalid)
            .and_then(|body| Ok(apply(state, &body, now)?.1)),
    };
    // The address as it is stored, which may be another spelling than the one of this entry.
    let stored = state.contacts().find(&sent);
    let email = stored.map_or(sent, |contact| contact.email.clone());
    match applied {
        Ok(outcome) => json!({"email": email, "status": outcome.as_str()}),
        Err(refusal) => {
            let message = message_member(state.dialect().batch_message);
            let result = json!({"email": email, "status": refusal.code, message: refusal.message});
            if refusal.status == 402 {
                *quota_exceeded = Some(refusal);
            }
            result
        }
    }
}

/// Returns the name of the member that holds the message of a failed entry.
fn message_member(choice: BatchMessage) -> &'static str {
    match choice {
        BatchMessage::Message => "message",
        BatchMessage::Error => "error",
        BatchMessage::Detail => "detail",
        BatchMessage::Reason => "reason",
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::{BatchRefusal, Dialect};
    use super::super::testing::{Service, message, status_and_slug};
    use super::*;

    #[test]
    fn a_batch_is_applied_in_order_with_a_result_for_each_entry() {
        let mut service = Service::new();
        let batch = json!([
            {"email": "Ada@x.io", "properties": {"plan": "free"}},
            {"email": "ada@x.io", "properties": {"plan": "pro"}},
            {"email": "ada@x.io", "on_conflict": "skip"},
            {"email": "ada@x.io", "on_conflict": "error"},
            {"email": " nobody "},
            {"email": "bob@x.io", "name": "Bob"},
            7,
            {"email": "carol@x.io"},
        ]);

        let (status, response) = service.post("/contacts/batch", &batch);

        assert_eq!(status, 200);
        let results = response["data"].as_array().unwrap();
        let outcomes: Vec<(&str, &str, bool)> = results
            .iter()
            .map(|result| {
                let text = |name: &str| result[name].as_str().unwrap();
                (
                    text("email"),
                    text("status"),
                    result.get("message").is_some(),
                )
            })
            .collect();
        assert_eq!(
            outcomes,
            [
                ("ada@x.io", "created", false),
                ("ada@x.io", "updated", false),
                ("ada@x.io", "skipped", false),
                ("ada@x.io", "already_exists", true),
                (" nobody ", "validation_error", true),
                ("bob@x.io", "validation_error", true),
                ("", "validation_error", true),
                ("carol@x.io", "created", false),
            ]
        );
        let ada = service.audience.contact("ada@x.io").unwrap();
        assert_eq!(ada.properties.get("plan"), Some(&json!("pro")));
    }

    #[test]
    fn after_one_entry_exceeds_the_quota_every_later_entry_does() {
        let mut service = Service::new();
        service.audience.set_ceiling(Some(1));
        let batch = json!([
            {"email": "ada@x.io"},
            {"email": "bob@x.io"},
            {"email": "ada@x.io", "first_name": "Ada"},
            {"email": "nobody"},
        ]);

        let (status, response) = service.post("/contacts/batch", &batch);

        let statuses: Vec<&Value> = response["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| &r["status"])
            .collect();
        assert_eq!(status, 200);
        assert_eq!(
            statuses,
            [
                "created",
                "quota_exceeded",
                "quota_exceeded",
                "quota_exceeded"
            ]
        );
        assert_eq!(response["data"][3]["email"], json!("nobody"));
        assert_eq!(
            service.audience.contact("ada@x.io").unwrap().first_name,
            None
        );
    }

    #[test]
    fn a_batch_of_zero_or_101_entries_is_refused_and_not_applied() {
        let mut service = Service::new();
        let entries = |count: usize| -> Value {
            (0..count)
                .map(|n| json!({"email": format!("c{n}@x.io")}))
                .collect()
        };

        assert_eq!(
            status_and_slug(&service.post("/contacts/batch", &entries(0))),
            (422, "validation_error")
        );
        let refused = service.post("/contacts/batch", &entries(101));
        assert_eq!(
            message(&refused),
            "a batch must have 1 to 100 entries, not 101"
        );
        assert_eq!(
            status_and_slug(&service.post("/contacts/batch", &json!({}))),
            (422, "validation_error")
        );
        assert_eq!(service.audience.contact_count(), 0);
        assert_eq!(service.post("/contacts/batch", &entries(100)).0, 200);
        assert_eq!(service.audience.contact_count(), 100);
    }

    #[test]
    fn a_member_given_twice_makes_only_its_own_entry_invalid() {
        let mut service = Service::new();
        let batch =
            br#"[{"email": "A@x.io", "last_name": "", "last_name": ""}, {"email": "c@x.io"}]"#;

        let (status, response) = service.send("full", "POST", "/contacts/batch", batch);

        assert_eq!(status, 200);
        assert_eq!(
            response["data"][0],
            json!({"email": "a@x.io", "status": "validation_error", "message": "`last_name` is given twice"})
        );
        assert_eq!(response["data"][1]["status"], "created");
    }

    #[test]
    fn the_dialect_decides_the_batch_refusal_and_the_message_member() {
        let mut service = Service::with_dialect(Dialect {
            batch_message: BatchMessage::Detail,
            batch_refusal: BatchRefusal::BadRequest,
            ..Dialect::default()
        });

        let refused = service.post("/contacts/batch", &json!([]));
        let (_, response) = service.post("/contacts/batch", &json!([1]));

        assert_eq!(status_and_slug(&refused), (400, "bad_request"));
        assert_eq!(
            response["data"][0]["detail"],
            "a contact must be a JSON object, not 1"
        );
    }
}
