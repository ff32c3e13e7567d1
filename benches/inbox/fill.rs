//! Remembers done events, whose ids are as random as those of real events.

use audience::inbox::rusqlite::Connection;

use crate::by_hand::ByHand;
use crate::claims::claim_and_complete;
use crate::place::{AnyStore, Place};
use crate::postgres_server;

/// How many keys one script writes.
const REDIS_PORTION: u32 = 10_000;

/// Fills a place, without the calls of a store where its database can do that faster.
pub(crate) async fn remember(place: &Place, ids: u32) {
    match (&place.store, &place.by_hand) {
        (AnyStore::Memory(store), _) => {
            for _ in 0..ids {
                claim_and_complete(store).await;
            }
        }
        (_, ByHand::Sqlite { file, .. }) => {
            let connection = Connection::open(file).unwrap();
            for statement in SQLITE {
                connection.execute(statement, [ids]).unwrap();
            }
        }
        (_, ByHand::Postgres { url }) => {
            let client = postgres_server::connect(url).await.unwrap();
            let fill = POSTGRES.replace("$1", &ids.to_string());
            client.batch_execute(&fill).await.unwrap();
            let vacuum = "VACUUM ANALYZE audience_inbox";
            client.batch_execute(vacuum).await.unwrap();
            client.batch_execute("CHECKPOINT").await.unwrap();
        }
        (_, ByHand::Redis { url }) => {
            let client = redis::Client::open(url.as_str()).unwrap();
            let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connection.await.unwrap();
            for first in (0..ids).step_by(REDIS_PORTION as usize) {
                let last = (first + REDIS_PORTION).min(ids);
                let script = redis::Script::new(REDIS);
                let mut call = script.prepare_invoke();
                let filled = call.arg(first).arg(last).invoke_async(&mut connection);
                let () = filled.await.unwrap();
            }
        }
        (_, ByHand::Memory(_)) => {}
    }
    place.by_hand.prepare(ids).await;
}

// As the store would: the ids of each period are closed but for the newest.
const SQLITE: [&str; 2] = [
    "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
    INSERT INTO audience_inbox_done (period, hash, token, fingerprint, forget_at)
    SELECT 1 + n / 65536, randomblob(16), randomblob(8), randomblob(8), (unixepoch() + 200000) * 1000 + n
    FROM n WHERE n <= ?1",
    "INSERT INTO audience_inbox_period (number, began, first_forget, closed)
    SELECT period, unixepoch() * 1000, min(forget_at), iif(period <= ?1 / 65536, random(), NULL)
    FROM audience_inbox_done GROUP BY period",
];

const POSTGRES: &str = "INSERT INTO audience_inbox
        (endpoint, event_id, state, token, attempts, due, forget_at, purge_from, fingerprint)
    SELECT 'main', 'evt_' || left(md5(n::text), 24), 'done', decode(md5('t' || n), 'hex'), 1, now(),
        now() + interval '71 h', now() + interval '70 h' + n * interval '1 ms', decode(md5('f' || n), 'hex')
    FROM generate_series(1, $1) n";

const REDIS: &str = "for n = ARGV[1], ARGV[2] - 1 do
    local hash = redis.sha1hex(n)
    redis.call('SET', '{audience:inbox:main}:id:evt_' .. hash:sub(1, 24), 'df' .. hash:sub(1, 32), 'PX', 259200000)
end";
