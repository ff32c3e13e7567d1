//! The store in Redis beside two scripts that a program would have written by hand with the same guarantees, in rounds
//! that take turns, so that a busy machine slows both.

use audience::inbox::RedisStore;
use redis::Script;
use redis::aio::ConnectionManager;

use crate::claims;
use crate::deliveries::id_text;
use crate::load::{Load, repeat};
use crate::redis_server::Redis;

const ROUNDS: usize = 7;
const WAITING_CALLS: [u32; 4] = [1, 4, 16, 64];

/// Prints how many events a second both claim and complete.
pub(crate) async fn measure(server: &Redis) {
    let store = RedisStore::connect(server.url.as_str()).await.unwrap();
    let by_hand = ByHand::connect(&server.url).await;
    println!("## Redis beside scripts by hand\n");
    println!(
        "Medians of {ROUNDS} rounds that take turns. By hand: one script claims and one completes, with token, lease, \
         attempts, fingerprint and retention. It cannot accept or park an event.\n"
    );
    println!("| waiting calls | claimed and completed/s | by hand/s | ratio |\n|--:|--:|--:|--:|");
    for workers in WAITING_CALLS {
        let load = Load {
            workers,
            events: u32::MAX,
        };
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            server.flush().await.unwrap();
            rates[0].push(claims::rate(&store, load).await);
            server.flush().await.unwrap();
            rates[1].push(by_hand.rate(load).await);
        }
        let [ours, theirs] = rates.map(|mut rates| {
            rates.sort_unstable_by(f64::total_cmp);
            rates[ROUNDS / 2]
        });
        println!(
            "| {workers} | {ours:.0} | {theirs:.0} | **{:.2}** |",
            ours / theirs
        );
    }
    println!();
}

#[derive(Clone)]
struct ByHand {
    connection: ConnectionManager,
    claim: Script,
    complete: Script,
}

/// The entry: state, fingerprint, token, due, attempts.
const CLAIM: &str = "
    local text = redis.call('GET', KEYS[1])
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local attempts = 0
    if text then
      if text:sub(2, 17) ~= ARGV[2] then return -3 end
      if text:sub(1, 1) == 'd' then return -2 end
      local due
      due, attempts = text:match('^(%d+) (%d+)', 34)
      if tonumber(due) > now then
        return text:sub(18, 33) == ARGV[1] and tonumber(attempts) or -1
      end
    end
    attempts = attempts + 1
    local due = string.format('%.0f', now + ARGV[3])
    local lifetime = math.ceil((ARGV[3] + ARGV[4]) / 1000)
    redis.call('SET', KEYS[1], 'c' .. ARGV[2] .. ARGV[1] .. due .. ' ' .. attempts, 'PX', lifetime)
    return attempts";
const COMPLETE: &str = "
    local text = redis.call('GET', KEYS[1])
    if not text or text:sub(18, 33) ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], 'd' .. text:sub(2, 33), 'PX', math.ceil(ARGV[2] / 1000))
    return 1";

impl ByHand {
    async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        Self {
            connection: ConnectionManager::new(client).await.unwrap(),
            claim: Script::new(CLAIM),
            complete: Script::new(COMPLETE),
        }
    }

    async fn rate(&self, load: Load) -> f64 {
        load.rate(|each, end| {
            let this = self.clone();
            async move { repeat(each, end, || this.claim_and_complete()).await }
        })
        .await
    }

    async fn claim_and_complete(&self) {
        let mut connection = self.connection.clone();
        let key = format!("webhooks:main:{}", id_text());
        let token = fastrand::u128(..).to_be_bytes();
        let [lease, retention] = [claims::LEASE, claims::RETENTION].map(|time| time.as_micros());
        let [lease, retention] = [lease, retention].map(|micros| u64::try_from(micros).unwrap());
        let mut claim = self.claim.key(&key);
        let claim = claim.arg(&token).arg(&token).arg(lease).arg(retention);
        assert_eq!(claim.invoke_async(&mut connection).await, Ok(1));
        let mut complete = self.complete.key(&key);
        let complete = complete.arg(&token).arg(retention);
        assert_eq!(complete.invoke_async(&mut connection).await, Ok(1));
    }
}
