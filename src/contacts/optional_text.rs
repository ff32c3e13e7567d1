//! Reads `""` and `null` as `None`, and writes `None` as `""`. Use with `#[serde(default, with = "optional_text")]`,
//! so that a missing member is `None` too.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<S: Serializer, T: Serialize>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(serializer),
        None => serializer.serialize_str(""),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>, T: From<String>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(T::from))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Named {
        #[serde(default, with = "super")]
        name: Option<String>,
    }

    #[test]
    fn a_missing_null_or_empty_text_is_none_and_none_is_written_as_empty_text() {
        for absent in [json!({}), json!({"name": null}), json!({"name": ""})] {
            let named: Named = serde_json::from_value(absent).unwrap();

            assert_eq!(named.name, None);
            assert_eq!(serde_json::to_value(named).unwrap(), json!({"name": ""}));
        }
    }
}
