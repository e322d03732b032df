#!/bin/sh
# Starts a fleet of the timed engine for `tandem loadtest --vary`, in place of the one that it started before:
#
#   tandem loadtest --vary pd=1:3,2:2,3:1 --prepare docs/loadtest/fleet.sh --rate 4 --duration 60s ...
#   tandem loadtest --vary policy=random,kv_cost --prepare 'FLEET=2:2 docs/loadtest/fleet.sh' ...
#   docs/loadtest/fleet.sh stop
#
# $VALUE is prefill:decode, or a policy's rule. Others, with what they are otherwise:
# $TANDEM (tandem), $PROFILE (deepseek-r1-tp8-h200), $FLEET (1:2), $CHUNK_TOKENS (8192), $MAX_BATCH (128),
# $LISTEN (127.0.0.1:8080), $STATE (.fleet), $MORE (nothing): other flags of `tandem up`.
set -eu
state=${STATE:-.fleet}
mkdir -p "$state"

if [ -f "$state/pid" ]; then
    pid=$(cat "$state/pid")
    kill "$pid" 2>/dev/null || true
    tries=0
    while kill -0 "$pid" 2>/dev/null; do
        tries=$((tries + 1))
        if [ "$tries" -gt 150 ]; then
            echo "the fleet before ($pid) does not end" >&2
            exit 1
        fi
        sleep 0.1
    done
    rm "$state/pid"
fi
[ "${1:-}" != stop ] || exit 0

fleet=${FLEET:-1:2}
policy=
case $VALUE in
*:*) fleet=$VALUE ;;
*)
    policy=$state/policy.toml
    printf '[policy]\nchoose = "%s"\n' "$VALUE" >"$policy"
    ;;
esac

# What the fleet before said is not to be read below.
: >"$state/log"
# shellcheck disable=SC2086 # flags
"${TANDEM:-tandem}" up --timed "${PROFILE:-deepseek-r1-tp8-h200}" --prefill "${fleet%:*}" --decode "${fleet#*:}" \
    --chunk-tokens "${CHUNK_TOKENS:-8192}" --max-batch "${MAX_BATCH:-128}" \
    --listen "${LISTEN:-127.0.0.1:8080}" --state-dir "$state/up" ${policy:+--policy "$policy"} ${MORE:-} \
    >"$state/log" 2>&1 &
pid=$!
echo "$pid" >"$state/pid"
until grep -q '^ready ' "$state/log"; do
    if ! kill -0 "$pid" 2>/dev/null; then
        rm "$state/pid"
        cat "$state/log" >&2
        exit 1
    fi
    sleep 0.1
done
