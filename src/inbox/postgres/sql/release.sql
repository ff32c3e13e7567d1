-- $1 endpoint, $2 event id, $3 token, $4 delay and $5 retention in seconds, $6 reason, $7 'release'.
UPDATE audience_inbox SET
    token = NULL,
    due = clock_timestamp() + make_interval(secs => $4::float8),
    queued_at = CASE WHEN body IS NOT NULL THEN clock_timestamp() + make_interval(secs => $4::float8) END,
    forget_at = CASE
        WHEN body IS NOT NULL THEN NULL
        -- Also if the clock jumps back.
        WHEN $4::float8 + $5::float8 = 0 THEN 'epoch'::timestamptz
        ELSE clock_timestamp() + make_interval(secs => $4::float8 + $5::float8)
    END,
    purge_from = CASE
        WHEN body IS NULL THEN clock_timestamp() + make_interval(secs => $4::float8 + $5::float8)
    END,
    reason = CASE WHEN body IS NOT NULL THEN $6::text END
WHERE endpoint = $1::text AND event_id = $2::text AND token = $3::bytea AND state = 'open'
    AND $7::text = 'release'
RETURNING true
