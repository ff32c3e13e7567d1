-- $1 endpoint, $2 event id, $3 token, $4 retention in seconds, $5 'complete'.
-- Only an entry that is open or done has a token.
UPDATE audience_inbox SET
    state = 'done',
    queued_at = NULL,
    -- A second call with the token changes nothing.
    forget_at = CASE
        WHEN state = 'done' THEN forget_at
        -- Also if the clock jumps back.
        WHEN $4::float8 = 0 THEN 'epoch'::timestamptz
        ELSE clock_timestamp() + make_interval(secs => $4::float8)
    END,
    purge_from = CASE
        WHEN state = 'done' THEN purge_from
        -- A little earlier one is kept, so that no index changes.
        WHEN purge_from BETWEEN clock_timestamp() + make_interval(secs => $4::float8 - 3600)
            AND clock_timestamp() + make_interval(secs => $4::float8) THEN purge_from
        ELSE clock_timestamp() + make_interval(secs => $4::float8)
    END,
    body = NULL,
    reason = NULL
WHERE endpoint = $1::text AND event_id = $2::text AND token = $3::bytea AND $5::text = 'complete'
RETURNING true
