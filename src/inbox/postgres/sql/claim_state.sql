-- Says why an event could not be claimed.
-- $1 endpoint, $2 event id, $3 token, $4 fingerprint or NULL, $5 'claim_state'.
-- No row, or 'claimable': the entry changed meanwhile. Claim it again.
SELECT
    CASE
        WHEN fingerprint <> $4::bytea THEN 'conflict'
        WHEN state <> 'open' THEN state
        WHEN due <= clock_timestamp() THEN 'claimable'
        WHEN token = $3::bytea THEN 'held'
        ELSE 'in_progress'
    END AS outcome,
    attempts,
    extract(epoch FROM due - clock_timestamp())::float8 AS remaining
FROM audience_inbox
WHERE endpoint = $1::text AND event_id = $2::text
    AND $5::text = 'claim_state'
    AND (body IS NOT NULL OR (forget_at > clock_timestamp()) IS NOT FALSE)
