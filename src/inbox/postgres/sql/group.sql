-- Claims and completes events of one endpoint, for all callers that wait. No id is there twice.
-- $1 endpoint.
-- To be completed: $2 ids, $3 their tokens, 16 bytes each, one after the other, $4 retention in seconds.
-- To be claimed: $5 ids, $6 tokens, $7 lease and $8 retention in seconds, $9 fingerprints like the tokens, or NULL.
-- $10 how long to wait for another transaction, such as '20ms', $11 synchronous_commit ('' for that of the session),
-- $12 'group'.
-- Returns what was completed, with 0 attempts, and the claims that were made.
-- Completes like complete.sql and claims like claim.sql.
WITH settings AS MATERIALIZED (
    SELECT
        set_config('lock_timeout', $10::text, true),
        CASE WHEN $11::text <> '' THEN set_config('synchronous_commit', $11::text, true) END
    WHERE $12::text = 'group'
), completions AS MATERIALIZED (
    -- The endpoint is here, and the condition is always true but lets one row be expected, so that the plan looks up each
    -- entry by the primary key, however small the table was when the plan was made.
    SELECT $1::text AS endpoint, id, substring($3::bytea FROM 16 * n::integer - 15 FOR 16) AS token
    FROM settings, unnest($2::text[]) WITH ORDINALITY AS completion (id, n)
    WHERE octet_length(id || '') = octet_length(id)
), completed AS (
    UPDATE audience_inbox AS entry SET
        state = 'done',
        forget_at = CASE
            WHEN state = 'done' THEN forget_at
            ELSE clock_timestamp() + make_interval(secs => $4::float8)
        END,
        purge_from = CASE
            WHEN state = 'done' THEN purge_from
            WHEN purge_from
                BETWEEN clock_timestamp() + make_interval(secs => $4::float8 - 3600)
                AND clock_timestamp() + make_interval(secs => $4::float8)
                THEN purge_from
            ELSE clock_timestamp() + make_interval(secs => $4::float8)
        END,
        body = NULL,
        reason = NULL
    FROM completions
    WHERE entry.endpoint = completions.endpoint AND event_id = id AND entry.token = completions.token
    RETURNING event_id
), claims AS (
    SELECT
        id,
        substring($6::bytea FROM 16 * n::integer - 15 FOR 16) AS token,
        substring($9::bytea FROM 16 * n::integer - 15 FOR 16) AS fingerprint
    FROM settings, unnest($5::text[]) WITH ORDINALITY AS claim (id, n)
), claimed AS (
    INSERT INTO audience_inbox AS entry
        (endpoint, event_id, state, token, attempts, due, forget_at, purge_from, fingerprint)
    SELECT
        $1::text, id, 'open', token, 1,
        clock_timestamp() + make_interval(secs => $7::float8),
        clock_timestamp() + make_interval(secs => $7::float8 + $8::float8),
        clock_timestamp() + make_interval(secs => $8::float8),
        fingerprint
    FROM claims
    ON CONFLICT (endpoint, event_id) DO UPDATE SET
        state = 'open',
        token = excluded.token,
        attempts = CASE
            WHEN entry.body IS NULL AND entry.forget_at <= clock_timestamp() THEN 1
            ELSE least(entry.attempts, 2147483646) + 1
        END,
        due = clock_timestamp() + make_interval(secs => $7::float8),
        forget_at = CASE
            WHEN entry.body IS NULL THEN clock_timestamp() + make_interval(secs => $7::float8 + $8::float8)
        END,
        purge_from = CASE
            WHEN entry.body IS NULL THEN clock_timestamp() + make_interval(secs => $8::float8)
        END,
        fingerprint = CASE
            WHEN entry.body IS NULL AND entry.forget_at <= clock_timestamp() THEN excluded.fingerprint
            ELSE coalesce(entry.fingerprint, excluded.fingerprint)
        END,
        reason = CASE WHEN entry.body IS NOT NULL THEN entry.reason END
    WHERE (entry.body IS NULL AND entry.forget_at <= clock_timestamp())
        OR (
            entry.state = 'open'
            AND entry.due <= clock_timestamp()
            AND (entry.fingerprint = excluded.fingerprint) IS NOT FALSE
        )
    RETURNING event_id, attempts, due
)
SELECT event_id, 0 AS attempts, 0::float8 AS remaining
FROM completed
UNION ALL
SELECT event_id, attempts, extract(epoch FROM due - clock_timestamp())::float8
FROM claimed
