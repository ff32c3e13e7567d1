-- Claims an event that has an entry, or says why not.
-- $1 endpoint, $2 event id, $3 token, $4 lease and $5 retention in seconds, $6 fingerprint or NULL,
-- $7 'claim_known'.
-- No row, or 'claimable': the entry changed meanwhile. Claim it again.
-- An entry with a body is never forgotten, also if an older version gave it a time. The times of the others are those of
-- claim.sql.
WITH claimed AS (
    UPDATE audience_inbox SET
        state = 'open',
        token = $3::bytea,
        attempts = CASE
            WHEN body IS NULL AND forget_at <= clock_timestamp() THEN 1
            ELSE least(attempts, 2147483646) + 1
        END,
        due = clock_timestamp() + make_interval(secs => $4::float8),
        queued_at = CASE WHEN body IS NOT NULL THEN clock_timestamp() + make_interval(secs => $4::float8) END,
        forget_at = CASE
            WHEN body IS NOT NULL THEN NULL
            WHEN $4::float8 + $5::float8 = 0 THEN 'epoch'::timestamptz
            ELSE clock_timestamp() + make_interval(secs => $4::float8 + $5::float8)
        END,
        purge_from = CASE
            WHEN body IS NULL THEN clock_timestamp() + make_interval(
                secs => CASE WHEN $4::float8 > 3600 THEN $4::float8 + $5::float8 ELSE $5::float8 END
            )
        END,
        fingerprint = CASE
            WHEN body IS NULL AND forget_at <= clock_timestamp() THEN $6::bytea
            ELSE coalesce($6::bytea, fingerprint)
        END,
        reason = CASE WHEN body IS NOT NULL THEN reason END
    WHERE endpoint = $1::text AND event_id = $2::text AND $7::text = 'claim_known'
        AND (
            (body IS NULL AND forget_at <= clock_timestamp())
            OR (
                state = 'open'
                AND due <= clock_timestamp()
                AND (body IS NULL OR (fingerprint = $6::bytea) IS NOT FALSE)
            )
        )
    RETURNING attempts
)
SELECT 'claimed' AS outcome, attempts, 0::float8 AS remaining
FROM claimed
UNION ALL
SELECT
    CASE
        WHEN fingerprint <> $6::bytea
            AND (state <> 'open' OR body IS NOT NULL OR due > clock_timestamp()) THEN 'conflict'
        WHEN state <> 'open' THEN state
        WHEN due <= clock_timestamp() THEN 'claimable'
        WHEN token = $3::bytea THEN 'held'
        ELSE 'in_progress'
    END,
    attempts,
    extract(epoch FROM due - clock_timestamp())::float8
FROM audience_inbox
WHERE endpoint = $1::text AND event_id = $2::text AND $7::text = 'claim_known'
    AND (body IS NOT NULL OR (forget_at > clock_timestamp()) IS NOT FALSE)
    AND NOT EXISTS (SELECT FROM claimed)
