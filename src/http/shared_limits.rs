//! All limits, pools and queues that callers share (B1): the rows of the table in docs/guides/security.md. A test compares the rows
//! with the constructs in the code, and another exhausts each limit as a single caller.

use crate::standby::PASSED_ON_MAX;
use config::Config;
use controller::{ADAPTER_LOOKUPS_MAX, ADAPTER_MISSES_MAX, HUB_LOOKUPS_MAX};
use edge::{ADMIN_PART, BUFFERS_PART, RESERVED_PART, SMALL_MAX};
use gateway::credentials::failures::{
    FAILING_ADDRESSES_MAX, FailureLimit, WRONG_LOGINS, WRONG_NODE_TOKENS, WRONG_SIGN_ONS,
};
use gateway::credentials::sessions;
use gateway::credentials::strangers::STRANGERS_A_MINUTE;
use gateway::inference::response::slow_reader::STALLED_MAX;
use gateway::model_cards::CARD_READERS;
use gateway::open_background::BACKGROUND_MAX;
use gateway::plan_turns::PLANS_MAX;

/// A limit that callers share.
#[derive(Clone, Debug)]
pub struct SharedLimit {
    pub bounds: &'static str,
    pub size: String,
    /// The part available to one caller.
    pub share: String,
    /// The order in which callers lose what they hold.
    pub eviction: &'static str,
    /// The effect on other callers while one caller uses its share.
    pub others: &'static str,
    /// Source files that contain the constructs, one entry per construct.
    pub code: &'static [&'static str],
    /// Tests that exhaust the limit as a single caller.
    pub tests: &'static [&'static str],
}

const HALF: &str = "half of what the others leave";
const TURNS: &str = "waiting callers take turns";
const NONE: &str = "none";

/// The rows of the table.
pub fn shared_limits() -> Vec<SharedLimit> {
    let defaults = Config::default();
    let server = &defaults.server;
    let memory = server.bodies_memory;
    vec![
        SharedLimit {
            bounds: "connections",
            size: format!(
                "`server.connections_max` ({}), fewer if open files are",
                server.connections_max
            ),
            share: format!(
                "an address: {HALF}, and `server.connections_per_address`; a trusted proxy and this machine: all but one in {RESERVED_PART}"
            ),
            eviction: "connections without a request after `server.idle_timeout`; nothing earlier",
            others: NONE,
            code: &["src/edge/seats.rs"],
            tests: &["no_address_can_take_all_connections"],
        },
        SharedLimit {
            bounds: "memory for request bodies",
            size: format!("`server.bodies_memory` ({memory})"),
            share: format!(
                "a key, or an address without one: {HALF}. Bodies over {} KiB have three quarters; one part in {ADMIN_PART} is for administrators",
                SMALL_MAX >> 10
            ),
            eviction: "arriving bodies of the caller with the most, the slowest first, then the largest; slow bodies of a caller whose other bodies wait",
            others: NONE,
            code: &["src/edge/bodies.rs"],
            tests: &["b1_one_caller_with_idle_bodies_delays_no_other"],
        },
        SharedLimit {
            bounds: "memory for responses that are not read",
            size: format!("one part in {BUFFERS_PART} of `server.bodies_memory`, in addition to it"),
            share: format!("a key, or an address without one: {HALF}"),
            eviction: "the stream of the reader whose buffer is full",
            others: NONE,
            code: &["src/edge/lib.rs"],
            tests: &["b1_readers_that_stall_free_their_seats"],
        },
        SharedLimit {
            bounds: "recordings in engines, until their transcripts end",
            size: format!("`server.recordings_max` ({})", server.recordings_max),
            share: format!("a key, or an address without one: {HALF}"),
            eviction: "none: a recording waits `server.body_timeout`, then gets a 429",
            others: NONE,
            code: &["src/gateway/recordings.rs"],
            tests: &["b1_a_caller_with_many_recordings_leaves_room_for_those_of_another"],
        },
        SharedLimit {
            bounds: "seats of a model",
            size: "`max_ongoing_requests` of its file".to_owned(),
            share: format!(
                "{TURNS}; a reader that takes nothing for {} s while others wait loses its stream",
                STALLED_MAX.as_secs()
            ),
            eviction: "readers that stall; no others",
            others: "the time that the engine needs for the requests inside",
            code: &["src/controller/gates/gate.rs"],
            tests: &["b1_readers_that_stall_free_their_seats"],
        },
        SharedLimit {
            bounds: "queue of a model",
            size: format!("`pool.queue_limit` ({})", defaults.pool.queue_limit),
            share: "keys take turns; requests without a key are one caller".to_owned(),
            eviction: "if it is full, the last request of the key with the most, for a key with fewer",
            others: NONE,
            code: &["src/pool/types/queue.rs"],
            tests: &["b1_a_full_queue_keeps_a_place_for_another_caller"],
        },
        SharedLimit {
            bounds: "workers that read bodies, check texts and count tokens, and their memory",
            size: "`server.reading_workers`, `validation_workers`, `token_workers`; a quarter, an eighth and an eighth of `server.bodies_memory`".to_owned(),
            share: TURNS.to_owned(),
            eviction: NONE,
            others: "the work that has begun: one body",
            code: &[
                "src/gateway/reading.rs",
                "src/gateway/reading.rs",
            ],
            tests: &["b1_a_caller_with_many_long_bodies_delays_another_caller_by_one_body"],
        },
        SharedLimit {
            bounds: "readers of model cards",
            size: CARD_READERS.to_string(),
            share: TURNS.to_owned(),
            eviction: NONE,
            others: "the card that is being read",
            code: &["src/gateway/model_cards.rs"],
            tests: &["waiting_callers_take_turns_and_cancelled_waits_are_skipped"],
        },
        SharedLimit {
            bounds: "frames of HTTP/2 without a request",
            size: "1,000 on a connection, 200 more in each second, and what responses earn".to_owned(),
            share: "a connection has its own".to_owned(),
            eviction: "the connection",
            others: NONE,
            code: &["src/edge/frame_budget.rs"],
            tests: &["b1_a_flood_of_frames_ends_its_connection"],
        },
        SharedLimit {
            bounds: "requests that a standby passes on",
            size: PASSED_ON_MAX.to_string(),
            share: format!("an address: {HALF}"),
            eviction: NONE,
            others: NONE,
            code: &["src/http/standby/mod.rs"],
            tests: &["each_caller_gets_half_of_the_remaining_memory"],
        },
        SharedLimit {
            bounds: "wrong keys at the login, and wrong codes of the issuer",
            size: format!("{FAILING_ADDRESSES_MAX} addresses each"),
            share: format!(
                "an address: {} and {}; a valid one always counts",
                limit(WRONG_LOGINS),
                limit(WRONG_SIGN_ONS)
            ),
            eviction: "the address with the oldest window",
            others: NONE,
            code: &["src/gateway/state.rs", "src/gateway/state.rs"],
            tests: &["b1_wrong_keys_at_the_login_do_not_delay_a_valid_key"],
        },
        SharedLimit {
            bounds: "wrong tokens of nodes",
            size: format!("{FAILING_ADDRESSES_MAX} addresses; those over their limit are checked one at a time"),
            share: format!(
                "an address: {}; a valid one always counts",
                limit(WRONG_NODE_TOKENS)
            ),
            eviction: "the address with the oldest window",
            others: NONE,
            code: &["src/gateway/credentials/node_connections.rs", "src/gateway/credentials/node_connections.rs"],
            tests: &["b1_wrong_tokens_do_not_keep_out_a_node_with_a_valid_one"],
        },
        SharedLimit {
            bounds: "nodes and their devices",
            size: format!("{} nodes, 256 devices each", controller::NODES_MAX),
            share: format!(
                "an address: {} devices",
                controller::DEVICES_PER_ADDRESS_MAX
            ),
            eviction: "none: a further node is refused, and tries again",
            others: NONE,
            code: &[],
            tests: &["b3_one_address_cannot_fill_the_pool_with_devices"],
        },
        SharedLimit {
            bounds: "sessions of browsers",
            size: sessions::ALL_MAX.to_string(),
            share: format!("a key or a person: {}", sessions::OF_ONE_MAX),
            eviction: "the oldest of the same key or person, then the oldest",
            others: NONE,
            code: &["src/gateway/credentials/sessions.rs"],
            tests: &["sessions_are_bounded_and_users_cannot_displace_administrators"],
        },
        SharedLimit {
            bounds: "plans of MCP that wait for their `apply`",
            size: format!("of each key, for {} s", mcp::TOKEN_LIFETIME.0 / 1_000),
            share: format!("a key or a person: {}", mcp::PLANS_PER_KEY_MAX),
            eviction: "the oldest of the same key or person",
            others: NONE,
            code: &[],
            tests: &["b1_a_key_with_many_plans_displaces_only_its_own"],
        },
        SharedLimit {
            bounds: "attempts by non-administrators in the audit",
            size: format!("{STRANGERS_A_MINUTE} in a minute"),
            share: "none: first come".to_owned(),
            eviction: NONE,
            others: "their attempts are refused as before, but not recorded",
            code: &["src/gateway/credentials/strangers.rs"],
            tests: &["audited_anonymous_requests_are_limited_per_minute"],
        },
        SharedLimit {
            bounds: "adapters that are looked up",
            size: format!(
                "{ADAPTER_LOOKUPS_MAX} waiting, 8 in folders and 8 in buckets at a time, {ADAPTER_MISSES_MAX} unknown names in a second"
            ),
            share: "a key or an address: three quarters of what the others leave, 3 at a time".to_owned(),
            eviction: NONE,
            others: NONE,
            code: &[
                "src/controller/lookups/adapter_lookups.rs",
                "src/controller/lookups/adapter_lookups.rs",
                "src/controller/lookups/adapter_lookups.rs",
                "src/controller/lookups/adapter_lookups.rs",
                "src/controller/lookups/adapter_lookups.rs",
            ],
            tests: &["b1_a_user_who_invents_adapter_names_leaves_lookups_to_others"],
        },
        SharedLimit {
            bounds: "models that are looked up on the hub and registered",
            size: format!(
                "{HUB_LOOKUPS_MAX} in a minute; `catalog.unknown_limit` ({}) in an hour",
                defaults.catalog.unknown_limit
            ),
            share: "a key or an address: three quarters of what the others leave".to_owned(),
            eviction: NONE,
            others: NONE,
            code: &[
                "src/controller/lookups/hub_lookups.rs",
                "src/controller/lookups/hub_lookups.rs",
            ],
            tests: &["b1_a_user_who_requests_unknown_names_does_not_block_the_hub_for_others"],
        },
        SharedLimit {
            bounds: "stored responses in memory",
            size: "`state.responses.memory`".to_owned(),
            share: "a key, a person or an address: a quarter".to_owned(),
            eviction: "the least recently used of the same holder, then of all",
            others: NONE,
            code: &["src/dialect/stored/memory.rs"],
            tests: &["an_unwritten_response_is_found_only_by_its_holder_until_it_expires_or_is_evicted"],
        },
        SharedLimit {
            bounds: "background responses that have not ended",
            size: format!("{BACKGROUND_MAX}, and on disk `state.responses.size`; 512 run at a time"),
            share: format!(
                "a key, a person or an address: `state.responses.background_per_key` ({}) and `per_key_size`, 64 run at a time",
                defaults.state.responses.background_per_key
            ),
            eviction: "none: a further request is refused",
            others: "holders take turns",
            code: &["src/gateway/open_background/turns.rs"],
            tests: &["b1_holders_take_turns_however_many_responses_one_of_them_has"],
        },
        SharedLimit {
            bounds: "simultaneous looks for programs of engines",
            size: "8".to_owned(),
            share: "none: administrators choose the programs".to_owned(),
            eviction: "a look that waits longer than 1 s is left out",
            others: "a first request waits up to 1 s longer while a file system hangs",
            code: &["src/controller/programs.rs"],
            tests: &[],
        },
        SharedLimit {
            bounds: "weights that nodes send each other",
            size: "`node.peers_at_once`; 16,384 connections of a relay".to_owned(),
            share: "none: nodes alone reach them, with a token for each transfer".to_owned(),
            eviction: NONE,
            others: "a node fetches from another source",
            code: &["src/node/peer_server.rs", "src/node/relay.rs"],
            tests: &[],
        },
        SharedLimit {
            bounds: "files that are downloaded at a time",
            size: "`models_at_once` times `files_at_once` of the sources".to_owned(),
            share: "none: the pool fetches what it loads".to_owned(),
            eviction: NONE,
            others: "the downloads of models that load",
            code: &["src/source/lib.rs"],
            tests: &[],
        },
        SharedLimit {
            bounds: "parts of files of batches that go to a bucket",
            size: "4, of 8 MiB or more".to_owned(),
            share: "a key: 4 uploads and 2 batches at a time, each with one part after the other"
                .to_owned(),
            eviction: NONE,
            others: "files take turns by parts",
            code: &["src/source/file_bucket.rs"],
            tests: &[
                "files_that_are_put_at_the_same_time_wait_for_turns_and_arrive_complete",
                "a_holder_has_two_transfers_at_a_time_and_others_begin_next_to_them",
            ],
        },
        SharedLimit {
            bounds: "plans for clients that do not wait for their model",
            size: format!("{PLANS_MAX} at a time; a plan serves its model for 250 ms"),
            share: TURNS.to_owned(),
            eviction: NONE,
            others: "the plan that is being made; after 2 s, the refusal names 10 s instead of the expected time",
            code: &["src/gateway/plan_turns.rs"],
            tests: &["b1_a_caller_that_requests_many_models_delays_another_caller_by_one_plan"],
        },
    ]
}

fn limit(limit: FailureLimit) -> String {
    format!("{} in {} s", limit.count, limit.within.0 / 1_000)
}
