-- $1 endpoint, $2 event id, $3 token, $4 retention in seconds, $5 'complete'.
-- Only an entry that is open or done has a token.
UPDATE audience_inbox SET
    state = 'done',
    queued_at = NULL,
    forget_at = clock_timestamp() + make_interval(secs => $4::float8),
    -- An earlier one is kept, so that no index changes. Of NULL and a time, this is the time.
    purge_from = least(purge_from, clock_timestamp() + make_interval(secs => $4::float8)),
    body = NULL,
    reason = NULL
WHERE endpoint = $1::text AND event_id = $2::text AND token = $3::bytea AND $5::text = 'complete'
RETURNING true
