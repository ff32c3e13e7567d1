#!/usr/bin/env bash
# What the tables of the Postgres store need: bytes, write-ahead log (WAL), vacuum and purge.
# docs/scaling.md has the results. Run it on an empty database of its own, as a superuser:
#
#   benches/postgres_scale.sh postgres://postgres@127.0.0.1/scale 10000000
#
# The second argument is the number of ids that are stored. It runs the store's own statements, with psql and pgbench.
set -euo pipefail
cd "$(dirname "$0")/.."
url=$1 ids=${2:-1000000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PGOPTIONS='-c synchronous_commit=off' # The WAL is the same, and the disk is not what is measured here.

sql() { psql -XqAt -v ON_ERROR_STOP=1 "$url" -c "$1"; }
say() { printf '%-62s %s\n' "$1" "$2"; }
seconds() { local start; start=$(date +%s.%N); "$@" >/dev/null; echo "$(date +%s.%N) - $start" | bc; }
sizes() {
    sql "SELECT format('rows %s, table %s MB, primary key %s MB, purge index %s MB, queue index %s MB, all %s bytes a row',
        n, t >> 20, k >> 20, p >> 20, q >> 20, total / greatest(n, 1))
        FROM (SELECT count(*) n FROM audience_inbox) c, (SELECT pg_relation_size('audience_inbox') t,
        pg_relation_size('audience_inbox_pkey') k, pg_relation_size('audience_inbox_purge') p,
        pg_relation_size('audience_inbox_queue') q, pg_total_relation_size('audience_inbox') total) s"
}

# Replaces the parameters of a statement of the store, in order.
statement() {
    local file=src/inbox/postgres/sql/$1.sql number=0 text
    text=$(sed '/^--/d' "$file")
    for value in "${@:2}"; do
        number=$((number + 1))
        text=${text//"\$$number::"/"$value::"}
    done
    printf '%s;\n' "$text"
}

# Random ids, and ids that begin with the time as those of a ULID do.
random="('evt_' || left(md5(:n::text), 24))"
ordered="('evt_' || lpad(:n::text, 24, '0'))"
token="decode(md5('t' || :n::text), 'hex')"
print="decode(md5('f' || :n::text), 'hex')"
body="convert_to(repeat(md5(:n::text), 16), 'UTF8')" # 512 bytes
next_random='\set n random(1, 1000000000000000)'
next_ordered='\set i :i + 1
\set n 1000000000000 + :i * 1000 + :client_id'

for kind in random ordered; do
    id=${!kind} next=next_$kind
    { echo "${!next}"
      statement claim "'main'" "$id" "$token" 60 259200 "$print" "''" "'claim'"
      statement complete "'main'" "$id" "$token" 259200 "'complete'"; } >"$work/handle-$kind"
    { echo "${!next}"; statement accept "'main'" "$id" "$body" "$print" "'accept'"; } >"$work/accept-$kind"
    { echo "${!next}"; statement claim_in "'main'" "$id" "$print" 259200; } >"$work/claim_in-$kind"
done

# Prints the WAL of a script, for each event.
wal() {
    local name=$1 events=$2 before after
    before=$(sql 'SELECT pg_current_wal_insert_lsn()')
    pgbench -n -M prepared -D i="$RANDOM$RANDOM" -c 8 -j 1 -t $((events / 8)) -f "$work/$name" "$url" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
    after=$(sql 'SELECT pg_current_wal_insert_lsn()')
    say "$3" "$(sql "SELECT round(('$after'::pg_lsn - '$before'::pg_lsn) / $events)") bytes of WAL an event, $(sed -n 's/^tps = \([0-9]*\).*/\1/p' "$work/out")/s"
}


PGOPTIONS="$PGOPTIONS -c client_min_messages=warning" sql 'DROP TABLE IF EXISTS audience_inbox, audience_inbox_schema'
sql "$(cat migrations/postgres/0001_audience_inbox.sql)"
sql "ALTER TABLE audience_inbox SET (autovacuum_enabled = off)"
sql 'SELECT version()'

echo "-- $ids done ids"
took=$(seconds sql "INSERT INTO audience_inbox (endpoint, event_id, state, token, attempts, due, forget_at, purge_from, fingerprint)
    SELECT 'main', 'evt_' || left(md5(n::text), 24), 'done', decode(md5('t' || n), 'hex'), 1, now(),
        now() + interval '71 h', now() + interval '70 h' + n * interval '1 ms', decode(md5('f' || n), 'hex')
    FROM generate_series(1, $ids) n")
say 'filled in' "$took s"
say 'vacuum and analyze in' "$(seconds sql 'VACUUM (ANALYZE) audience_inbox') s"
sizes

echo "-- WAL, with full_page_writes on"
for kind in random ordered; do
    for script in handle claim_in; do
        sql CHECKPOINT
        wal $script-$kind 20000 "$script, $kind ids, the first 20,000 after a checkpoint"
        wal $script-$kind 100000 "$script, $kind ids, the next 100,000"
    done
    sql CHECKPOINT
    wal accept-$kind 20000 "accept of 512 bytes, $kind ids, the first 20,000"
    wal accept-$kind 80000 "accept of 512 bytes, $kind ids, the next 80,000"
    waiting=$(sql 'SELECT count(*) FROM audience_inbox WHERE queued_at IS NOT NULL')
    say 'waiting events' "$(sql "SELECT format('table %s MB, queue index %s kB', pg_relation_size('audience_inbox') >> 20, pg_relation_size('audience_inbox_queue') >> 10)")"
    before=$(sql 'SELECT pg_current_wal_insert_lsn()')
    { statement take "'main'" "'{}'" "''" 0 "decode(md5(random()::text), 'hex')" 60 100 "'-infinity'" "'20ms'" "'take'"; } >"$work/take"
    pgbench -n -M prepared -c 1 -t $((waiting / 100 + 1)) -f "$work/take" "$url" >/dev/null 2>&1
    middle=$(sql 'SELECT pg_current_wal_insert_lsn()')
    # `complete` of each, one transaction for each.
    sql "CREATE TABLE taken AS SELECT row_number() OVER () AS n, event_id, token FROM audience_inbox WHERE queued_at IS NOT NULL"
    sql 'CREATE UNIQUE INDEX ON taken (n)'
    { echo '\set i :i + 1'; echo '\set n :i * 8 + :client_id + 1'
      echo 'SELECT event_id AS id, encode(token, $$hex$$) AS token FROM taken WHERE n = :n \gset'
      statement complete "'main'" ":id" "decode(:token, 'hex')" 259200 "'complete'"; } >"$work/complete"
    start=$(sql 'SELECT pg_current_wal_insert_lsn()')
    pgbench -n -M prepared -D i=-1 -c 8 -j 1 -t $((waiting / 8)) -f "$work/complete" "$url" >/dev/null 2>&1
    after=$(sql 'SELECT pg_current_wal_insert_lsn()')
    say "take of $waiting, 100 at a time" "$(sql "SELECT round(('$middle'::pg_lsn - '$before') / $waiting)") bytes of WAL an event"
    say "complete of $waiting" "$(sql "SELECT round(('$after'::pg_lsn - '$start') / $waiting)") bytes of WAL an event"
    sql 'DROP TABLE taken'
done

echo '-- forgetting a tenth of the ids'
sizes
tenth=$((ids / 10))
sql "UPDATE audience_inbox SET purge_from = now() - interval '1 h', forget_at = now() - interval '1 h'
    WHERE event_id IN (SELECT 'evt_' || left(md5(n::text), 24) FROM generate_series(1, $tenth) n)"
sql 'VACUUM audience_inbox'
before=$(sql 'SELECT pg_current_wal_insert_lsn()')
purge=$(statement purge 1000 "'purge'" | sed 's/;$//')
took=$(seconds sql "DO \$do\$ DECLARE n bigint; BEGIN LOOP
    WITH gone AS ($purge) SELECT count(*) INTO n FROM gone; EXIT WHEN n = 0; COMMIT; END LOOP; END \$do\$")
after=$(sql 'SELECT pg_current_wal_insert_lsn()')
say "purge of $tenth ids" "$took s, $(sql "SELECT round(('$after'::pg_lsn - '$before') / $tenth)") bytes of WAL an id"
say "vacuum after it" "$(seconds sql 'VACUUM audience_inbox') s"
sizes

echo '-- done ids in one table for each day, four days of them'
sql 'DROP TABLE IF EXISTS done'
sql "CREATE TABLE done (day date, endpoint text COLLATE \"C\", event_id text COLLATE \"C\", token bytea, fingerprint bytea,
    PRIMARY KEY (endpoint, event_id, day)) PARTITION BY LIST (day)"
for day in 1 2 3 4; do
    sql "CREATE TABLE done_$day PARTITION OF done FOR VALUES IN ('2000-01-0$day')"
    sql "INSERT INTO done SELECT '2000-01-0$day', 'main', 'evt_' || left(md5(n::text), 24), decode(md5('t' || n), 'hex'), decode(md5('f' || n), 'hex')
        FROM generate_series($(((day + 4) * tenth)), $(((day + 5) * tenth)) - 1) n"
done
sql 'VACUUM (ANALYZE) done'
say 'bytes of an id with its index' "$(sql "SELECT sum(pg_total_relation_size('done_' || n)) / (4 * $tenth) FROM generate_series(1, 4) n")"
for table in audience_inbox done; do
    { echo "\\set n random($((5 * tenth)), $((9 * tenth)) - 1)"
      echo "SELECT fingerprint FROM $table WHERE endpoint = 'main' AND event_id = $random;"; } >"$work/look"
    pgbench -n -M prepared -c 1 -T 5 -f "$work/look" "$url" >"$work/out" 2>&1
    say "look for an id in $table" "$(sed -n 's/^latency average = //p' "$work/out")"
done
say "drop of the $tenth ids of a day" "$(seconds sql 'DROP TABLE done_1') s"
