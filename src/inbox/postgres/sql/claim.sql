-- $1 endpoint, $2 event id, $3 token, $4 lease and $5 retention in seconds, $6 fingerprint or NULL,
-- $7 synchronous_commit ('' for that of the session), $8 'claim'.
-- No row: the event cannot be claimed. claim_state.sql says why.
-- An entry with a body is never forgotten, also if an older version gave it a time.
INSERT INTO audience_inbox AS entry
    (endpoint, event_id, state, token, attempts, due, forget_at, purge_from, fingerprint)
SELECT
    $1::text, $2::text, 'open', $3::bytea, 1,
    clock_timestamp() + make_interval(secs => $4::float8),
    clock_timestamp() + make_interval(secs => $4::float8 + $5::float8),
    clock_timestamp() + make_interval(secs => $5::float8),
    $6::bytea
WHERE $8::text = 'claim'
ON CONFLICT (endpoint, event_id) DO UPDATE SET
    state = 'open',
    token = $3::bytea,
    attempts = CASE
        WHEN entry.body IS NULL AND entry.forget_at <= clock_timestamp() THEN 1
        ELSE least(entry.attempts, 2147483646) + 1
    END,
    -- The values to be inserted may be old: this may have waited for another transaction.
    due = clock_timestamp() + make_interval(secs => $4::float8),
    forget_at = CASE
        WHEN entry.body IS NULL THEN clock_timestamp() + make_interval(secs => $4::float8 + $5::float8)
    END,
    purge_from = CASE
        WHEN entry.body IS NULL THEN clock_timestamp() + make_interval(secs => $5::float8)
    END,
    fingerprint = CASE
        WHEN entry.body IS NULL AND entry.forget_at <= clock_timestamp() THEN $6::bytea
        ELSE coalesce(entry.fingerprint, $6::bytea)
    END,
    reason = CASE WHEN entry.body IS NOT NULL THEN entry.reason END
WHERE (entry.body IS NULL AND entry.forget_at <= clock_timestamp())
    OR (
        entry.state = 'open'
        AND entry.due <= clock_timestamp()
        AND (entry.fingerprint = $6::bytea) IS NOT FALSE
    )
RETURNING
    attempts,
    extract(epoch FROM due - clock_timestamp())::float8 AS remaining,
    CASE WHEN $7::text <> '' THEN set_config('synchronous_commit', $7::text, true) END AS setting
