use std::borrow::Cow;

use redis::Value;

/// A server that deletes what it was told to keep.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server's maxmemory-policy is {policy}, which deletes remembered events when memory runs short: set it to noeviction"
)]
pub(super) struct EvictsKeys {
    policy: String,
}

/// Reads the response to `INFO memory`, of one server or of all servers of a cluster.
pub(super) fn check(info: &Value) -> Result<(), EvictsKeys> {
    let mut policies = texts(info).into_iter().filter_map(|text| {
        let policy = text
            .lines()
            .find_map(|line| line.strip_prefix("maxmemory_policy:"))?;
        Some(policy.trim().to_owned())
    });
    match policies.find(|policy| policy != "noeviction") {
        Some(policy) => Err(EvictsKeys { policy }),
        None => Ok(()),
    }
}

fn texts(value: &Value) -> Vec<Cow<'_, str>> {
    match value {
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(bytes)],
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => vec![text.into()],
        Value::Map(nodes) => nodes.iter().flat_map(|(_, info)| texts(info)).collect(),
        Value::Array(nodes) => nodes.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(policy: &str) -> Value {
        Value::BulkString(
            format!("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:{policy}\r\nx:1\r\n").into_bytes(),
        )
    }

    #[test]
    fn a_server_that_evicts_keys_is_refused_with_what_to_set() {
        let error = check(&info("volatile-lru")).unwrap_err().to_string();

        assert!(
            error.contains("volatile-lru") && error.contains("noeviction"),
            "{error}"
        );
        check(&info("noeviction")).unwrap();
    }

    #[test]
    fn one_server_of_a_cluster_that_evicts_keys_is_noticed() {
        let node = |policy| (Value::SimpleString("10.0.0.1:6379".into()), info(policy));

        assert!(check(&Value::Map(vec![node("noeviction"), node("allkeys-lfu")])).is_err());
        assert!(check(&Value::Map(vec![node("noeviction"), node("noeviction")])).is_ok());
    }

    #[test]
    fn a_server_that_does_not_say_is_not_refused() {
        assert!(check(&Value::BulkString(b"# Memory\r\n".to_vec())).is_ok());
        assert!(check(&Value::Nil).is_ok());
    }
}
