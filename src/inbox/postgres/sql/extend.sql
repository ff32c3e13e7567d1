-- $1 endpoint, $2 event id, $3 token, $4 lease in seconds, $5 'extend'.
UPDATE audience_inbox SET
    due = clock_timestamp() + make_interval(secs => $4::float8),
    queued_at = CASE WHEN body IS NOT NULL THEN clock_timestamp() + make_interval(secs => $4::float8) END,
    -- An accepted event is never forgotten.
    forget_at = CASE
        WHEN body IS NULL THEN clock_timestamp() + make_interval(
            secs => $4::float8 + greatest(extract(epoch FROM forget_at - due), 0)::float8
        )
    END
WHERE endpoint = $1::text AND event_id = $2::text AND token = $3::bytea AND state = 'open'
    AND $5::text = 'extend'
RETURNING true
