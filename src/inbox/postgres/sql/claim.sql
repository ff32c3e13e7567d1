-- Claims an event that has no entry.
-- $1 endpoint, $2 event id, $3 token, $4 lease and $5 retention in seconds, $6 fingerprint or NULL,
-- $7 synchronous_commit ('' for that of the session), $8 'claim'.
-- No row: it has an entry, which claim_known.sql looks at. To set all columns of that one here would take each claim
-- a third more of the server's time.
INSERT INTO audience_inbox (endpoint, event_id, state, token, attempts, due, forget_at, purge_from, fingerprint)
SELECT
    $1::text, $2::text, 'open', $3::bytea, 1,
    clock_timestamp() + make_interval(secs => $4::float8),
    clock_timestamp() + make_interval(secs => $4::float8 + $5::float8),
    clock_timestamp() + make_interval(secs => $5::float8),
    $6::bytea
WHERE $8::text = 'claim' AND ($7::text = '' OR set_config('synchronous_commit', $7::text, true) <> '')
ON CONFLICT (endpoint, event_id) DO NOTHING
RETURNING true
