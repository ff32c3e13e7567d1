-- $1 endpoint, $2 event id, $3 token, $4 lease in seconds, $5 'extend'.
UPDATE audience_inbox SET
    due = clock_timestamp() + make_interval(secs => $4::float8),
    queued_at = CASE WHEN body IS NOT NULL THEN clock_timestamp() + make_interval(secs => $4::float8) END,
    forget_at = CASE
        -- An accepted event is never forgotten.
        WHEN body IS NOT NULL THEN NULL
        -- Without a retention, it is forgotten immediately, also if the clock jumps back. Both times were read from the
        -- clock, one after the other.
        WHEN $4::float8 = 0 AND forget_at < due + interval '1 second' THEN 'epoch'::timestamptz
        ELSE clock_timestamp() + make_interval(
            secs => $4::float8 + greatest(extract(epoch FROM forget_at - due), 0)::float8
        )
    END,
    -- Never later than forget_at, and as early as it was unless this is a hold: see claim.sql. Of NULL and a time, this is
    -- the time.
    purge_from = CASE
        WHEN body IS NULL THEN least(
            CASE WHEN $4::float8 <= 3600 THEN purge_from END,
            clock_timestamp() + make_interval(
                secs => $4::float8 + greatest(extract(epoch FROM forget_at - due), 0)::float8
            )
        )
    END
WHERE endpoint = $1::text AND event_id = $2::text AND token = $3::bytea AND state = 'open'
    AND $5::text = 'extend'
RETURNING true
