-- Makes an event done as a part of the transaction that this runs in.
-- $1 endpoint (text), $2 event id (text), $3 fingerprint (bytea) or NULL, $4 retention in seconds (float8).
-- Returns one row with one column:
--   claimed      It is yours: apply its effects in this transaction.
--   done, parked It was handled or given up before. Respond with a success.
--   in_progress  A lease lasts. Roll back and respond with 503.
--   conflict     It was handled or stored, or is being handled, with another body.
--   again        Another transaction was faster. Run this again, to see how it ended, or respond with 503.
WITH found AS MATERIALIZED (
    SELECT
        CASE
            WHEN fingerprint <> $3::bytea
                AND (state <> 'open' OR body IS NOT NULL OR due > clock_timestamp()) THEN 'conflict'
            WHEN state <> 'open' THEN state
            WHEN due <= clock_timestamp() THEN 'claimable'
            ELSE 'in_progress'
        END AS outcome
    FROM audience_inbox
    WHERE endpoint = $1::text AND event_id = $2::text
        AND (body IS NOT NULL OR (forget_at > clock_timestamp()) IS NOT FALSE)
), claimed AS (
    INSERT INTO audience_inbox AS entry
        (endpoint, event_id, state, attempts, due, forget_at, purge_from, fingerprint)
    SELECT
        $1::text, $2::text, 'done', 1, clock_timestamp(),
        clock_timestamp() + make_interval(secs => $4::float8),
        clock_timestamp() + make_interval(secs => $4::float8),
        $3::bytea
    WHERE NOT EXISTS (SELECT FROM found WHERE outcome <> 'claimable')
    ON CONFLICT (endpoint, event_id) DO UPDATE SET
        state = 'done',
        queued_at = NULL,
        token = NULL,
        attempts = CASE
            WHEN entry.body IS NULL AND entry.forget_at <= clock_timestamp() THEN 1
            ELSE least(entry.attempts, 2147483646) + 1
        END,
        forget_at = clock_timestamp() + make_interval(secs => $4::float8),
        purge_from = clock_timestamp() + make_interval(secs => $4::float8),
        fingerprint = CASE
            WHEN entry.body IS NULL AND entry.forget_at <= clock_timestamp() THEN $3::bytea
            ELSE coalesce($3::bytea, entry.fingerprint)
        END,
        body = NULL,
        reason = NULL
    WHERE (entry.body IS NULL AND entry.forget_at <= clock_timestamp())
        OR (
            entry.state = 'open'
            AND entry.due <= clock_timestamp()
            AND (entry.body IS NULL OR (entry.fingerprint = $3::bytea) IS NOT FALSE)
        )
    RETURNING event_id
)
SELECT coalesce(
    (SELECT 'claimed' FROM claimed),
    (SELECT outcome FROM found WHERE outcome <> 'claimable'),
    'again'
) AS outcome
