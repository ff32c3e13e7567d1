-- $1 endpoint, $2 the id before the first one, $3 limit, $4 'parked'.
SELECT event_id, body, attempts, reason, extract(epoch FROM clock_timestamp() - parked_at)::float8 AS parked_for
FROM audience_inbox
WHERE endpoint = $1::text AND parked_at IS NOT NULL AND event_id > $2::text AND $4::text = 'parked'
ORDER BY event_id
LIMIT $3::bigint
