//! Generates the table of tested features per engine in docs/guides/engines.md. Each cell names an existing test as evidence.
//! One file because the table is one list.

use support::root;

/// Evidence for a claim about an engine: a file below the root, and a test in it.
enum ClaimBasis {
    Tried(&'static str, &'static str),
    /// Tested, and true only under a condition that the manual describes.
    Limited(&'static str, &'static str),
    Parsed(&'static str, &'static str),
    Documented,
    /// The engine does not have the feature.
    No,
}
use ClaimBasis::{Documented, Limited, No, Parsed, Tried};

const VLLM: &str = "tests/outside/vllm/serving.rs";
const VLLM_ADAPTERS: &str = "tests/outside/vllm/adapters.rs";
const VLLM_CLIENTS: &str = "tests/outside/vllm/clients.rs";
const VLLM_FAILS: &str = "tests/outside/vllm/start_failures.rs";
const VLLM_FAULTS: &str = "tests/outside/vllm/faults.rs";
const VLLM_POOLING: &str = "tests/outside/vllm/pooling.rs";
const VLLM_TWO: &str = "tests/outside/vllm/two_models.rs";
const VLLM_FLAGS: &str = "tests/outside/vllm/flags.rs";
const LLAMA: &str = "tests/outside/llama_server.rs";
const LLAMA_LEAVING: &str = "tests/outside/llama_server/disconnects.rs";
const LLAMA_LIFE: &str = "tests/outside/llama_server/life.rs";
const LLAMA_REQUESTS: &str = "tests/outside/llama_server/requests.rs";
const EMBEDDED: &str = "tests/program/embedded.rs";
const PLAIN: &str = "tests/program/plain_requests.rs";
const LLAMA_FLAGS: &str = "tests/outside/llama_server/flags.rs";
const LLAMA_HAS: &str = "further_llama_server_features_are_available_through_the_pool";
const LLAMA_LEFT: &str = "a_pool_client_that_disconnects_leaves_no_work_running_in_llama_server";
const LLAMA_ALONE: &str =
    "llama_server_on_its_own_ends_an_abandoned_request_only_if_it_computes_no_other";
const PLAIN_LEFT: &str =
    "a_client_that_disconnects_from_a_non_streaming_request_stops_the_embedded_engine";
const SERVES: &str = "vllm_serves_in_the_pool_as_documented";
const DIES: &str = "a_killed_core_is_detected_and_requests_are_retried_or_refused_with_the_reason";
const STOPS: &str = "a_frozen_core_and_a_frozen_server_are_found_by_their_silence";
const FAILS: &str = "each_kind_of_failed_vllm_start_is_classified_by_its_message";
const PRIORITY: &str = "a_model_of_higher_priority_waits_for_the_others_streams_and_replaces_it";
const CLIENTS: &str = "python_clients_and_schemathesis_pass_with_vllm_as_with_the_embedded_engine";
const LORA: &str = "adapters_are_served_from_the_start_and_loaded_by_name_at_run_time";
const LLAMA_PARSER: &str = "llama_servers_own_parser_accepts_every_flag_of_the_table";
const PARSER: &str = "vllms_own_parser_accepts_every_flag_of_the_table_and_every_chosen_parser";
const SGLANG_PARSER: &str =
    "sglangs_own_parser_accepts_every_flag_of_the_table_and_every_chosen_parser";

const ENGINES: [&str; 4] = ["vLLM", "llama-server", "embedded", "SGLang"];

/// A claim and its evidence for each engine.
type Row = (&'static str, [ClaimBasis; 4]);

const ROWS: &[Row] = &[
    (
        "its flags",
        [
            Parsed(VLLM_FLAGS, PARSER),
            Parsed(LLAMA_FLAGS, LLAMA_PARSER),
            No,
            Parsed(VLLM_FLAGS, SGLANG_PARSER),
        ],
    ),
    (
        "chats and completions, in one piece and streamed",
        [
            Tried(VLLM, SERVES),
            Tried(
                LLAMA,
                "llama_server_serves_complete_and_streamed_responses_under_the_pools_model_name",
            ),
            Tried(
                LLAMA,
                "llama_server_and_the_embedded_engine_evict_each_other_by_priority",
            ),
            Documented,
        ],
    ),
    (
        "the checks of the `openai` and `anthropic` packages",
        [
            Tried(VLLM_CLIENTS, CLIENTS),
            Documented,
            Tried(
                "tests/outside/clients.rs",
                "the_openai_package_of_pypi_works",
            ),
            Documented,
        ],
    ),
    (
        "the same greedy text as the embedded engine",
        [Tried(VLLM, SERVES), Documented, No, Documented],
    ),
    (
        "a wrong request is a 400, also in a stream",
        [
            Tried(VLLM, SERVES),
            Tried(LLAMA_REQUESTS, LLAMA_HAS),
            Tried(
                "candle-engine/tests/bad_requests.rs",
                "a_wrong_field_of_a_chat_is_refused_by_its_name",
            ),
            Documented,
        ],
    ),
    (
        "tool calls through the chat template",
        [
            Tried(VLLM, SERVES),
            Tried(LLAMA_REQUESTS, LLAMA_HAS),
            Tried(
                "candle-engine/tests/tool_calls.rs",
                "a_required_call_is_made_in_the_form_of_each_family",
            ),
            Documented,
        ],
    ),
    (
        "no work remains after a client disconnects",
        [
            Tried(VLLM, SERVES),
            Tried(LLAMA_LEAVING, LLAMA_LEFT),
            Tried(
                "candle-engine/tests/serving.rs",
                "clients_that_disconnect_free_the_worker_and_the_memory",
            ),
            Documented,
        ],
    ),
    (
        "no work remains after a client without `stream` disconnects",
        [
            Tried(VLLM, SERVES),
            Tried(LLAMA_LEAVING, LLAMA_LEFT),
            Tried(PLAIN, PLAIN_LEFT),
            Documented,
        ],
    ),
    (
        "ends a request without `stream` on its own when its client disconnects",
        [
            Tried(VLLM, SERVES),
            Limited(LLAMA_LEAVING, LLAMA_ALONE),
            Tried(PLAIN, PLAIN_LEFT),
            Documented,
        ],
    ),
    (
        "its counter of tokens moves with each token",
        [Tried(VLLM, SERVES), No, Tried(PLAIN, PLAIN_LEFT), No],
    ),
    (
        "the stages and percentage of its load are read",
        [Tried(VLLM, SERVES), Documented, Documented, Documented],
    ),
    (
        "requests use its `served_model_name`",
        [Tried(VLLM_TWO, PRIORITY), Documented, No, Documented],
    ),
    (
        "its metrics are read",
        [
            Tried(VLLM, SERVES),
            Tried(
                LLAMA_LEAVING,
                "llama_servers_metrics_are_read_during_and_after_computation",
            ),
            Tried(PLAIN, PLAIN_LEFT),
            Documented,
        ],
    ),
    (
        "adopted after `kill -9` of the controller",
        [
            Tried(VLLM, SERVES),
            Tried(
                LLAMA_LIFE,
                "after_a_controller_is_killed_the_next_one_adopts_llama_server_and_old_streams_end",
            ),
            Tried(
                EMBEDDED,
                "after_a_killed_controller_the_next_one_adopts_the_embedded_engine",
            ),
            Documented,
        ],
    ),
    (
        "is evicted for a model of higher priority",
        [
            Tried(VLLM_TWO, PRIORITY),
            Tried(
                LLAMA,
                "llama_server_and_the_embedded_engine_evict_each_other_by_priority",
            ),
            Tried(
                LLAMA,
                "llama_server_and_the_embedded_engine_evict_each_other_by_priority",
            ),
            Documented,
        ],
    ),
    (
        "exits within its `stop_grace`, without SIGKILL",
        [
            Tried(VLLM_TWO, PRIORITY),
            Documented,
            Documented,
            Documented,
        ],
    ),
    (
        "a kill is detected and reported",
        [
            Tried(VLLM_FAULTS, DIES),
            Tried(
                LLAMA,
                "killing_llama_server_mid_response_ends_the_stream_with_an_error",
            ),
            Tried(EMBEDDED, "a_killed_embedded_engine_is_found_and_reported"),
            Documented,
        ],
    ),
    (
        "a freeze (`SIGSTOP`) is detected",
        [
            Tried(VLLM_FAULTS, STOPS),
            Tried(
                LLAMA_LIFE,
                "a_frozen_llama_server_is_found_by_its_silence_and_replaced",
            ),
            Tried(EMBEDDED, "a_frozen_embedded_engine_is_found_by_its_silence"),
            Documented,
        ],
    ),
    (
        "damaged weights are reported by file",
        [
            Tried(VLLM_FAILS, FAILS),
            Tried(
                LLAMA,
                "a_truncated_file_is_reported_and_starts_no_llama_server",
            ),
            Tried(
                "candle-engine/tests/broken_models.rs",
                "truncated_weights_are_refused_with_the_first_missing_tensor",
            ),
            Documented,
        ],
    ),
    (
        "embeddings",
        [
            Tried(
                VLLM_POOLING,
                "vllm_embeddings_match_those_of_the_embedded_engine",
            ),
            Tried(
                LLAMA,
                "a_prompt_format_and_embeddings_work_with_llama_server",
            ),
            Tried(
                "candle-engine/tests/encoders.rs",
                "vectors_equal_those_of_transformers_for_every_architecture_and_pooling",
            ),
            Documented,
        ],
    ),
    (
        "ranks and scores",
        [
            Tried(
                VLLM_POOLING,
                "vllm_ranks_and_scores_match_those_of_the_embedded_engine",
            ),
            Tried(LLAMA_REQUESTS, "ranks_are_sorted_and_limited_to_top_n"),
            Tried(
                "candle-engine/tests/encoders.rs",
                "scores_equal_those_of_transformers_for_every_cross_encoder",
            ),
            Documented,
        ],
    ),
    (
        "LoRA adapters, from the start and by name",
        [
            Tried(VLLM_ADAPTERS, LORA),
            No,
            Tried(
                "tests/program/adapters.rs",
                "three_adapters_take_turns_in_room_for_two_and_respond_like_configured_ones",
            ),
            Documented,
        ],
    ),
    (
        "structured outputs, probabilities, `n`, token ids",
        [
            Tried(VLLM, SERVES),
            Tried(LLAMA_REQUESTS, LLAMA_HAS),
            Tried(
                "candle-engine/tests/strategies_and_formats.rs",
                "a_schema_response_is_json_that_matches_the_schema",
            ),
            Documented,
        ],
    ),
    (
        "a stream continues while another controller takes over",
        [
            Tried(VLLM, SERVES),
            Tried(
                LLAMA_LIFE,
                "a_llama_server_stream_continues_while_another_controller_takes_over",
            ),
            Tried(
                EMBEDDED,
                "a_stream_of_the_embedded_engine_continues_while_another_controller_takes_over",
            ),
            Documented,
        ],
    ),
    (
        "sleep and wake",
        [
            Documented,
            No,
            Tried(
                "tests/program/parking.rs",
                "the_embedded_engine_sleeps_in_its_running_process",
            ),
            Documented,
        ],
    ),
];

fn table() -> String {
    let mut text = format!("| | {} |\n|---|---|---|---|---|\n", ENGINES.join(" | "));
    for (claim, cells) in ROWS {
        let words = cells.iter().map(|cell| match cell {
            Tried(..) => "tried",
            Limited(..) => "tried: not always",
            Parsed(..) => "parsed",
            Documented => "documented",
            No => "–",
        });
        let words: Vec<&str> = words.collect();
        text += &format!("| {claim} | {} |\n", words.join(" | "));
    }
    text
}

#[test]
fn every_test_cited_by_an_engine_claim_exists() {
    for (claim, cells) in ROWS {
        for cell in cells {
            let (Tried(file, test) | Limited(file, test) | Parsed(file, test)) = cell else {
                continue;
            };
            assert!(!test.is_empty(), "{claim}: name the test in {file}");
            let text = std::fs::read_to_string(root().join(file));
            let text = text.unwrap_or_else(|error| panic!("{claim}: {file}: {error}"));
            let (before, _) = text
                .split_once(&format!("fn {test}("))
                .unwrap_or_else(|| panic!("{claim}: {file} has no {test}"));
            // The attribute is on a line above.
            let lines = before.rsplit('\n').skip(1);
            let mut above = lines.take_while(|line| !line.is_empty());
            let is_test = above.any(|line| line.starts_with("#[") && line.contains("test"));
            assert!(is_test, "{claim}: {test} in {file} is not a test");
        }
    }
}

#[test]
fn the_table_of_engine_claims_in_the_manual_is_up_to_date() {
    let path = root().join("docs/guides/engines.md");
    let text = std::fs::read_to_string(&path).expect("the manual");
    let (before, rest) = text.split_once("<!-- claims").expect("the beginning");
    let (head, rest) = rest.split_once("-->\n").expect("its end");
    let (_, after) = rest.split_once("<!-- /claims -->").expect("the end");
    let wanted = format!(
        "{before}<!-- claims{head}-->\n{}<!-- /claims -->{after}",
        table()
    );
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &wanted).expect("written");
        return;
    }
    assert!(
        wanted == text,
        "docs/guides/engines.md is not up to date; run UPDATE=1 cargo test --test plain engine_claims::"
    );
}
