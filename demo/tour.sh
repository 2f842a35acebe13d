#!/usr/bin/env bash
# A tour of the pool: starts a server of its own with the three demo models and room for two of them,
# plays what users, administrators and accidents do to it, and checks every step. It listens on
# 127.0.0.1 only, keeps everything in a temporary folder, and leaves neither files nor processes
# behind. Ends 0 when every step holds, else 1 with the step that did not and the server's log.
#
#   bash demo/tour.sh                   the newest binaries of target/release, target/quick and target/debug; without any, it
#                                       builds target/quick
#   MODEL_POOL_BIN=… ADMIN_CLIENT_BIN=… bash demo/tour.sh           these binaries
#   OPENAI_SMOKE=1 bash demo/tour.sh    also fetches the openai package, into the temporary folder;
#                                       without it the package is used if it is installed, 0: not at all
#   TOUR_VLLM=target/vllm/bin/vllm bash demo/tour.sh
#                                       tiny-guide runs in this vLLM (`bash .ci/vllm` brings one); takes minutes
set -euo pipefail

if ((BASH_VERSINFO[0] < 5)) || [[ ! -d /proc/self ]] || ! command -v curl >/dev/null; then
    echo "the tour needs Linux, curl and bash 5 or later; this is bash $BASH_VERSION" >&2
    exit 1
fi

model_pool=${MODEL_POOL_BIN:+$(realpath "$MODEL_POOL_BIN")}
admin_client=${ADMIN_CLIENT_BIN:+$(realpath "$ADMIN_CLIENT_BIN")}
openai_smoke=${OPENAI_SMOKE:-if-installed}
vllm=${TOUR_VLLM:+$(realpath -s "$TOUR_VLLM")}
# Paths of the shipped model files count from the folder that the server is started in.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly repository=$PWD
# A setting of whoever runs this is not meant for the tour's server.
for name in $(compgen -e MODEL_POOL || true) RUST_LOG; do
    unset "$name"
done
export LC_ALL=C NO_COLOR=1

# Seconds that the story may take, without building and without fetching Python packages.
limit_s=60
# Time limit of the tour for events that should be immediate.
patience_s=10
# How long one request or command may take.
call_s=20
# The memory for all three models, of which two fit.
memory="64MiB"
headroom="5%"
too_big_gib=1
if [[ -n $vllm ]]; then
    # Each start of vLLM takes half a minute or more, and it reserves 4 GiB.
    limit_s=1800 patience_s=300 call_s=300 memory="4130MiB" headroom="0%" too_big_gib=8
fi
readonly limit_s patience_s call_s

state=$(mktemp -d "${TMPDIR:-/tmp}/model-pool-tour.XXXXXX")
readonly state
readonly log=$state/server.log
server=
step=0
title="the preparations"

# ---- what happens in the end, whatever the end is ----

# Processes of this tour: the server is given a file of the state folder, each engine a socket in it.
processes() {
    local file words
    for file in /proc/[0-9]*/cmdline; do
        # A process may be gone before it is read; one that has ended has no command line.
        { mapfile -d '' -t words <"$file"; } 2>/dev/null || continue
        file=${file#/proc/}
        [[ ${words[*]} != *"$state/"* ]] || echo "${file%/cmdline} ${words[*]}"
    done
}

finish() {
    local status=$? pid rest
    trap - EXIT INT TERM
    if ((status != 0)); then
        {
            printf '\n✗ %2d  %s\n' "$step" "$title"
            [[ ! -s $log ]] || printf '\nThe end of the log of the server:\n%s\n' "$(tail -n 60 "$log")"
        } >&2
    fi
    if [[ -n $server ]]; then
        kill "$server" 2>/dev/null || true
        ended_within "$patience_s" || kill -KILL "$server" 2>/dev/null || true
    fi
    while read -r pid rest; do
        kill -KILL "$pid" 2>/dev/null || true
    done < <(processes)
    rm -rf "$state"
    exit "$((status == 0 ? 0 : 1))"
}
trap finish EXIT
trap 'title="$title: stopped from outside"; exit 1' INT TERM

# Ends the tour; the first line says what did not hold.
fail() {
    printf '%s\n' "" "$@" >&2
    exit 1
}

# ---- how a step is told and checked ----

begin() {
    step=$((step + 1))
    title=$1
    ((SECONDS <= limit_s)) || fail "the tour has taken ${SECONDS} s, more than its $limit_s s"
}

# One line for a step that held. What is not said here is not shown.
done_with() {
    printf '✓ %2d  %s\n' "$step" "$1"
}

contains() {
    local text=$1 part=$2 what=$3
    [[ $text == *"$part"* ]] || fail "$what" "  expected to find: $part" "  in: $text"
}

lacks() {
    local text=$1 part=$2 what=$3
    [[ $text != *"$part"* ]] || fail "$what" "  did not expect: $part" "  in: $text"
}

# What the last command of admin-client answered has all these parts.
shows() {
    local part
    for part in "$@"; do
        contains "$answer" "$part" "the answer to: admin-client $asked"
    done
}

# Waits until a command succeeds: wait_until WHAT COMMAND…
wait_until() {
    local what=$1 end=$((SECONDS + patience_s))
    shift
    until "$@"; do
        ((SECONDS < end)) || fail "$what: not within $patience_s s"
        sleep 0.05
    done
}

# The first value of a key in compact JSON, text without its quotes.
value() {
    local name=$1 json=$2
    sed -E 's/^"[^"]*":"?//; s/"$//' <<<"$(grep -oE "\"$name\":(\"[^\"]*\"|[^],}]*)" <<<"$json" | head -n 1)"
}

# ---- administrators ----

# Runs admin-client, which is to end with the given status; what it says is in $answer, as JSON. No
# command may hang the tour.
client() {
    local expected=$1 status=0
    shift
    asked=$*
    answer=$(timeout --foreground "$call_s" "$admin_client" --json "$@" 2>"$state/client.err" </dev/null) || status=$?
    ((status == expected)) ||
        fail "admin-client $asked: exit status $status, expected: $expected" "$(cat "$state/client.err")" "$answer"
}

admin() { client 0 "$@"; }
refused() { client 1 "$@"; }

# Whether a model is in this state; what is known of it is in $answer.
is() {
    admin show "$1"
    [[ $(value state "$answer") == "$2" ]]
}

# Models that are in this state now: must_be STATE MODEL…
must_be() {
    local model
    for model in "${@:2}"; do
        is "$model" "$1" || fail "$model is $(value state "$answer"); expected: $1" "$answer"
    done
}

# Whether the history knows of it: has_event MODEL KIND TEXT
has_event() {
    admin events --model "$1" --kind "$2"
    [[ $answer == *"$3"* ]]
}

# ---- users ----

chat_body() {
    local model=$1 question=$2 stream=$3
    printf '{"model":"%s","temperature":0,"stream":%s,"messages":[{"role":"user","content":"%s"}]}' \
        "$model" "$stream" "$question"
}

# Posts a chat; head, body and status lie in $state/NAME.{head,body,code}.
post_chat() {
    local name=$1 path=$2 body=$3
    curl --silent --no-buffer --max-time "$call_s" --header 'Content-Type: application/json' \
        --dump-header "$state/$name.head" --output "$state/$name.body" --write-out '%{http_code}' \
        --data "$body" "$url$path" >"$state/$name.code" || true
}

# Asks, expects 200, and keeps what the model said in $said.
ask() {
    local model=$1 question=$2
    post_chat ask /v1/chat/completions "$(chat_body "$model" "$question" false)"
    [[ $(cat "$state/ask.code") == 200 ]] ||
        fail "$model did not answer: $(cat "$state/ask.code") $(cat "$state/ask.body")"
    said=$(sed -nE 's/.*"content":"([^"]*)".*/\1/p' "$state/ask.body")
}

# The status of a plain GET.
get() {
    curl --silent --max-time 10 --output "$state/get.body" --write-out '%{http_code}' "$@" || true
}

# ---- the server ----

is_ready() {
    local found
    kill -0 "$server" 2>/dev/null || fail "the server ended by itself"
    found=$(sed -nE 's,.*serving (http://127\.0\.0\.1:[0-9]+)/v1.*,\1,p' "$log" | tail -n 1)
    [[ -n $found ]] && url=$found && [[ $(get "$url/llm/ready") == 200 ]]
}

# Starts the server on a free port and sets $url.
start_server() {
    url=
    : >"$log"
    "$model_pool" --config "$state/model-pool.yaml" </dev/null >>"$log" 2>&1 &
    server=$!
    wait_until "the server was to become ready" is_ready
    export MODEL_POOL_SERVER=$url
    export MODEL_POOL_ADMIN_KEY_FILE=$state/data/admin.key
}

# Whether the server has ended within so many seconds. It is reaped by the one who waits for it.
ended_within() {
    local end=$((SECONDS + $1))
    while [[ $'\n'$(jobs -rp)$'\n' == *$'\n'"$server"$'\n'* ]]; do
        ((SECONDS < end)) || return 1
        sleep 0.02
    done
}

# ---- binaries and configuration ----

if [[ -z $model_pool || -z $admin_client ]]; then
    built=${CARGO_TARGET_DIR:-$repository/target}
    folder=
    for other in "$built/release" "$built/quick" "$built/debug"; do
        [[ -x $other/model-pool && -x $other/admin-client ]] || continue
        [[ -n $folder && ! $other/model-pool -nt $folder/model-pool ]] || folder=$other
    done
    if [[ -z $folder ]]; then
        echo "building model-pool and admin-client once; this takes minutes"
        cargo build --profile quick --package model-pool --package admin-client
        folder=$built/quick
    fi
    model_pool=${model_pool:-$folder/model-pool}
    admin_client=${admin_client:-$folder/admin-client}
fi
for binary in "$model_pool" "$admin_client"; do
    [[ -x $binary ]] || fail "$binary: there is no such program"
done
echo "a tour of $("$model_pool" version), with $model_pool"

# The evening is off: at night the always-hot model would not be there. Requests wait shortly, and
# those who wait hear of it often, so that the tour is quick.
models=$repository/config/models
if [[ -n $vllm ]]; then
    models=$state/models
    mkdir "$models"
    for file in "$repository"/config/models/*.yaml; do
        sed "s,\.\./\.\./demo,$repository/demo," "$file" >"$models/${file##*/}"
    done
    # Its processes are known by a path in the state folder.
    ln -s "$repository/demo/models/tiny-guide" "$state/tiny-guide"
    cat >"$models/tiny-guide.yaml" <<YAML
engine_config:
  model_id: tiny-guide
  type: VLLMEngine
  model_path: $state/tiny-guide
  program: $vllm
  max_total_tokens: 512
  engine_kwargs: {dtype: float32, enforce_eager: true}
  env: {OMP_NUM_THREADS: "1", PYTHONDONTWRITEBYTECODE: ""}
deployment_config: {max_ongoing_requests: 8}
pool_config: {priority: 2, memory_gib: 4, load_deadline: 15m, queue_timeout: 10m}
YAML
fi
cat >"$state/model-pool.yaml" <<YAML
server: {listen: "127.0.0.1:0", keep_alive_comment: 300ms}
state: {dir: "$state/data"}
inventory: {provider: host, host_memory: $memory, headroom: $headroom}
# The demo's models load in milliseconds, so an idle one of higher priority would yield immediately.
pool: {queue_timeout: 3s, idle_yields: 30s}
evening: {cleanup: null, reopen: null}
catalog: {models_dir: "$models", model_reference: "$repository/model_reference.json"}
YAML
cat >"$state/too-big.yaml" <<YAML
engine_config: {model_id: lab/too-big, type: CandleEngine, model_path: demo/models/tiny-chat}
pool_config: {memory_gib: $too_big_gib, priority: 5}
YAML
cat >"$state/broken.yaml" <<'YAML'
engine_config:
  model_id: lab/broken
  type: CommandEngine
  command: [sh, -c, "echo the weights of {{ model_name }} are not here >&2; exit 3", sh, "{{ port }}"]
pool_config: {memory_gib: 0.001}
YAML

# ---- the story ----

SECONDS=0

begin "an always-hot model is there from the start"
start_server
wait_until "tiny-guide was to be loaded at the start" is tiny-guide ready
shows '"always_hot":true' 'always-hot, priority 2 (P4)'
must_be cold tiny-chat tiny-helper
[[ $(get "$url/llm/admin/models") == 401 ]] || fail "without a key the admin API was to answer 401"
done_with "tiny-guide (priority 2) is loaded at the start without a request; the admin API requires a key"

begin "talk to it"
ask tiny-guide "What is keep-hot?"
plain=$said
contains "$plain" "how long a model stays loaded" "tiny-guide was to know what keep-hot is"
post_chat stream /llm/v1/chat/completions "$(chat_body tiny-guide "What is keep-hot?" true)"
[[ $(cat "$state/stream.code") == 200 ]] || fail "the stream was to answer 200" "$(cat "$state/stream.body")"
pieces=$(grep -cE '^data: \{.*"content":"[^"]' "$state/stream.body" || true)
streamed=$(sed -nE 's/^data: .*"content":"([^"]*)".*/\1/p' "$state/stream.body" | tr -d '\n')
((pieces > 5)) || fail "the answer was to come in pieces, and came in $pieces" "$(cat "$state/stream.body")"
[[ $streamed == "$plain" ]] || fail "the stream says something else" "  plain:    $plain" "  streamed: $streamed"
contains "$(cat "$state/stream.body")" "data: [DONE]" "a stream ends with [DONE]"
done_with "plain and in $pieces pieces it says the same: \"$plain\""

begin "load a model by talking to it"
ask tiny-chat "Who are you?"
contains "$said" tiny-chat "tiny-chat was to introduce itself"
must_be ready tiny-chat
done_with "tiny-chat was cold, is loaded on demand, and says: \"$said\""

begin "a higher priority evicts a lower one"
admin show tiny-chat
evicted=$(value replica "$answer")
ask tiny-helper "What is a priority?"
contains "$said" "riorit" "tiny-helper was to know what a priority is"
must_be ready tiny-helper
wait_until "tiny-chat was to be gone" is tiny-chat cold
must_be ready tiny-guide
wait_until "the history was to tell of the eviction" has_event tiny-chat evict "$evicted"
shows "preempted by tiny-helper: priority 1 over 0 (P2)"
done_with "only two of three fit: $evicted of tiny-chat was $(value reason "$answer")"

begin "what cannot be had is refused with numbers"
refused load tiny-chat
shows '"code":"no_room"' "held by tiny-helper" "of higher priority" "MiB"
post_chat plain /v1/chat/completions "$(chat_body tiny-chat "Hello" false)" &
users=$!
post_chat waits /v1/chat/completions "$(chat_body tiny-chat "Hello" true)" &
users+=" $!"
both_wait() {
    admin queue
    [[ $answer == *'"model":"tiny-chat"'*'"model":"tiny-chat"'* ]]
}
wait_until "two requests were to wait for tiny-chat" both_wait
# shellcheck disable=SC2086 # two numbers
wait $users
code=$(cat "$state/plain.code")
[[ $code == 503 ]] || fail "a request that waited in vain was to get 503, not $code" "$(cat "$state/plain.body")"
grep -qiE '^retry-after: [0-9]+' "$state/plain.head" || fail "a 503 has Retry-After" "$(cat "$state/plain.head")"
contains "$(cat "$state/waits.body")" ": waiting position=" "who streams hears where it stands (Q2)"
contains "$(cat "$state/waits.body")" '"queue_timeout"' "a stream that waited in vain ends with an error"
admin register "$state/too-big.yaml"
refused load lab/too-big --force
shows '"code":"never_fits"' "(M6)"
must_be ready tiny-guide tiny-helper
admin show tiny-chat
shows '"waiting":0'
done_with "tiny-chat finds no room: load is refused immediately, users get 503 after 3 s in the queue; lab/too-big never fits (M6)"

begin "always-hot yields to an administrator's force only"
admin set tiny-helper --priority 3
refused load tiny-chat --priority 9
shows "held by tiny-guide" "always-hot (P4)"
must_be ready tiny-guide
admin show tiny-chat
shows '"priority":0' '"override":null'
admin load tiny-chat --force
shows '"status":"ready"' '"model":"tiny-guide","priority":2' "forced out by tiny-chat"
must_be cold tiny-guide
admin unload tiny-helper
admin set tiny-helper --priority none
admin load tiny-guide
must_be ready tiny-guide tiny-chat
done_with "not even priority 9 evicts tiny-guide; load --force does (P4)"

begin "an idle model leaves when its keep-hot time is over"
admin set tiny-chat --keep-hot 2s
ask tiny-chat "Hello"
idle_since_us=${EPOCHREALTIME/./}
# Looking at a model, as this does, must not keep it (L2).
wait_until "tiny-chat was to leave after 2 s" is tiny-chat cold
idle_ms=$(((${EPOCHREALTIME/./} - idle_since_us) / 1000))
((idle_ms >= 1900 && idle_ms <= 3500)) || fail "tiny-chat left after $idle_ms ms; it was to leave within a second of 2 s"
wait_until "the history was to tell of it" has_event tiny-chat drain "its keep-hot time (L2)"
admin set tiny-chat --keep-hot none
shows '"override":null'
must_be ready tiny-guide
done_with "tiny-chat, kept for 2 s, was gone $idle_ms ms after its last answer; tiny-guide stays (L2, P4)"

begin "a plan shows what would happen and does nothing"
ask tiny-chat "Hello"
admin show tiny-chat
victim=$(value replica "$answer")
wait_until "the history was to know $victim" has_event tiny-chat ready "\"replica\":\"$victim\""
admin events --limit 1
before=$answer
admin plan tiny-helper
shows '"feasible":true' "\"victims\":[{\"replica\":\"$victim\",\"model\":\"tiny-chat\""
plan_reason=$(value reason "${answer#*\"victims\":}")
admin events --limit 1
[[ $answer == "$before" ]] || fail "a plan left a trace in the history" "  before: $before" "  after:  $answer"
admin show tiny-chat
shows "\"replica\":\"$victim\",\"state\":\"ready\""
must_be cold tiny-helper
done_with "loading tiny-helper would evict $victim of tiny-chat, $plan_reason; nothing was done"

begin "who owns the memory"
admin devices
shows '"model":"tiny-guide"' '"model":"tiny-chat"'
reserved=$(value reserved_bytes "$answer")
total=$(value total_bytes "$answer")
headroom=$(value headroom_bytes "$answer")
owned=0
while read -r bytes; do
    owned=$((owned + bytes))
done < <(grep -oE '"bytes":[0-9]+' <<<"$answer" | grep -oE '[0-9]+')
((owned == reserved)) || fail "the owners have $owned bytes together, and $reserved are reserved" "$answer"
((reserved <= total - headroom)) || fail "$reserved bytes are reserved of $total with $headroom to stay free (M3)"
[[ $(get "$url/metrics") == 200 ]] || fail "/metrics was to answer 200"
contains "$(cat "$state/get.body")" 'model_pool_evictions_total{' "the metrics count evictions"
done_with "tiny-guide and tiny-chat hold $((reserved >> 20)) of $((total >> 20)) MiB, and the $((headroom >> 20)) MiB of headroom are free (M3)"

begin "one name for several models"
# A call of the admin API for the virtual model; prints the status.
virtual() {
    get --request "$1" --header "Authorization: Bearer $(<"$MODEL_POOL_ADMIN_KEY_FILE")" \
        --header 'Content-Type: application/json' "${@:2}" "$url/llm/admin/virtual_models?model=lab/any"
}
code=$(virtual PUT --data '{"any_of":["tiny-helper","tiny-chat"]}')
[[ $code == 200 ]] || fail "the virtual model was to be created, not $code" "$(cat "$state/get.body")"
ask lab/any "Who are you?"
contains "$said" tiny-chat "tiny-chat was to introduce itself"
member=$(sed -nE 's/^x-model-pool-model: ([^[:space:]]+).*/\1/pI' "$state/ask.head")
[[ $member == tiny-chat ]] || fail "the header was to name tiny-chat, not: $member" "$(cat "$state/ask.head")"
must_be ready tiny-guide tiny-chat
must_be cold tiny-helper
code=$(virtual DELETE)
[[ $code == 200 ]] || fail "the virtual model was to be removed, not $code" "$(cat "$state/get.body")"
post_chat ask /v1/chat/completions "$(chat_body lab/any "Who are you?" false)"
[[ $(cat "$state/ask.code") == 404 ]] || fail "a removed name was to be unknown" "$(cat "$state/ask.body")"
done_with "lab/any stands for tiny-helper and tiny-chat: x-model-pool-model names $member, which is ready, and nothing was swapped"

begin "an assistant plans a change, and carries out exactly that"
# Calls a tool over the Model Context Protocol; the response is in $state/get.body.
tool() {
    local code
    code=$(get --header "Authorization: Bearer $(<"$MODEL_POOL_ADMIN_KEY_FILE")" --header 'Content-Type: application/json' \
        --header 'Accept: application/json, text/event-stream' "$url/llm/mcp" \
        --data "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"$1\",\"arguments\":$2}}")
    [[ $code == 200 ]] || fail "the tool $1 was to respond with 200, not $code" "$(cat "$state/get.body")"
}
tool plan_unload '{"model":"tiny-chat"}'
token=$(value token "$(cat "$state/get.body")")
[[ -n $token ]] || fail "a plan has a token" "$(cat "$state/get.body")"
must_be ready tiny-chat
tool apply "{\"token\":\"$token\"}"
contains "$(cat "$state/get.body")" '"isError":false' "the plan was to be carried out"
wait_until "tiny-chat was to be unloaded" is tiny-chat cold
tool apply "{\"token\":\"$token\"}"
contains "$(cat "$state/get.body")" '"isError":true' "a plan is carried out once"
ask tiny-chat "Hello"
must_be ready tiny-guide tiny-chat
done_with "over the Model Context Protocol plan_unload changes nothing and gives a token, and apply unloads tiny-chat once"

begin "the evening cleanup, now"
admin cleanup --preview
shows '"model":"tiny-guide"' '"unloaded":[]'
must_be ready tiny-guide tiny-chat
admin cleanup
lacks "$answer" '"unloaded":[]' "the cleanup unloads"
must_be cold tiny-guide tiny-chat tiny-helper
admin devices
shows '"reserved_bytes":0'
# Nothing is to happen here, and only time shows that.
sleep 1
must_be cold tiny-guide
ask tiny-guide "Hello"
has_an_end() {
    admin show "$1"
    [[ $answer == *'"state":"ready"'* && $answer != *'"expires_at":null'* ]]
}
wait_until "after the cleanup tiny-guide was to leave by keep-hot like others (E2)" has_an_end tiny-guide
done_with "it empties the pool; even tiny-guide stays cold until a request, the morning or a restart (E1, E2)"

begin "kill -9 of the server loses nothing that was promised"
admin set tiny-chat --priority 1 --keep-hot 20m --lease 2h
admin load tiny-chat
admin show tiny-chat
lease=$(value expires_at "${answer#*\"override\":}")
admin keys create tour --role admin
key=$(value key "$answer")
engines=$(processes | grep ' engine ' | cut -d ' ' -f 1)
# The shell's own word about a killed child belongs nowhere.
{
    kill -KILL "$server"
    wait "$server"
} 2>/dev/null || true
start_server
wait_until "tiny-chat was to be found again" is tiny-chat ready
shows "found after a restart (D2)" '"priority":1' '"priority_from":"override"' '"keep_hot_ms":1200000'
shows "\"expires_at\":\"$lease\""
wait_until "tiny-guide was to be found again" is tiny-guide ready
shows "found after a restart (D2)"
admin show lab/too-big
shows '"source":"registered"'
MODEL_POOL_ADMIN_KEY=$key admin keys list
shows '"name":"tour"'
lacks "$answer" "$key" "and is not shown again"
has_event tiny-chat evict "preempted by tiny-helper" || fail "the history was to survive" "$answer"
for pid in $engines; do
    [[ " $(processes | cut -d ' ' -f 1 | tr '\n' ' ')" == *" $pid "* ]] ||
        fail "engine $pid was to go on without the server" "$(processes)"
done
[[ $(processes | wc -l) -eq 3 ]] || fail "a server and two engines were to run" "$(processes)"
done_with "it comes back with priority, lease, key, registration and history (D1), and finds both engines where it left them (D2)"

begin "an engine that fails says why"
admin register "$state/broken.yaml"
refused load lab/broken
shows '"code":"load_failed"' "the weights of lab/broken are not here"
must_be cooling lab/broken
admin logs lab/broken
shows '"line":"the weights of lab/broken are not here"'
admin remove lab/broken
refused show lab/broken
done_with "lab/broken answers with its engine's last words, cools down (L3), and logs shows them"

begin "the report adds up"
admin report --from 1h
total=${answer##*\"total\":}
# Events of a kind in this hour, of which those that have TEXT count: counted KIND [TEXT]
counted() {
    admin events --since 1h --limit 1000 --kind "$1"
    grep -oE '"kind":"'"$1"'"[^}]*' <<<"$answer" | grep -c "${2:-}" || true
}
sum_of() {
    local part=${total#*\"$1\":\{} number sum=0
    for number in $(grep -oE '[0-9]+' <<<"${part%%\}*}"); do
        sum=$((sum + number))
    done
    echo "$sum"
}
loads=$(value loads "$total")
failed=$(value failed_loads "$total")
evictions=$(sum_of evictions)
for pair in "$loads $(counted ready)" "$failed $(counted load_failed)" "$evictions $(counted evict)"; do
    [[ ${pair% *} == "${pair#* }" ]] || fail "the report has ${pair% *}, and the history ${pair#* }" "$total"
done
((loads >= 8 && failed >= 1 && evictions >= 2)) || fail "that is less than the tour has seen" "$total"
done_with "$loads loads, $failed failed, $evictions evictions: as many as the history of this hour has (D3)"

begin "an OpenAI client"
python=
if [[ $openai_smoke == 1 ]]; then
    fetching=$SECONDS
    { python3 -m venv "$state/venv" && "$state/venv/bin/pip" install --no-cache-dir openai; } >"$state/pip.log" 2>&1 ||
        fail "the openai package cannot be fetched" "$(cat "$state/pip.log")"
    python=$state/venv/bin/python
    SECONDS=$fetching
elif [[ $openai_smoke == if-installed ]] && python3 -c 'import openai' >/dev/null 2>&1; then
    python=python3
fi
if [[ -n $python ]]; then
    # It talks to all three models, so that they change places on the way.
    admin set tiny-chat --priority none --keep-hot none --lease none
    smoke=$("$python" -B demo/openai_smoke.py "$url/v1" 2>&1) || fail "demo/openai_smoke.py" "$smoke"
    done_with "the openai package ${smoke##*$'\n'}"
else
    printf -- '– %2d  left out: the openai package is not installed; OPENAI_SMOKE=1 fetches it for the tour alone\n' "$step"
fi

begin "unload, and the end"
admin load tiny-guide
admin unload tiny-guide
shows '"unloaded":["'
must_be cold tiny-guide
refused unload tiny-guide
ask tiny-guide "Bye"
kill -TERM "$server"
ended_within "$((patience_s + 5))" || fail "the server did not end within $((patience_s + 5)) s of SIGTERM"
status=0
{ wait "$server"; } 2>/dev/null || status=$?
server=
((status == 0)) || fail "the server's exit status is $status, not 0"
[[ -z $(processes) ]] || fail "processes are left behind" "$(processes)"
done_with "unload takes even always-hot models; SIGTERM ends the server with status 0 and leaves no process behind (D2)"

echo "the tour is over: $step steps in $SECONDS s"
