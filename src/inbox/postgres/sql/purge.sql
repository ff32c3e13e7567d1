-- $1 limit, $2 'purge'.
DELETE FROM audience_inbox
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM audience_inbox
    WHERE purge_from <= statement_timestamp() AND forget_at <= statement_timestamp() AND body IS NULL
        AND $2::text = 'purge'
    ORDER BY purge_from
    LIMIT $1::bigint
    FOR UPDATE SKIP LOCKED
))
RETURNING true
