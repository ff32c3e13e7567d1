//! Batches (section 4.2): each entry by itself, in order, until the ceiling is crossed.

use serde_json::{Value, json};

use super::audience::{Audience, reply};
use super::dialect::BatchMessage;
use super::json::{self, Strict};
use super::message::Reply;
use super::reading::Entry;
use super::refusal::Refusal;

const MOST_ENTRIES: usize = 100;

impl Audience {
    pub(super) fn create_batch(&mut self, body: &[u8], now: i64) -> Result<Reply, Refusal> {
        let entries = json::array(body).map_err(Refusal::invalid)?;
        if entries.is_empty() || entries.len() > MOST_ENTRIES {
            let found = entries.len();
            let message = format!("a batch has 1 to {MOST_ENTRIES} entries, not {found}");
            return Err(Refusal::batch(message, self.dialect.batch_refusal));
        }
        let mut over_quota = None;
        let results: Vec<Value> = entries
            .into_iter()
            .map(|entry| self.batch_result(entry, &mut over_quota, now))
            .collect();
        Ok(reply(200, &json!({ "data": results })))
    }

    /// Once an entry is over the ceiling, every entry after it is, whatever it says (section 4.2).
    fn batch_result(&mut self, entry: Strict, over_quota: &mut Option<Refusal>, now: i64) -> Value {
        let email = Entry::address_of(&entry.value);
        let applied = match &*over_quota {
            Some(refusal) => Err(refusal.clone()),
            None => entry
                .checked()
                .map_err(Refusal::invalid)
                .and_then(|body| Ok(self.apply(&body, now)?.1)),
        };
        match applied {
            Ok(outcome) => json!({"email": email, "status": outcome.as_str()}),
            Err(refusal) => {
                let message = match self.dialect.batch_message {
                    BatchMessage::Message => "message",
                    BatchMessage::Error => "error",
                    BatchMessage::Detail => "detail",
                    BatchMessage::Reason => "reason",
                };
                let result =
                    json!({"email": email, "status": refusal.code, message: refusal.message});
                if refusal.status == 402 {
                    *over_quota = Some(refusal);
                }
                result
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::{BatchRefusal, Dialect};
    use super::super::testing::{Service, message, slug};
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

        let (status, answer) = service.post("/contacts/batch", &batch);

        assert_eq!(status, 200);
        let results = answer["data"].as_array().unwrap();
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
    fn after_one_entry_over_the_ceiling_every_entry_is() {
        let mut service = Service::new();
        service.audience.set_ceiling(Some(1));
        let batch = json!([
            {"email": "ada@x.io"},
            {"email": "bob@x.io"},
            {"email": "ada@x.io", "first_name": "Ada"},
            {"email": "nobody"},
        ]);

        let (status, answer) = service.post("/contacts/batch", &batch);

        let statuses: Vec<&Value> = answer["data"]
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
        assert_eq!(answer["data"][3]["email"], json!("nobody"));
        assert_eq!(
            service.audience.contact("ada@x.io").unwrap().first_name,
            None
        );
    }

    #[test]
    fn a_batch_of_none_or_too_many_is_refused_and_nothing_of_it_applied() {
        let mut service = Service::new();
        let entries = |count: usize| -> Value {
            (0..count)
                .map(|n| json!({"email": format!("c{n}@x.io")}))
                .collect()
        };

        assert_eq!(
            slug(&service.post("/contacts/batch", &entries(0))),
            (422, "validation_error")
        );
        let refused = service.post("/contacts/batch", &entries(101));
        assert_eq!(message(&refused), "a batch has 1 to 100 entries, not 101");
        assert_eq!(
            slug(&service.post("/contacts/batch", &json!({}))),
            (422, "validation_error")
        );
        assert_eq!(service.audience.contact_count(), 0);
        assert_eq!(service.post("/contacts/batch", &entries(100)).0, 200);
        assert_eq!(service.audience.contact_count(), 100);
    }

    #[test]
    fn a_member_given_twice_condemns_its_entry_alone() {
        let mut service = Service::new();
        let batch =
            br#"[{"email": "A@x.io", "last_name": "", "last_name": ""}, {"email": "c@x.io"}]"#;

        let (status, answer) = service.send("full", "POST", "/contacts/batch", batch);

        assert_eq!(status, 200);
        assert_eq!(
            answer["data"][0],
            json!({"email": "a@x.io", "status": "validation_error", "message": "`last_name` is given twice"})
        );
        assert_eq!(answer["data"][1]["status"], "created");
    }

    #[test]
    fn a_dialect_decides_how_a_batch_is_refused_and_where_messages_stand() {
        let mut service = Service::speaking(Dialect {
            batch_message: BatchMessage::Detail,
            batch_refusal: BatchRefusal::BadRequest,
            ..Dialect::default()
        });

        let refused = service.post("/contacts/batch", &json!([]));
        let (_, answer) = service.post("/contacts/batch", &json!([1]));

        assert_eq!(slug(&refused), (400, "bad_request"));
        assert_eq!(
            answer["data"][0]["detail"],
            "a contact must be a JSON object, not 1"
        );
    }
}
