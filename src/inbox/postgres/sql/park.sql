-- $1 endpoint, $2 event id, $3 token, $4 reason, $5 'park'.
UPDATE audience_inbox SET
    state = 'parked',
    token = NULL,
    queued_at = NULL,
    forget_at = NULL,
    purge_from = NULL,
    reason = $4::text,
    parked_at = clock_timestamp()
WHERE endpoint = $1::text AND event_id = $2::text AND token = $3::bytea AND state = 'open'
    AND $5::text = 'park'
RETURNING true
