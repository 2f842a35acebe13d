//! The rule of a model's file for users' texts.

use serde_json::{Value, json};
use support::service::Pool;

use super::{message, post, stub};

#[test]
fn texts_violating_the_validation_of_a_model_are_refused_before_it_is_loaded() {
    let rule =
        ", validation: {min_characters: 2, max_characters: 40, pattern: \"[a-zA-Z0-9 ?',.-]\"}";
    let pool = Pool::with_models(&[stub("strict", &[], rule)], "compat: {run: true}\n");
    let chat = |text: &str| {
        json!({"model": "strict", "messages": [{"role": "system", "content": "Be $hort!"},
            {"role": "user", "content": text}]})
    };
    let (status, response) = post(&pool, "/v1/chat/completions", &chat("What costs 5 $?"));
    assert_eq!(
        (status, &response["error"]["code"]),
        (400, &json!("text_not_allowed"))
    );
    assert!(
        message(&response).starts_with("messages[1]: character 14 is `$` (U+0024)"),
        "{response}"
    );
    let streamed = json!({"model": "strict", "stream": true, "prompt": ["fine", "a"]});
    let (status, response) = post(&pool, "/v1/completions", &streamed);
    assert_eq!(status, 400);
    assert_eq!(
        message(&response),
        "prompt[1]: has 1 character; allowed: 2 to 40"
    );
    let (status, response) = post(&pool, "/llm/run", &json!({"data": "No!"}));
    assert_eq!((status, &response["error"]["param"]), (400, &json!("data")));
    assert!(
        message(&response).starts_with("data: character 3 is `!`"),
        "{response}"
    );
    let key = pool.admin_key();
    let (_, events, _) = pool.request("GET", "/llm/admin/models?model=strict", "", Some(&key));
    let model: Value = serde_json::from_str(&events).unwrap();
    assert_eq!(
        model["models"][0]["state"], "cold",
        "nothing was loaded for it"
    );
    let (status, _, head) = pool.request(
        "POST",
        "/v1/chat/completions",
        &chat("Fine?").to_string(),
        None,
    );
    assert!(
        status == 200 && !head.contains("x-model-pool-cleaned"),
        "{head}"
    );
}

#[test]
fn texts_are_cleaned_if_configured_and_the_response_reports_it() {
    let rule = ", validation: {max_characters: 12, pattern: \"[^$*]\", on_violation: clean}";
    let pool = Pool::with_models(&[stub("kind", &[], rule)], "compat: {run: true}\n");
    let body = json!({"data": "*What* is 5 $ in euros?", "num_tokens": 1});
    let (status, response, head) = pool.request("POST", "/llm/run", &body.to_string(), None);
    assert_eq!((status, response.as_str()), (200, "\"What is 5  iHello\""));
    assert!(
        head.contains("x-model-pool-cleaned: prompt: 3 characters left out, 8 cut off"),
        "{head}"
    );
    for stream in [false, true] {
        let chat = json!({"model": "kind", "stream": stream, "messages": [{"role": "user", "content": "5 $"}]});
        let (status, _, head) =
            pool.request("POST", "/v1/chat/completions", &chat.to_string(), None);
        assert_eq!(status, 200);
        assert!(
            head.contains("x-model-pool-cleaned: messages[0]: 1 character left out"),
            "{head}"
        );
    }
}

#[test]
fn tokens_are_counted_by_the_models_tokenizer_and_the_engine_gets_the_remaining_budget() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
    let model = |name: &str, rule: &str| {
        let text = format!(
            "engine_config: {{model_id: {name}, type: CandleEngine, model_path: {folder:?}, max_total_tokens: 128}}\npool_config: {{validation: {{max_tokens: 8, on_violation: {rule}}}}}\n"
        );
        (format!("{name}.yaml"), text)
    };
    let files = [model("strict", "reject"), model("kind", "clean")];
    let pool = Pool::with_models(&files, "");
    let body = |name: &str| json!({"model": name, "max_tokens": 1, "prompt": "What is a priority, and who leaves first of all the models?"});
    let (status, response) = post(&pool, "/v1/completions", &body("strict"));
    assert_eq!(status, 400);
    assert!(
        message(&response).contains("tokens; allowed: at most 8"),
        "{response}"
    );
    let (status, response) = post(&pool, "/v1/completions", &body("kind"));
    assert_eq!(status, 200, "{response}");
    let used = response["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(
        (1..=9).contains(&used),
        "with a token that begins the text: {response}"
    );
}
