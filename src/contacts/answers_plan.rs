//! Which answers of a form are sent, and in which order, as pure functions.

use std::collections::BTreeMap;

use super::Contact;

/// The answers of a form, in the order given. Each topic is in it once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AnswerForm(Vec<(String, bool)>);

/// Why a form cannot be recorded. No answer of it was sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InvalidForm {
    pub(super) message: &'static str,
    /// The topic that makes it invalid.
    pub(super) topic: (String, bool),
    /// The answers for all other topics.
    pub(super) others: BTreeMap<String, bool>,
}

impl AnswerForm {
    /// Creates a form. The same answer twice counts once.
    ///
    /// # Errors
    ///
    /// If the form has two different answers for a topic.
    pub(super) fn new(
        answers: impl IntoIterator<Item = (String, bool)>,
    ) -> Result<Self, InvalidForm> {
        let (mut form, mut conflict) = (Vec::new(), None);
        let mut seen = BTreeMap::new();
        for (topic, answer) in answers {
            match seen.insert(topic.clone(), answer) {
                None => form.push((topic, answer)),
                Some(first) if first == answer => {}
                Some(_) => conflict = conflict.or(Some((topic, answer))),
            }
        }
        match conflict {
            None => Ok(Self(form)),
            Some(topic) => Err(Self(form).invalid(
                topic,
                "the form has two different answers for the same topic; nothing was sent",
            )),
        }
    }

    /// Returns the answer for each topic.
    pub(super) fn answers(&self) -> BTreeMap<String, bool> {
        self.0.iter().cloned().collect()
    }

    /// Decides what to send, given the contact.
    ///
    /// # Errors
    ///
    /// If the contact shows its topics, and one of the form is not among them.
    pub(super) fn plan(
        self,
        contact: &Contact,
        sends_unchanged: bool,
    ) -> Result<Plan, InvalidForm> {
        let shows_topics = contact.shows_topics();
        let is_unknown =
            |(topic, _): &&(String, bool)| shows_topics && !contact.topics.contains_key(topic);
        if let Some(unknown) = self.0.iter().find(is_unknown).cloned() {
            return Err(self.invalid(
                unknown,
                "the contact shows no topic of this name, so no answer was sent; check its spelling",
            ));
        }
        let is_shown = |(topic, answer): &(String, bool)| contact.topics.get(topic) == Some(answer);
        let (unchanged, changed): (Vec<_>, Vec<_>) = self.0.iter().cloned().partition(is_shown);
        let mut to_send = if sends_unchanged {
            self.0
        } else {
            changed.clone()
        };
        // Sorting is stable: opt-outs first, each kind in the order of the form.
        to_send.sort_by_key(|(_, answer)| *answer);
        Ok(Plan {
            to_send,
            changed: changed.into_iter().collect(),
            unchanged: unchanged.into_iter().collect(),
        })
    }

    fn invalid(self, topic: (String, bool), message: &'static str) -> InvalidForm {
        let mut others = self.answers();
        others.remove(&topic.0);
        InvalidForm {
            message,
            topic,
            others,
        }
    }
}

/// What is to be sent of a form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// All opt-outs, then all opt-ins, each in the order of the form.
    pub(super) to_send: Vec<(String, bool)>,
    /// The answers that differ from those shown.
    pub(super) changed: BTreeMap<String, bool>,
    /// The answers that were shown already.
    pub(super) unchanged: BTreeMap<String, bool>,
}

impl Plan {
    /// Returns the answers that are not sent because they were shown already.
    pub(super) fn not_to_send(&self) -> BTreeMap<String, bool> {
        let is_sent = |topic: &String| self.to_send.iter().any(|(sent, _)| sent == topic);
        let unchanged = self.unchanged.iter().filter(|(topic, _)| !is_sent(topic));
        unchanged
            .map(|(topic, answer)| (topic.clone(), *answer))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FORM: [(&str, bool); 6] = [
        ("yes-to-yes", true),
        ("no-to-yes", true),
        ("yes-to-no", false),
        ("no-to-no", false),
        ("2-no-to-yes", true),
        ("2-yes-to-no", false),
    ];

    fn form<const N: usize>(answers: [(&str, bool); N]) -> Result<AnswerForm, InvalidForm> {
        AnswerForm::new(answers.map(|(topic, answer)| (topic.to_owned(), answer)))
    }

    fn contact() -> Contact {
        let value = json!({"id": "c1", "email": "a@x.io", "unsubscribed": false, "created_at": 5, "topics": {
            "yes-to-yes": true, "no-to-yes": false, "yes-to-no": true, "no-to-no": false,
            "2-no-to-yes": false, "2-yes-to-no": true, "not-in-the-form": true}});
        serde_json::from_value(value).unwrap()
    }

    fn sent(plan: &Plan) -> Vec<&str> {
        plan.to_send
            .iter()
            .map(|(topic, _)| topic.as_str())
            .collect()
    }

    #[test]
    fn what_differs_is_sent_opt_outs_first_and_each_kind_in_the_order_of_the_form() {
        let plan = form(FORM).unwrap().plan(&contact(), false).unwrap();

        assert_eq!(
            sent(&plan),
            ["yes-to-no", "2-yes-to-no", "no-to-yes", "2-no-to-yes"]
        );
        assert_eq!(plan.changed, plan.to_send.iter().cloned().collect());
        let unchanged = BTreeMap::from([
            ("yes-to-yes".to_owned(), true),
            ("no-to-no".to_owned(), false),
        ]);
        assert_eq!(plan.unchanged, unchanged);
    }

    #[test]
    fn what_is_shown_already_is_sent_too_if_the_caller_says_so() {
        let plan = form(FORM).unwrap().plan(&contact(), true).unwrap();

        assert_eq!(
            sent(&plan),
            [
                "yes-to-no",
                "no-to-no",
                "2-yes-to-no",
                "yes-to-yes",
                "no-to-yes",
                "2-no-to-yes"
            ]
        );
        assert_eq!((plan.changed.len(), plan.unchanged.len()), (4, 2));
    }

    #[test]
    fn everything_is_sent_if_the_contact_does_not_show_its_topics() {
        let short = json!({"id": "c1", "email": "a@x.io", "unsubscribed": false, "created_at": 5});
        let short = serde_json::from_value(short).unwrap();

        let plan = form([("a", true), ("b", false)])
            .unwrap()
            .plan(&short, false)
            .unwrap();

        assert_eq!(sent(&plan), ["b", "a"]);
        assert!(plan.unchanged.is_empty());
    }

    #[test]
    fn a_topic_that_the_contact_does_not_show_is_invalid() {
        let answers = [("no-to-yes", true), ("typo", false), ("typo-2", false)];

        let invalid = form(answers).unwrap().plan(&contact(), false).unwrap_err();

        assert_eq!(invalid.topic, ("typo".to_owned(), false));
        let others = BTreeMap::from([("no-to-yes".to_owned(), true), ("typo-2".to_owned(), false)]);
        assert_eq!(invalid.others, others);
    }

    #[test]
    fn a_topic_may_occur_twice_only_with_the_same_answer() {
        assert_eq!(
            form([("a", true), ("b", true), ("a", true)]),
            form([("a", true), ("b", true)])
        );

        let invalid = form([("a", true), ("b", true), ("a", false)]).unwrap_err();

        assert_eq!(invalid.topic, ("a".to_owned(), false));
        assert_eq!(invalid.others, BTreeMap::from([("b".to_owned(), true)]));
    }
}
