-- $1 endpoint, $2 event id, $3 retention in seconds, $4 'discard'.
UPDATE audience_inbox SET
    state = 'done',
    forget_at = CASE
        -- Also if the clock jumps back.
        WHEN $3::float8 = 0 THEN 'epoch'::timestamptz
        ELSE clock_timestamp() + make_interval(secs => $3::float8)
    END,
    purge_from = clock_timestamp() + make_interval(secs => $3::float8),
    body = NULL,
    reason = NULL,
    parked_at = NULL
WHERE endpoint = $1::text AND event_id = $2::text AND parked_at IS NOT NULL AND $4::text = 'discard'
RETURNING true
