-- $1 endpoint, $2 event id, $3 body, $4 fingerprint, $5 'accept'.
-- No row: the entry changed meanwhile. Run it again, to see how.
WITH found AS MATERIALIZED (
    SELECT
        CASE
            WHEN fingerprint <> $4::bytea
                AND (state <> 'open' OR body IS NOT NULL OR due > clock_timestamp()) THEN 'conflict'
            WHEN state <> 'open' OR body IS NOT NULL THEN 'duplicate'
            WHEN due <= clock_timestamp() THEN 'acceptable'
            ELSE 'in_progress'
        END AS outcome,
        due
    FROM audience_inbox
    WHERE endpoint = $1::text AND event_id = $2::text
        AND $5::text = 'accept'
        AND (body IS NOT NULL OR (forget_at > clock_timestamp()) IS NOT FALSE)
), accepted AS (
    INSERT INTO audience_inbox AS entry (endpoint, event_id, state, attempts, due, queued_at, fingerprint, body)
    SELECT $1::text, $2::text, 'open', 0, clock_timestamp(), clock_timestamp(), $4::bytea, $3::bytea
    WHERE $5::text = 'accept' AND NOT EXISTS (SELECT FROM found WHERE outcome <> 'acceptable')
    ON CONFLICT (endpoint, event_id) DO UPDATE SET
        state = 'open',
        token = NULL,
        attempts = CASE WHEN entry.forget_at <= clock_timestamp() THEN 0 ELSE entry.attempts END,
        due = clock_timestamp(),
        queued_at = clock_timestamp(),
        forget_at = NULL,
        purge_from = NULL,
        fingerprint = $4::bytea,
        body = $3::bytea,
        reason = NULL
    WHERE entry.body IS NULL
        AND (
            entry.forget_at <= clock_timestamp()
            OR (entry.state = 'open' AND entry.due <= clock_timestamp())
        )
    RETURNING event_id
)
SELECT 'accepted' AS outcome, 0::float8 AS remaining
FROM accepted
UNION ALL
SELECT outcome, extract(epoch FROM due - clock_timestamp())::float8
FROM found
WHERE outcome <> 'acceptable'
