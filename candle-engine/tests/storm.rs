//! A storm of requests with random lengths, parameters and cancellations, against an engine in a separate process whose KV cache is
//! too small for all of them. No request is lost, every response equals the one it gets alone, and no memory is leaked.
//! `STORM_REQUESTS=10000` makes it a long one.

#[path = "../benches/serving/random_model.rs"]
#[allow(dead_code, reason = "the benchmark uses more of it")]
mod random_model;
#[path = "storm/requests.rs"]
mod requests;
mod support;
#[path = "../benches/serving/tokens.rs"]
#[allow(dead_code, reason = "the benchmark uses more of it")]
mod tokens;

use hyper::StatusCode;
use requests::{Draw, Patience, TestRequest, catalogue};
use safetensors::Dtype;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use support::demo_model;
use support::process::{Client, Process, ProcessSettings, serve_if_asked};
use tokio::task::JoinSet;
use tokio::time::timeout;

const SEED: u64 = 500;
const REQUESTS: usize = 500;

/// Number of different requests; each is sent alone first, to obtain the expected response.
const DIFFERENT: usize = 120;
const CLIENTS: usize = 24;
const CONTEXT_TOKENS: usize = 256;

/// Two and a half requests of full length.
const CACHE_TOKENS: usize = 640;

/// Generous: a busy machine computes only a few requests per second.
const SECONDS_PER_REQUEST_MAX: f64 = 0.5;

/// Tolerance for memory kept by the allocator, and noise.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

const PROCESS: &str = "engine_process_entry_point";

/// The engine that other tests start as a process. Does nothing among the tests.
#[test]
fn engine_process_entry_point() {
    serve_if_asked();
}

fn requests_wanted() -> usize {
    std::env::var("STORM_REQUESTS").map_or(REQUESTS, |count| {
        count.parse().expect("STORM_REQUESTS is a number")
    })
}

/// The text, finish reason and scores of every choice; empty if the request is refused.
type Choices = BTreeMap<u64, (String, Value, Value)>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_requests_loses_none_and_each_gets_the_response_it_gets_alone() {
    let model = demo_model("tiny-chat");
    let wanted = ProcessSettings {
        model: &model,
        context_tokens: CONTEXT_TOKENS,
        concurrency: 16,
        total_tokens: CACHE_TOKENS,
        speculates: true,
    };
    let engine = Process::start(PROCESS, &wanted).await;
    let client = engine.client();
    // The expected responses come from an engine that computes one token per step.
    let plain = Process::start(
        PROCESS,
        &ProcessSettings {
            speculates: false,
            ..wanted
        },
    )
    .await;
    let mut draw = Draw::new(SEED);
    let mut alone = Vec::new();
    for asked in catalogue(&mut draw, DIFFERENT) {
        let (status, response) = plain.client().post(asked.route, &asked.body).await;
        let is_refused = response["error"]["code"] == "context_length_exceeded";
        assert!(
            is_refused || status == StatusCode::OK,
            "{}: {response}",
            asked.body
        );
        alone.push((asked, choices_of(&response)));
    }
    plain.stop();
    let alone = Arc::new(alone);
    let requests = requests_wanted();
    let mut plan: VecDeque<(usize, Patience)> = (0..requests)
        .map(|_| (draw.below(DIFFERENT), draw.patience()))
        .collect();
    let second_half = plan.split_off(requests / 2);
    let mut resident = Vec::new();
    for half in [plan, second_half] {
        let limit = Duration::from_secs_f64(SECONDS_PER_REQUEST_MAX * half.len() as f64);
        let asked = half.len();
        let ended = timeout(limit, all_of(half, &alone, &client))
            .await
            .expect("the storm ends in time");
        assert_eq!(ended, asked, "every request comes to an end");
        timeout(limit, nothing_in_the_cache(&client))
            .await
            .expect("the cache is given back");
        resident.push(engine.resident_bytes().0);
    }
    let (first, second) = (resident[0], resident[1]);
    assert!(
        second <= first + first / 20 + GROWTH_BYTES_MAX,
        "resident memory grew from {first} to {second} bytes between the halves"
    );
    println!("resident after each half: {first} and {second} bytes");
    let metrics = client.text("/metrics").await;
    let accepted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("candle_engine_spec_decode_accepted_tokens_total "))
        .and_then(|count| count.parse::<f64>().ok());
    println!("proposed tokens that were right: {accepted:?}");
    assert!(accepted > Some(0.0), "{metrics}");
    let (asked, expected) = &alone[0];
    assert_eq!(
        choices_of(&client.post(asked.route, &asked.body).await.1),
        *expected,
        "it serves on as before"
    );
    engine.stop();
}

/// Runs the plan with several concurrent clients, and returns the number of finished requests.
async fn all_of(
    plan: VecDeque<(usize, Patience)>,
    alone: &Arc<Vec<(TestRequest, Choices)>>,
    client: &Client,
) -> usize {
    let plan = Arc::new(Mutex::new(plan));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (plan, alone, client) = (Arc::clone(&plan), Arc::clone(alone), client.clone());
        clients.spawn(async move {
            let mut ended = 0;
            loop {
                let next = plan
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_front();
                let Some((index, patience)) = next else {
                    return ended;
                };
                let (asked, expected) = &alone[index];
                ask(&client, asked, expected, patience).await;
                ended += 1;
            }
        });
    }
    clients.join_all().await.into_iter().sum()
}

async fn ask(client: &Client, asked: &TestRequest, expected: &Choices, patience: Patience) {
    if expected.is_empty() {
        let (status, response) = client.post(asked.route, &asked.body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
        return;
    }
    let given = match patience {
        Patience::Plain => {
            let (status, response) = client.post(asked.route, &asked.body).await;
            assert_eq!(status, StatusCode::OK, "{}: {response}", asked.body);
            choices_of(&response)
        }
        Patience::Stream => {
            let mut body = asked.body.clone();
            body["stream"] = json!(true);
            choices_of_stream(&client.stream(asked.route, &body).await.collect().await)
        }
        Patience::Leaves(events) => {
            let mut body = asked.body.clone();
            body["stream"] = json!(true);
            let mut stream = client.stream(asked.route, &body).await;
            for _ in 0..events {
                if stream.next().await.is_none() {
                    break;
                }
            }
            return;
        }
    };
    assert_eq!(given.len(), expected.len(), "{}", asked.body);
    for (index, (text, end, scores)) in &given {
        assert!(
            end.is_string(),
            "choice {index} of {} ended by {end}",
            asked.body
        );
        if asked.repeats {
            let (expected_text, expected_end, expected_scores) = &expected[index];
            assert_eq!(
                (text, end),
                (expected_text, expected_end),
                "{} {patience:?}",
                asked.body
            );
            assert!(
                are_near(scores, expected_scores),
                "{}: {scores} is not {expected_scores}",
                asked.body
            );
        }
    }
}

fn choices_of(response: &Value) -> Choices {
    let choices = response["choices"].as_array();
    let text = |choice: &Value| {
        choice["message"]["content"]
            .as_str()
            .or(choice["text"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let of = |choice: &Value| {
        (
            text(choice),
            choice["finish_reason"].clone(),
            probabilities(&choice["logprobs"]),
        )
    };
    choices
        .into_iter()
        .flatten()
        .map(|choice| (choice["index"].as_u64().expect("an index"), of(choice)))
        .collect()
}

fn choices_of_stream(chunks: &[Value]) -> Choices {
    let mut choices = Choices::new();
    for choice in chunks
        .iter()
        .flat_map(|chunk| chunk["choices"].as_array().expect("choices"))
    {
        let index = choice["index"].as_u64().expect("an index");
        let (text, end, scores) = choices
            .entry(index)
            .or_insert_with(|| (String::new(), Value::Null, Value::Array(Vec::new())));
        *text += choice["delta"]["content"]
            .as_str()
            .or(choice["text"].as_str())
            .unwrap_or_default();
        if choice["finish_reason"].is_string() {
            *end = choice["finish_reason"].clone();
        }
        if let (Value::Array(all), Value::Array(more)) =
            (scores, probabilities(&choice["logprobs"]))
        {
            all.extend(more);
        }
    }
    choices
}

/// The logprob of each token of a response, in either form of the API.
fn probabilities(scores: &Value) -> Value {
    let of_chat = |content: &Vec<Value>| {
        content
            .iter()
            .map(|token| token["logprob"].clone())
            .collect()
    };
    match (&scores["content"], &scores["token_logprobs"]) {
        (Value::Array(content), _) => Value::Array(of_chat(content)),
        (_, Value::Array(numbers)) => Value::Array(numbers.clone()),
        _ => Value::Array(Vec::new()),
    }
}

fn are_near(some: &Value, others: &Value) -> bool {
    let numbers = |scores: &Value| -> Vec<f64> {
        scores
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_f64)
            .collect()
    };
    let (some, others) = (numbers(some), numbers(others));
    some.len() == others.len()
        && some
            .iter()
            .zip(&others)
            .all(|(one, other)| (one - other).abs() < 1e-4)
}

async fn nothing_in_the_cache(client: &Client) {
    while client.get("/memory").await.1["kv_cache_bytes_used"] != json!(0) {
        tokio::task::yield_now().await;
    }
}

/// Memory of an engine with the model below: the program, the tokenizer, and working memory for a step of 512 rows.
const BASE_BYTES: u64 = 40 << 20;

#[tokio::test]
async fn a_large_model_uses_the_announced_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model");
    let [shape, _] = random_model::SHAPES;
    shape
        .write_folder(&tokens::words(), &model, Dtype::F32)
        .expect("room for a model");
    let wanted = ProcessSettings {
        model: &model,
        context_tokens: 512,
        concurrency: 2,
        total_tokens: 1024,
        speculates: true,
    };
    let engine = Process::start(PROCESS, &wanted).await;
    let client = engine.client();
    let announced = |memory: &Value, field: &str| {
        memory[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no {field} in {memory}"))
    };
    let memory = client.get("/memory").await.1;
    let (weights, cache) = (
        announced(&memory, "weights_bytes"),
        announced(&memory, "kv_cache_bytes_max"),
    );
    let needed = (weights + cache + BASE_BYTES) as f64;
    let share = |when: &str| {
        let (own, of_files) = engine.resident_bytes();
        println!(
            "{when}: {own} bytes and {of_files} of files, announced {weights} of weights and {cache} of cache"
        );
        (own + of_files) as f64 / needed
    };
    let at_load = share("at load");
    let least = (weights as f64 / needed) * 0.95;
    assert!(
        (least..=1.05).contains(&at_load),
        "the weights are there and the cache is not used yet: {at_load} of what was announced"
    );
    // Different prompts, which share no pages.
    for first in [1000, 2000, 3000] {
        let body = |first: u32| {
            let prompt: Vec<u32> = (first..first + 490).collect();
            json!({"prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": true})
        };
        let (some, others) = (body(first), body(first + 10_000));
        let both = futures_util::future::join(
            client.post("/v1/completions", &some),
            client.post("/v1/completions", &others),
        )
        .await;
        assert_eq!(
            (both.0.0, both.1.0),
            (StatusCode::OK, StatusCode::OK),
            "{}",
            both.0.1
        );
        let taken = share("with a full cache");
        assert!(
            (0.95..=1.05).contains(&taken),
            "with a full cache it takes {taken} of what was announced"
        );
    }
    engine.stop();
}
