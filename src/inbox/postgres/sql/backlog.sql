-- $1 endpoint, $2 'backlog'.
SELECT
    count(*) FILTER (WHERE token IS NULL OR queued_at <= clock_timestamp()) AS waiting,
    count(*) FILTER (WHERE token IS NOT NULL AND queued_at > clock_timestamp()) AS in_progress,
    (SELECT count(*) FROM audience_inbox WHERE endpoint = $1::text AND parked_at IS NOT NULL) AS parked,
    coalesce(greatest(extract(epoch FROM clock_timestamp() - min(queued_at)), 0), 0)::float8 AS lag
FROM audience_inbox
WHERE endpoint = $1::text AND queued_at IS NOT NULL
HAVING $2::text = 'backlog'
