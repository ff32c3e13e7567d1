-- $1 endpoint, $2 event id, $3 'replay'.
UPDATE audience_inbox SET
    state = 'open',
    attempts = 0,
    due = clock_timestamp(),
    queued_at = CASE WHEN body IS NOT NULL THEN clock_timestamp() END,
    -- Also if the clock jumps back.
    forget_at = CASE WHEN body IS NULL THEN 'epoch'::timestamptz END,
    purge_from = CASE WHEN body IS NULL THEN clock_timestamp() END,
    parked_at = NULL
WHERE endpoint = $1::text AND event_id = $2::text AND parked_at IS NOT NULL AND $3::text = 'replay'
RETURNING true
