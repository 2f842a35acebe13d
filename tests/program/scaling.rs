//! Autoscaling of replicas by requests (S1) with the real program and real engines.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

fn model(name: &str, gibibytes: u32, scaling: &str) -> (String, String) {
    let program = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {name}, --tokens, \"400\", --token-ms, \"20\"]\n  ready_path: /health\npool_config: {{memory_gib: {gibibytes}, min_resident: 0s}}\ndeployment_config:\n  max_ongoing_requests: 4\n  autoscaling_config: {{{scaling}}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn body(model: &str) -> String {
    json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "Hello"}]})
        .to_string()
}

fn replicas(pool: &Pool, model: &str) -> Vec<Value> {
    let path = format!("/llm/admin/models?model={model}");
    let (_, text, _) = pool.request("GET", &path, "", Some(&pool.admin_key()));
    let response: Value = serde_json::from_str(&text).unwrap();
    response["models"][0]["replicas"]
        .as_array()
        .unwrap()
        .clone()
}

fn ready(pool: &Pool, model: &str) -> usize {
    let is_ready = |replica: &&Value| replica["state"] == "ready";
    replicas(pool, model).iter().filter(is_ready).count()
}

const HASTY: &str = "min_replicas: 1, max_replicas: 2, target_ongoing_requests: 1, look_back_period_s: 1, upscale_delay_s: 1, downscale_delay_s: 1";

#[test]
fn two_replicas_grow_from_one_under_load_and_shrink_again() {
    let pool = Pool::with_models(&[model("busy", 6, HASTY)], "");
    let first = pool.stream("/v1/chat/completions", &body("busy"));
    wait_for("the first answer to begin", || {
        first.text().contains("content")
    });
    wait_for("it to be shown as ready", || ready(&pool, "busy") == 1);
    assert_eq!(replicas(&pool, "busy").len(), 1);
    let more: Vec<_> = (0..2)
        .map(|_| pool.stream("/v1/chat/completions", &body("busy")))
        .collect();
    wait_for("a second replica", || ready(&pool, "busy") == 2);
    pool.wait_for_log("its requests call for 2 replicas (S1)");
    let next = pool.stream("/v1/chat/completions", &body("busy"));
    wait_for("the new one to be used", || {
        replicas(&pool, "busy")
            .iter()
            .all(|replica| replica["in_flight"] != 0)
    });
    drop((first, more, next));
    wait_for("one to leave", || replicas(&pool, "busy").len() == 1);
    pool.wait_for_log("more replicas than needed");
    assert_eq!(
        ready(&pool, "busy"),
        1,
        "the last one stays for its keep-hot time"
    );
}

#[test]
fn a_second_replica_does_not_evict_a_model_of_equal_priority() {
    let files = [
        model("busy", 6, HASTY),
        model("equal", 6, "max_replicas: 1"),
    ];
    let pool = Pool::with_models(&files, "");
    let other = pool.stream("/v1/chat/completions", &body("equal"));
    wait_for("it to begin", || other.text().contains("content"));
    drop(other);
    wait_for("it to be shown as ready", || ready(&pool, "equal") == 1);
    let streams: Vec<_> = (0..4)
        .map(|_| pool.stream("/v1/chat/completions", &body("busy")))
        .collect();
    wait_for("it to be wanted", || {
        let (_, text, _) = pool.request("GET", "/llm/admin/queue", "", Some(&pool.admin_key()));
        assert_eq!(ready(&pool, "equal"), 1, "{text}");
        streams
            .iter()
            .all(|stream| stream.text().contains("[DONE]"))
    });
    assert_eq!((ready(&pool, "busy"), ready(&pool, "equal")), (1, 1));
}

#[test]
fn a_conversation_stays_on_its_replica_unless_that_one_is_busier() {
    let mut file = model("busy", 4, "max_replicas: 2");
    file.1 = file
        .1
        .replace("max_ongoing_requests: 4", "max_ongoing_requests: 8");
    let pool = Pool::with_models(&[file], "");
    let key = pool.admin_key();
    let order = json!({"model": "busy", "replicas": 2}).to_string();
    let (status, text, _) = pool.request("POST", "/llm/admin/load", &order, Some(&key));
    assert_eq!(status, 200, "{text}");
    let loads = || -> Vec<u64> {
        let all = replicas(&pool, "busy");
        all.iter()
            .map(|replica| replica["in_flight"].as_u64().unwrap())
            .collect()
    };
    let turn = |turns: &[&str]| {
        let messages: Vec<Value> = turns
            .iter()
            .enumerate()
            .map(|(nth, text)| {
                let role = ["user", "assistant"][nth % 2];
                json!({"role": role, "content": text})
            })
            .collect();
        let body = json!({"model": "busy", "stream": true, "messages": messages});
        pool.stream("/v1/chat/completions", &body.to_string())
    };
    let all = |count: u64| loads().iter().sum::<u64>() == count;
    let first = turn(&["Hello"]);
    wait_for("the first to be answered", || all(1));
    let home = loads().iter().position(|load| *load == 1).unwrap();
    // A difference of two requests does not move a conversation to the other replica; a difference of three does.
    let second = turn(&["Hello", "Hi", "More"]);
    wait_for("the second to be answered", || all(2));
    assert_eq!(loads()[home], 2, "the same replica: {:?}", loads());
    let third = turn(&["Hello", "Hi", "More", "Yes", "Still more"]);
    wait_for("the third to be answered", || all(3));
    assert_eq!(loads()[home], 3, "{:?}", loads());
    let fourth = turn(&["Hello", "Hi", "Other"]);
    wait_for("the fourth to be answered", || all(4));
    assert_eq!(
        loads()[home],
        3,
        "the other one has nothing to do: {:?}",
        loads()
    );
    drop((first, second, third, fourth));
}
