use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::future::ready;
use std::io;
use std::sync::Mutex;

use redis::{Pipeline, RedisFuture};

use super::*;
use crate::inbox::error::StoreErrorKind::{self, Full, Unavailable, Unusable};

#[cfg(not(feature = "inbox-redis-rustls"))]
#[tokio::test]
async fn an_address_that_requires_tls_is_refused_with_what_to_do() {
    let error = RedisStore::connect("rediss://localhost").await.unwrap_err();

    assert_eq!(error.kind(), Unusable);
    let printed = format!("{error:?}");
    assert!(printed.contains("inbox-redis-rustls"), "{printed}");
}

fn info(policy: &str) -> Value {
    Value::BulkString(
        format!("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:{policy}\r\nx:1\r\n").into_bytes(),
    )
}

#[test]
fn a_server_that_evicts_keys_is_refused_with_what_to_set() {
    let error = check_eviction(&info("volatile-lru"))
        .unwrap_err()
        .to_string();

    assert!(
        error.contains("volatile-lru") && error.contains("noeviction"),
        "{error}"
    );
    check_eviction(&info("noeviction")).unwrap();
}

#[test]
fn a_policy_is_found_in_every_form_of_a_response() {
    let Value::BulkString(bytes) = info("allkeys-lru") else {
        panic!("the response is text");
    };
    let text = String::from_utf8(bytes).unwrap();
    let verbatim = Value::VerbatimString {
        format: redis::VerbatimFormat::Text,
        text: text.clone(),
    };

    assert!(check_eviction(&Value::SimpleString(text)).is_err());
    assert!(check_eviction(&verbatim).is_err());
    assert!(check_eviction(&Value::Array(vec![verbatim])).is_err());
}

#[test]
fn one_server_of_a_cluster_that_evicts_keys_is_noticed() {
    let node = |policy| (Value::SimpleString("10.0.0.1:6379".into()), info(policy));

    assert!(check_eviction(&Value::Map(vec![node("noeviction"), node("allkeys-lfu")])).is_err());
    assert!(check_eviction(&Value::Map(vec![node("noeviction"), node("noeviction")])).is_ok());
}

#[test]
fn a_server_that_does_not_say_is_not_refused() {
    assert!(check_eviction(&Value::BulkString(b"# Memory\r\n".to_vec())).is_ok());
    assert!(check_eviction(&Value::Nil).is_ok());
}

/// The error that a client makes of this response.
fn response(line: &str) -> RedisError {
    let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
    value.extract_error().unwrap_err()
}

#[test]
fn a_response_of_the_server_tells_whether_a_later_call_may_succeed() {
    let cases: [(&str, StoreErrorKind); 25] = [
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            Full,
        ),
        (
            "ERR Error running script (call to f_0a1b): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.",
            Full,
        ),
        (
            "ERR Error running script (call to f_0a1b): @user_script:9: @user_script: 9: -READONLY You can't write against a read only replica.",
            Unavailable,
        ),
        (
            "LOADING Redis is loading the dataset in memory",
            Unavailable,
        ),
        ("CLUSTERDOWN The cluster is down", Unavailable),
        ("CLUSTERDOWN Hash slot not served", Unavailable),
        (
            "READONLY You can't write against a read only replica.",
            Unavailable,
        ),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            Unavailable,
        ),
        ("MASTERDOWN Link with MASTER is down", Unavailable),
        ("BUSY Redis is busy running a script.", Unavailable),
        (
            "MISCONF Redis is configured to save RDB snapshots",
            Unavailable,
        ),
        ("NOREPLICAS Not enough good replicas to write.", Unavailable),
        ("NOSCRIPT No matching script.", Unavailable),
        ("ASK 3999 127.0.0.1:6381", Unavailable),
        ("ERR max number of clients reached", Unavailable),
        ("SOMETHINGNEW that no client knows", Unavailable),
        ("NOAUTH Authentication required.", Unusable),
        ("WRONGPASS invalid username-password pair", Unusable),
        ("NOPERM this user has no permissions", Unusable),
        ("NOPERM No permissions to access a key: -OOM 1", Unusable),
        ("ERR unknown command 'EVALSHA'", Unusable),
        (
            "CROSSSLOT Keys in request don't hash to the same slot",
            Unusable,
        ),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            Unusable,
        ),
        ("DENIED Redis is running in protected mode", Unusable),
        ("MOVED 3999 127.0.0.1:6381", Unusable),
    ];
    for (line, kind) in cases {
        assert_eq!(store_error(response(line)).kind(), kind, "{line}");
    }
}

#[test]
fn a_connection_that_fails_may_succeed_later() {
    for kind in [
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::BrokenPipe,
        io::ErrorKind::TimedOut,
        io::ErrorKind::UnexpectedEof,
    ] {
        let error = RedisError::from(io::Error::from(kind));

        assert_eq!(store_error(error).kind(), Unavailable, "{kind}");
    }
}

#[cfg(feature = "inbox-redis-rustls")]
#[test]
fn a_certificate_that_is_not_trusted_is_no_outage() {
    let refused = rustls::Error::General("it is not trusted".to_owned());

    let error = RedisError::from(io::Error::other(refused));

    assert_eq!(store_error(error).kind(), Unusable);
}

/// A server that returns these responses in turn.
#[derive(Clone)]
struct Server {
    responses: Arc<Mutex<VecDeque<RedisResult<Value>>>>,
    commands: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Server {
    fn new(responses: impl IntoIterator<Item = RedisResult<Value>>) -> Self {
        Self {
            responses: Arc::new(Mutex::new(responses.into_iter().collect())),
            commands: Arc::default(),
        }
    }
}

impl ConnectionLike for Server {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let args = command.args_iter().map(|arg| match arg {
            Arg::Simple(arg) => String::from_utf8_lossy(arg).into_owned(),
            _ => panic!("only a command that scans has a cursor"),
        });
        self.commands.lock().unwrap().push(args.collect());
        let response = self.responses.lock().unwrap().pop_front();
        Box::pin(ready(response.expect("another command is not expected")))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("each call is one command")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

async fn replay(server: &Server) -> Result<bool, StoreError> {
    let id = EventId::try_from("evt_1").unwrap();
    let store = RedisStore::new(server.clone());
    store.replay(EventKey::new("main", &id)).await
}

#[tokio::test]
async fn a_script_that_the_server_does_not_know_is_sent_in_full() {
    let server = Server::new([
        Err(response("NOSCRIPT No matching script.")),
        Ok(Value::Int(1)),
    ]);

    let replayed = replay(&server).await.unwrap();

    assert!(replayed);
    let commands = server.commands.lock().unwrap();
    let [known, full] = &commands[..] else {
        panic!("{commands:?}");
    };
    assert_eq!(known[..2], ["EVALSHA", &REPLAY.hash]);
    assert_eq!(full[..2], ["EVAL", REPLAY.code]);
    assert_eq!(known[2..], full[2..]);
}

#[tokio::test]
async fn a_script_that_the_server_refuses_to_run_is_not_sent_again() {
    let server = Server::new([Err(response("BUSY Redis is busy running a script."))]);

    let error = replay(&server).await.unwrap_err();

    assert_eq!(error.kind(), Unavailable);
    assert_eq!(server.commands.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_purge_deletes_nothing_and_fails_if_the_server_evicts_keys_or_is_down() {
    for (info, expected) in [
        (Ok(info("noeviction")), Ok(0)),
        (Ok(info("allkeys-lru")), Err(Unusable)),
        (Err(response("NOPERM this user has no permissions")), Ok(0)),
        (Err(response("ERR unknown command 'INFO'")), Ok(0)),
        (Err(response("LOADING Redis is loading")), Err(Unavailable)),
    ] {
        let store = RedisStore::new(Server::new([info]));

        let purged = store.purge(10).await;

        assert_eq!(purged.map_err(|error| error.kind()), expected);
    }
}

#[test]
fn a_server_of_a_cluster_is_told_with_what_to_use_instead() {
    let error = store_error(response("MOVED 3999 127.0.0.1:6381"));

    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("cluster connection"), "{cause}");
}

fn keys(prefix: &str, endpoint: &str, id: &str) -> Vec<String> {
    let keys = Keys::new(&escape_prefix(prefix), endpoint);
    let id = EventId::try_from(id).unwrap();
    let event = keys.of_event(&id);
    keys.of_endpoint().into_iter().chain([event]).collect()
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
            "{audience:inbox:main}:claimed",
            "{audience:inbox:main}:waiting",
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
