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
const LLAMA_HAS: &str = "what_it_has_beside_plain_responses_comes_through_the_pool";
const LLAMA_LEFT: &str =
    "a_client_of_the_pool_that_leaves_leaves_no_work_behind_streamed_and_plain";
const LLAMA_ALONE: &str =
    "by_itself_it_ends_a_plain_request_whose_client_left_only_where_it_computes_nothing_else";
const PLAIN_LEFT: &str = "a_plain_client_that_leaves_stops_the_embedded_engine";
const SERVES: &str = "it_serves_under_the_pool_as_its_documentation_says";
const DIES: &str =
    "a_killed_core_is_found_and_requests_are_placed_again_or_refused_with_the_reason";
const STOPS: &str = "a_stopped_core_and_a_stopped_server_are_found_by_their_silence";
const FAILS: &str = "each_kind_of_failed_start_is_known_by_vllms_own_words";
const PRIORITY: &str =
    "the_model_of_higher_priority_waits_for_the_streams_of_the_other_and_takes_its_place";
const CLIENTS: &str =
    "python_clients_and_schemathesis_find_in_it_what_they_find_in_the_embedded_engine";
const LORA: &str = "adapters_are_served_from_the_start_and_looked_for_by_their_names_while_it_runs";
const LLAMA_PARSER: &str = "llama_servers_own_parser_takes_every_flag_of_the_table";
const PARSER: &str =
    "vllms_own_parser_takes_every_flag_of_the_table_and_knows_every_parser_that_is_chosen";
const SGLANG_PARSER: &str =
    "sglangs_own_parser_takes_every_flag_of_the_table_and_knows_every_parser_that_is_chosen";

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
                "it_responds_plainly_and_as_a_stream_under_the_pools_own_name",
            ),
            Tried(
                LLAMA,
                "it_and_the_embedded_engine_evict_one_another_by_priority",
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
                "a_call_that_is_demanded_is_made_in_the_form_of_each_family",
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
                "clients_that_leave_free_the_worker_and_the_memory",
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
                "its_numbers_are_read_while_it_computes_and_after",
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
                "after_a_killed_controller_the_next_one_adopts_it_and_what_it_streamed_ends",
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
                "it_and_the_embedded_engine_evict_one_another_by_priority",
            ),
            Tried(
                LLAMA,
                "it_and_the_embedded_engine_evict_one_another_by_priority",
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
                "killed_in_the_middle_of_a_response_it_ends_the_stream_with_an_error",
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
                "stopped_it_is_found_by_its_silence_and_replaced",
            ),
            Tried(
                EMBEDDED,
                "a_stopped_embedded_engine_is_found_by_its_silence",
            ),
            Documented,
        ],
    ),
    (
        "damaged weights are reported by file",
        [
            Tried(VLLM_FAILS, FAILS),
            Tried(
                LLAMA,
                "a_file_that_is_cut_off_is_named_and_starts_no_engine",
            ),
            Tried(
                "candle-engine/tests/broken_models.rs",
                "cut_weights_are_refused_and_the_first_lost_tensor_is_named",
            ),
            Documented,
        ],
    ),
    (
        "embeddings",
        [
            Tried(VLLM_POOLING, "embeddings_are_those_of_the_embedded_engine"),
            Tried(LLAMA, "a_prompt_format_and_embeddings_work_on_it_too"),
            Tried(
                "candle-engine/tests/encoders.rs",
                "vectors_are_those_of_transformers_with_every_architecture_and_pooling",
            ),
            Documented,
        ],
    ),
    (
        "ranks and scores",
        [
            Tried(
                VLLM_POOLING,
                "ranks_and_scores_are_those_of_the_embedded_engine",
            ),
            Tried(
                LLAMA_REQUESTS,
                "ranks_come_in_their_order_and_as_many_as_are_wanted",
            ),
            Tried(
                "candle-engine/tests/encoders.rs",
                "scores_are_those_of_transformers_with_every_cross_encoder",
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
                "three_adapters_take_turns_in_room_for_two_and_answer_as_those_that_are_written_down",
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
                "a_response_of_a_schema_is_json_of_the_schema",
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
                "a_stream_goes_on_while_another_controller_takes_over",
            ),
            Tried(
                EMBEDDED,
                "a_stream_of_the_embedded_engine_goes_on_while_another_controller_takes_over",
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
                "the_embedded_engine_sleeps_on_the_machine_itself_and_its_process_goes_on",
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
fn what_a_claim_rests_on_is_there() {
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
fn the_table_in_the_manual_is_this_one() {
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
