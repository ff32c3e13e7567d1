//! The part of a seed that only the start of a mock can choose: the keys and the dialect.

use serde_json::Value;

use super::dialect::Dialect;
use super::json::{Members, must_be};
use super::key::Keys;
use super::printable::printable;
use super::settings::Settings;

/// The keys and the dialect of a seed. What it does not name is `None` or missing.
#[derive(Clone, Default)]
pub(crate) struct SeedSettings {
    full_key: Option<String>,
    sending_key: Option<String>,
    /// The name of each field and of its choice. Both are known.
    choices: Vec<(String, String)>,
}

impl SeedSettings {
    /// Parses the members `keys` and `dialect` of a seed. No message shows a key.
    ///
    /// # Errors
    ///
    /// Fails if a member is unknown or invalid. The message names it.
    pub(super) fn parse(seed: &Members<'_>) -> Result<Self, String> {
        let (full_key, sending_key) = seed.optional("keys").map_or(Ok((None, None)), keys)?;
        Ok(Self {
            full_key,
            sending_key,
            choices: seed.optional("dialect").map_or(Ok(Vec::new()), choices)?,
        })
    }

    /// Returns these settings, completed with those of the seed before this one.
    #[must_use]
    pub(crate) fn or(&self, before: Self) -> Self {
        let mut choices = before.choices;
        choices.extend_from_slice(&self.choices);
        Self {
            full_key: self.full_key.clone().or(before.full_key),
            sending_key: self.sending_key.clone().or(before.sending_key),
            choices,
        }
    }

    /// Makes the settings that nobody made: the builder was told about the others.
    pub(crate) fn complete(self, settings: &mut Settings) {
        let dialect = self.applied_to(Dialect::default());
        settings.dialect.get_or_insert(dialect);
        settings.full_key = settings.full_key.take().or(self.full_key);
        settings.sending_key = settings.sending_key.take().or(self.sending_key);
    }

    /// Checks that these are the settings that a mock was started with.
    ///
    /// # Errors
    ///
    /// Fails if one of them differs. The message names the member, but no key.
    pub(super) fn check(&self, keys: &Keys, dialect: Dialect) -> Result<(), String> {
        let differs =
            |key: &Option<String>, actual: &str| key.as_deref().is_some_and(|key| key != actual);
        let member = if differs(&self.full_key, &keys.full) {
            "keys.full"
        } else if differs(&self.sending_key, &keys.sending) {
            "keys.sending"
        } else if self.applied_to(dialect) != dialect {
            "dialect"
        } else {
            return Ok(());
        };
        Err(format!(
            "`{member}` is not what the mock was started with; start the mock with this seed, or leave it out"
        ))
    }

    fn applied_to(&self, dialect: Dialect) -> Dialect {
        self.choices
            .iter()
            .fold(dialect, |dialect, (name, choice)| {
                dialect.choose(name, choice).unwrap_or(dialect)
            })
    }
}

type OptionalKeys = (Option<String>, Option<String>);

/// Returns the full-access and the sending-access key.
fn keys(value: &Value) -> Result<OptionalKeys, String> {
    if !value.is_object() {
        return Err("`keys` must be a JSON object".to_owned());
    }
    let members = Members::new(value, "`keys`", "keys.")?;
    members.reject_unknown(&["full", "sending"])?;
    let key = |name: &str| match members.optional(name) {
        None => Ok(None),
        Some(Value::String(key)) if !key.is_empty() => Ok(Some(key.clone())),
        Some(_) => Err(format!("`keys.{name}` must be a string that is not empty")),
    };
    Ok((key("full")?, key("sending")?))
}

/// Returns the names of the choices, each checked.
fn choices(value: &Value) -> Result<Vec<(String, String)>, String> {
    let Value::Object(members) = value else {
        return Err(must_be("dialect", "a JSON object", value));
    };
    let choices = members.iter().map(|(name, choice)| {
        let Value::String(choice) = choice else {
            let path = format!("dialect.{}", printable(name));
            return Err(must_be(&path, "the name of a choice", choice));
        };
        Dialect::default()
            .choose(name, choice)
            .map_err(|error| format!("`dialect`: {error}"))?;
        Ok((name.clone(), choice.clone()))
    });
    choices.collect()
}
