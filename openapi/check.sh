#!/usr/bin/env bash
# Checks `audience.json` with two linters, and the mock against it with Schemathesis.
#
#   openapi/check.sh target/debug/audience-mock
#
# The tools are installed into a temporary directory. Those that cannot be installed are skipped, each on one line.
set -euo pipefail
mock=$(realpath "${1:?the path of audience-mock}")
cd "$(dirname "$0")"

temporary=$(mktemp -d)
server=
cleanup() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
    rm -rf "$temporary"
}
trap cleanup EXIT

# Later releases need a newer node than Debian has.
if command -v npm >/dev/null && npm install --silent --no-audit --no-fund --prefix "$temporary/npm" @redocly/cli@2.77.0 >/dev/null 2>&1; then
    echo "-- redocly"
    REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true "$temporary/npm/node_modules/.bin/redocly" lint --format json \
        audience.json >"$temporary/problems" 2>"$temporary/notices" || true
    # A warning is a problem too.
    if ! tr -d ' \n' <"$temporary/problems" | grep -q '"totals":{"errors":0,"warnings":0,'; then
        cat "$temporary/problems" "$temporary/notices"
        exit 1
    fi
    echo "0 errors, 0 warnings"
else
    echo "-- redocly: skipped, npm cannot install it"
fi

if ! { python3 -m venv "$temporary/venv" && "$temporary/venv/bin/pip" install --quiet --disable-pip-version-check \
    schemathesis==4.32.5 openapi-spec-validator==0.9.0; } >/dev/null 2>&1; then
    echo "-- openapi-spec-validator and Schemathesis: skipped, pip cannot install them"
    [ -z "${AUDIENCE_REQUIRE_ALL_TESTS:-}" ]
    exit
fi

echo "-- openapi-spec-validator"
"$temporary/venv/bin/openapi-spec-validator" audience.json

export AUDIENCE_KEY=openapi-full-key
"$mock" --port 0 --full-key "$AUDIENCE_KEY" --sending-key openapi-sending-key --seed seed.json >"$temporary/url" &
server=$!
for _ in $(seq 100); do
    grep -q '^listening on ' "$temporary/url" && break
    sleep 0.1
done
url=$(sed -n 's/^listening on //p' "$temporary/url")

# The description is the one that the mock serves.
schemathesis() {
    (cd "$temporary" && no_proxy=127.0.0.1 timeout 120 "$temporary/venv/bin/schemathesis" --config-file "$OLDPWD/schemathesis.toml" \
        run "$url/_mock/openapi.json" --url "$url" --seed 1 --generation-database none --no-color "$@") >"$temporary/report" 2>&1 ||
        { cat "$temporary/report"; exit 1; }
    grep -E '^ *(Scenarios:|API Links:|[0-9]+ generated)' "$temporary/report"
}
echo "-- Schemathesis: examples, coverage, fuzzing"
schemathesis --phases examples,coverage,fuzzing --max-examples 200
echo "-- Schemathesis: stateful"
schemathesis --phases stateful --max-time 20
