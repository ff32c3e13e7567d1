-- Returns what a claim would return, and changes nothing.
-- $1 endpoint, $2 event id, $3 fingerprint or NULL, $4 'state'.
-- Always one row, also if there is no entry.
SELECT
    CASE
        WHEN entry.event_id IS NULL THEN 'claimable'
        WHEN entry.fingerprint <> $3::bytea
            AND (entry.state <> 'open' OR entry.body IS NOT NULL OR entry.due > clock_timestamp()) THEN 'conflict'
        WHEN entry.state <> 'open' THEN entry.state
        WHEN entry.due <= clock_timestamp() THEN 'claimable'
        ELSE 'in_progress'
    END AS outcome,
    least(coalesce(entry.attempts, 0), 2147483646) + 1 AS attempts,
    coalesce(extract(epoch FROM entry.due - clock_timestamp()), 0)::float8 AS remaining
FROM (SELECT) AS one
LEFT JOIN audience_inbox AS entry
    ON entry.endpoint = $1::text AND entry.event_id = $2::text
        AND (entry.body IS NOT NULL OR (entry.forget_at > clock_timestamp()) IS NOT FALSE)
WHERE $4::text = 'state'
