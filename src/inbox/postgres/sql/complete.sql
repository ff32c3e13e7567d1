-- $1 endpoint, $2 event id, $3 token, $4 retention in seconds, $5 'complete'.
-- Only an entry that is open or done has a token.
UPDATE audience_inbox SET
    state = 'done',
    forget_at = CASE
        WHEN state = 'done' THEN forget_at
        ELSE clock_timestamp() + make_interval(secs => $4::float8)
    END,
    -- Kept if it is little earlier than forget_at, so that no index changes.
    purge_from = CASE
        WHEN state = 'done' THEN purge_from
        WHEN purge_from
            BETWEEN clock_timestamp() + make_interval(secs => $4::float8 - 3600)
            AND clock_timestamp() + make_interval(secs => $4::float8)
            THEN purge_from
        ELSE clock_timestamp() + make_interval(secs => $4::float8)
    END,
    body = NULL,
    reason = NULL
WHERE endpoint = $1::text AND event_id = $2::text AND token = $3::bytea AND $5::text = 'complete'
RETURNING true
