use crate::webhooks::EventId;

/// The keys of one endpoint. All begin with the same hash tag, so a cluster keeps them in one slot.
pub(super) struct Keys {
    tag: String,
}

impl Keys {
    /// Returns the keys of an endpoint. The prefix was escaped by [`escape_prefix`].
    pub(super) fn new(prefix: &str, endpoint: &str) -> Self {
        let endpoint = escape(endpoint, &['{', '}', '%', ':']);
        Self {
            tag: format!("{{{prefix}:{endpoint}}}"),
        }
    }

    /// Returns the keys that all scripts are given, in the order of `scripts/entry.lua`.
    pub(super) fn of_endpoint(&self) -> impl Iterator<Item = String> {
        let names = ["events", "bodies", "waiting", "claimed", "parked"];
        names.into_iter().map(|name| format!("{}:{name}", self.tag))
    }

    /// Returns the key of one event, which scripts about one event are given, too.
    pub(super) fn of_event(&self, id: &EventId) -> String {
        format!("{}:id:{id}", self.tag)
    }
}

/// Escapes what would end or begin a hash tag.
pub(super) fn escape_prefix(prefix: &str) -> String {
    escape(prefix, &['{', '}', '%'])
}

fn escape(text: &str, special: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match special.contains(&c) {
            true => escaped += &format!("%{:02X}", u32::from(c)),
            false => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn keys(prefix: &str, endpoint: &str, id: &str) -> Vec<String> {
        let keys = Keys::new(&escape_prefix(prefix), endpoint);
        let id = EventId::try_from(id).unwrap();
        let event = keys.of_event(&id);
        keys.of_endpoint().chain([event]).collect()
    }

    /// The part of a key that decides its slot, as Redis Cluster defines it.
    fn hash_tag(key: &str) -> &str {
        let Some((_, rest)) = key.split_once('{') else {
            return key;
        };
        match rest.split_once('}') {
            Some((tag, _)) if !tag.is_empty() => tag,
            _ => key,
        }
    }

    #[test]
    fn the_keys_of_an_endpoint_are_readable() {
        assert_eq!(
            keys("audience:inbox", "main", "evt_1"),
            [
                "{audience:inbox:main}:events",
                "{audience:inbox:main}:bodies",
                "{audience:inbox:main}:waiting",
                "{audience:inbox:main}:claimed",
                "{audience:inbox:main}:parked",
                "{audience:inbox:main}:id:evt_1",
            ]
        );
    }

    #[test]
    fn all_keys_of_an_endpoint_have_one_hash_tag_whatever_the_names_contain() {
        for prefix in ["", "}", "{", "{}", "a}b{c", "%", "p:"] {
            for endpoint in ["}", "{", "{}", "}{", ":", "a}:id:b", "é"] {
                let keys = keys(prefix, endpoint, "}:{x}");

                let tags: HashSet<_> = keys.iter().map(|key| hash_tag(key)).collect();

                assert_eq!(tags.len(), 1, "{keys:?}");
                assert!(!keys.iter().any(|key| hash_tag(key) == key), "{keys:?}");
            }
        }
    }

    #[test]
    fn no_two_names_have_the_same_key() {
        let names = [
            ("a", "b", "c"),
            ("a:b", "c", "d"),
            ("a", "b:c", "d"),
            ("a", "b%3Ac", "d"),
            ("a", "b}:id:c", "d"),
            ("a", "b", "c}:id:d"),
            ("a{", "b", "c"),
            ("a%7B", "b", "c"),
            ("", "a", "b"),
        ];

        let all: Vec<_> = names.map(|(p, e, id)| keys(p, e, id).remove(5)).into();

        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
