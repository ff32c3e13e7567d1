-- $1 endpoint, $2 event id, $3 token, $4 retention in seconds, $5 'complete'.
-- Only an entry that is open or done has a token.
UPDATE audience_inbox SET
    state = 'done',
    queued_at = NULL,
    -- A second call with the token changes nothing.
    forget_at = CASE
        WHEN state = 'done' THEN forget_at
        ELSE clock_timestamp() + make_interval(secs => $4::float8)
    END,
    -- An earlier one is kept, so that no index changes. Of NULL and a time, this is the time.
    purge_from = least(purge_from, clock_timestamp() + make_interval(secs => $4::float8)),
    body = NULL,
    reason = NULL
WHERE endpoint = $1::text AND event_id = $2::text AND token = $3::bytea AND $5::text = 'complete'
RETURNING true
