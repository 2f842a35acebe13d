//! The GPT-J pipeline with its original behaviour: its model and search, and its validator, which works while the generator is
//! busy. The real binary over HTTP.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

/// A GPT-J with random weights, and the outputs that `transformers` computes.
fn gpt_j() -> (PathBuf, Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("candle-engine/tests/vectors/gpt-j");
    let expected = std::fs::read(folder.join("expected.json")).unwrap();
    (folder, serde_json::from_slice(&expected).unwrap())
}

/// The text of tokens in the model's tokenizer, where each token is a word.
fn text_of(folder: &Path, tokens: &Value) -> String {
    let tokenizer = std::fs::read(folder.join("tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_slice(&tokenizer).unwrap();
    let words = tokenizer["model"]["vocab"].as_object().unwrap();
    let word = |token: &Value| {
        let (word, _) = words.iter().find(|(_, id)| *id == token).unwrap();
        word.trim_start_matches('Ġ').to_owned()
    };
    let words: Vec<String> = tokens.as_array().unwrap().iter().map(word).collect();
    words.join(" ")
}

#[test]
fn gpt_j_uses_the_default_strategy_of_the_old_pipeline() {
    let (folder, expected) = gpt_j();
    let file = format!(
        "engine_config: {{model_id: gpt-j, type: CandleEngine, model_path: {folder:?}, max_total_tokens: 256}}\n"
    );
    let pool = Pool::with_models(&[("gpt-j.yaml".to_owned(), file)], "compat: {run: true}\n");
    let prompt = text_of(&folder, &expected["prompt"]);
    let tokens = expected["contrastive"].as_array().unwrap().len();
    let searched = format!("{prompt}{}", expected["contrastive_text"].as_str().unwrap());
    let run = |more: Value| {
        let mut body = json!({"data": prompt, "num_tokens": tokens});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let (status, response) = pool.post("/llm/run", &body.to_string());
        assert_eq!(status, 200, "{response}");
        serde_json::from_str::<Value>(&response).unwrap()
    };
    assert_eq!(run(json!({})), searched, "without a word");
    assert_eq!(run(json!({"decoding_strategy": "contrastive"})), searched);
    let greedy = text_of(
        &folder,
        &json!(expected["greedy"].as_array().unwrap()[..tokens]),
    );
    assert_eq!(
        run(json!({"decoding_strategy": "greedy"})),
        format!("{prompt} {greedy}")
    );
    let found = run(json!({"decoding_strategy": "beam search"}));
    assert!(
        found.as_str().unwrap().starts_with(&prompt) && found != searched,
        "{found}"
    );
}

/// A model whose only slot generates until its client leaves, behind a queue of two.
fn busy_pool() -> Pool {
    let file = format!(
        "engine_config:\n  model_id: busy\n  type: CommandEngine\n  listen: port\n  command: [{:?}, \"--port\", \"{{{{ port }}}}\", \"--tokens\", \"1000000\", \"--token-ms\", \"20\"]\npool_config: {{memory_gib: 1, validation: {{max_characters: 40, pattern: \"[a-z ]\"}}}}\ndeployment_config: {{max_ongoing_requests: 1}}\n",
        stub_engine().display().to_string()
    );
    let workers = [
        ("MODEL_POOL__SERVER__VALIDATION_WORKERS", "3"),
        ("MODEL_POOL__SERVER__TOKEN_WORKERS", "2"),
    ];
    let config = "compat: {run: true}\npool: {queue_limit: 2}\n";
    Pool::with_env(&[("busy.yaml".to_owned(), file)], config, &workers)
}

fn sample(pool: &Pool, name: &str) -> f64 {
    let metrics = pool.request("GET", "/metrics", "", None).1;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    number.trim().parse().unwrap()
}

#[test]
fn texts_are_validated_even_while_the_generator_is_busy_and_its_queue_is_full() {
    const THREADS: usize = 6;
    const EACH: usize = 25;
    let pool = busy_pool();
    let fine = json!({"data": "a text that is fine", "num_tokens": 1_000_000}).to_string();
    let generated = pool.stream("/llm/run", &fine);
    let waiting = pool.stream("/llm/run", &fine);
    let pending = || pool.request("GET", "/llm/pending", "", None).1;
    wait_for("one to generate and the other to wait", || {
        pool.log().contains("ready busy") && pending() == "1"
    });
    let broken = json!({"data": "costs 5 $", "num_tokens": 3}).to_string();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let (status, response) = pool.post("/llm/run", &broken);
                    assert!(
                        status == 400 && response.contains("text_not_allowed"),
                        "{response}"
                    );
                }
            });
        }
    });
    assert_eq!(pending(), "1", "nothing was generated in this time");
    let last = pool.stream("/llm/run", &fine);
    wait_for("the queue to be full", || pending() == "2");
    let (status, response) = pool.post("/llm/run", &fine);
    assert!(
        status == 429 && response.contains("queue_full"),
        "{response}"
    );
    let validated = sample(&pool, "model_pool_work_seconds_count{kind=\"validation\"}");
    assert!(validated >= (THREADS * EACH + 3) as f64, "{validated}");
    assert_eq!(
        sample(&pool, "model_pool_workers{kind=\"validation\"}"),
        3.0
    );
    assert_eq!(sample(&pool, "model_pool_workers{kind=\"tokens\"}"), 2.0);
    assert_eq!(
        sample(&pool, "model_pool_work_pending{kind=\"validation\"}"),
        0.0
    );
    drop((generated, waiting, last));
}

#[test]
fn a_strategy_the_engine_lacks_is_refused_with_the_engines_that_have_it() {
    let file = "engine_config: {model_id: served, type: VLLMEngine, model_path: /nowhere, hf_model_id: org/served}\npool_config: {memory_gib: 1, unknown_fields: drop}\n";
    let pool = Pool::with_models(
        &[("served.yaml".to_owned(), file.to_owned())],
        "compat: {run: true}\n",
    );
    for (more, who) in [
        (
            json!({"decoding_strategy": "contrastive_search"}),
            "only CandleEngine supports",
        ),
        (json!({"penalty_alpha": 0.6}), "only CandleEngine supports"),
        (
            json!({"num_beams": 4}),
            "VLLMEngine and TRTLLMEngine (use_beam_search, n)",
        ),
    ] {
        let mut body = json!({"model": "served", "prompt": "x"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let (status, response) = pool.post("/v1/completions", &body.to_string());
        assert!(
            status == 400
                && response.contains("does not support this search")
                && response.contains(who),
            "{response}"
        );
    }
    let body = json!({"data": "x", "decoding_strategy": "contrastive"});
    let (status, response) = pool.post("/llm/run", &body.to_string());
    assert!(
        status == 400 && response.contains("no contrastive_search, which only CandleEngine has"),
        "{response}"
    );
}
