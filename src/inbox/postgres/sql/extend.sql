-- $1 endpoint, $2 event id, $3 token, $4 lease in seconds.
UPDATE audience_inbox SET
    due = clock_timestamp() + make_interval(secs => $4::float8),
    forget_at = clock_timestamp() + make_interval(
        secs => $4::float8 + greatest(extract(epoch FROM forget_at - due), 0)::float8
    )
WHERE endpoint = $1::text AND event_id = $2::text AND token = $3::bytea AND state = 'open'
RETURNING true
