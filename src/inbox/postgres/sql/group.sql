-- Completes and claims events of one endpoint, for all callers that wait. No id is there twice.
-- Completes like complete.sql and claims like claim.sql.
-- $1 endpoint.
-- To be completed: $2 ids, $3 their tokens, 16 bytes each, one after the other, $4 retention in seconds.
-- To be claimed: $5 ids, $6 tokens, $7 lease and $8 retention in seconds, $9 fingerprints like the tokens, or NULL.
-- $10 how long to wait for another transaction, such as '20ms', $11 'group'.
-- Returns those that were completed or claimed.
WITH settings AS MATERIALIZED (
    SELECT set_config('lock_timeout', $10::text, true)
    WHERE $11::text = 'group'
), completions AS MATERIALIZED (
    -- The endpoint is here, and the condition is always true but lets one row be expected, so that the plan looks up each
    -- entry by the primary key, however small the table was when the plan was made.
    SELECT $1::text AS endpoint, id, substring($3::bytea FROM 16 * n::integer - 15 FOR 16) AS token
    FROM settings, unnest($2::text[]) WITH ORDINALITY AS completion (id, n)
    WHERE octet_length(id || '') = octet_length(id)
), completed AS (
    UPDATE audience_inbox AS entry SET
        state = 'done',
        queued_at = NULL,
        forget_at = CASE
            WHEN state = 'done' THEN forget_at
            WHEN $4::float8 = 0 THEN 'epoch'::timestamptz
            ELSE clock_timestamp() + make_interval(secs => $4::float8)
        END,
        purge_from = CASE
            WHEN state = 'done' THEN purge_from
            WHEN purge_from BETWEEN clock_timestamp() + make_interval(secs => $4::float8 - 3600)
                AND clock_timestamp() + make_interval(secs => $4::float8) THEN purge_from
            ELSE clock_timestamp() + make_interval(secs => $4::float8)
        END,
        body = NULL,
        reason = NULL
    FROM completions
    WHERE entry.endpoint = completions.endpoint AND event_id = id AND entry.token = completions.token
    RETURNING event_id
), claimed AS (
    INSERT INTO audience_inbox (endpoint, event_id, state, token, attempts, due, forget_at, purge_from, fingerprint)
    SELECT
        $1::text, id, 'open', substring($6::bytea FROM 16 * n::integer - 15 FOR 16), 1,
        clock_timestamp() + make_interval(secs => $7::float8),
        CASE
            WHEN $7::float8 + $8::float8 = 0 THEN 'epoch'::timestamptz
            ELSE clock_timestamp() + make_interval(secs => $7::float8 + $8::float8)
        END,
        clock_timestamp() + make_interval(
            secs => CASE WHEN $7::float8 > 3600 THEN $7::float8 + $8::float8 ELSE $8::float8 END
        ),
        substring($9::bytea FROM 16 * n::integer - 15 FOR 16)
    FROM settings, unnest($5::text[]) WITH ORDINALITY AS claim (id, n)
    ON CONFLICT (endpoint, event_id) DO NOTHING
    RETURNING event_id
)
SELECT event_id FROM completed
UNION ALL
SELECT event_id FROM claimed
