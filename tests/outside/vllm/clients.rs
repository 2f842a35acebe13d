//! The checks of third-party clients (`tests/clients`) with a real vLLM behind the pool: the scripts that also run with the
//! embedded engine, and schemathesis's requests from the document.
//!
//! Excludes everything that needs an engine with scripted output, which the demo model cannot produce: agents, the wires of
//! docs/guides/clients.md, and responses compared with the published schemas. vLLM's complete responses reach the client unchanged,
//! with vLLM's additional fields.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use support::service::Pool;

use super::rig::*;
use crate::clients::{brought, checked, tried_within, user_key};

/// Time limit for all checks of a script.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Time limit of a request in seconds: vLLM shares the processors with its clients.
const PATIENCE: &str = "120";
/// Name of the model in the scripts.
const MODEL: &str = "tiny-guide";

/// Checks by name, and the reason they are left out.
type ExcludedChecks = [(&'static str, &'static str)];

/// Also excludes everything that needs a second model: a name with a slash, output for many seconds (`serving.rs` has clients that
/// leave), a model that never becomes ready, and embeddings (`pooling.rs`).
const OF_OPENAI: &ExcludedChecks = &[
    (
        "n gives so many choices, plain and streaming",
        "vLLM refuses n above 1 at temperature 0; requests.rs asks at 1",
    ),
    (
        "the error of a wrong request names its field",
        "vLLM's own refusals have its own type and mostly no field, and it answers a conversation without messages",
    ),
    (
        "embeddings of a model that completes texts are told as 501, and not asked for again",
        "the pool passes it on, because vLLM has the route for other models, and the refusal is vLLM's",
    ),
    (
        "best_of picks one of several completions",
        "vLLM has no best_of any more, and the pool leaves it out",
    ),
    (
        "an answer follows a JSON schema and is parsed into a model of pydantic",
        "the demo model never ends a number, for whose length vLLM's grammar has no bound; requests.rs has enumerations",
    ),
    (
        "a JSON schema that is none is a BadRequestError that names its field",
        "vLLM names no field",
    ),
];
const OF_ANTHROPIC: &ExcludedChecks = &[(
    "a conversation without messages is a BadRequestError",
    "vLLM answers it",
)];

/// Operations of the document that reach the engine, except for stored responses.
const OPERATIONS: &str =
    "^/v1/(chat/completions|completions|messages|messages/count_tokens|tokenize|detokenize)$";

#[test]
fn python_clients_and_schemathesis_pass_with_vllm_as_with_the_embedded_engine() {
    let Some(environment) = environment() else {
        return;
    };
    let (Some(python), Some(schemathesis)) =
        (brought("venv/bin/python"), brought("venv/bin/schemathesis"))
    else {
        return;
    };
    let _alone = alone();
    let folder = demo();
    let model = RealModel {
        pool: "keep_hot: 1h",
        ..RealModel::new(&environment, MODEL, &folder)
    };
    let pool = pool_with_keys(&[model.file()]);
    println!("loaded in {:?}", load(&pool, MODEL));
    warm_up(&pool);
    let mut parts = Parts::default();
    parts.run("openai", || {
        script(&python, "openai_python.py", &pool, OF_OPENAI);
    });
    parts.run("anthropic", || {
        script(&python, "anthropic_python.py", &pool, OF_ANTHROPIC);
    });
    parts.run("schemathesis", || documented(&schemathesis, &pool));
}

/// Warms up functions that vLLM compiles on first use, which would exceed clients' timeouts.
fn warm_up(pool: &Pool) {
    let key = user_key(pool);
    for fields in [
        json!({"temperature": 0}),
        json!({"temperature": 1, "seed": 7, "top_p": 0.9, "presence_penalty": 0.1}),
        json!({"logprobs": true, "top_logprobs": 3}),
        json!({"logit_bias": {"300": 1}}),
        json!({"response_format": {"type": "json_object"}}),
    ] {
        let mut body = short(MODEL);
        for (name, value) in fields.as_object().expect("fields") {
            body[name] = value.clone();
        }
        let (status, text, _) = pool.request("POST", CHAT, &body.to_string(), Some(&key));
        assert_eq!(status, 200, "{body}: {text}");
    }
}

fn script(python: &Path, name: &str, pool: &Pool, left_out: &ExcludedChecks) {
    for (words, why) in left_out {
        println!("{name} leaves out: {words}: {why}");
    }
    let left_out: BTreeMap<&str, &str> = left_out.iter().copied().collect();
    let left_out = json!(left_out).to_string();
    let more = [
        ("MODEL_POOL_LEFT_OUT", left_out.as_str()),
        ("MODEL_POOL_PATIENCE_S", PATIENCE),
    ];
    checked(python, name, pool, LIMIT, &more);
    assert_eq!(state(pool, MODEL), "ready", "{}", pool.log());
}

/// The examples of the document, with a few other valid and invalid requests: no server error, and no response that the document
/// does not describe. Each request that vLLM serves takes seconds, which limits their number.
fn documented(schemathesis: &Path, pool: &Pool) {
    let words = [
        "--include-path-regex",
        OPERATIONS,
        "--phases",
        "examples,fuzzing",
        "--max-examples",
        "6",
        "--request-timeout",
        PATIENCE,
    ];
    let text = tried_within(LIMIT, pool, schemathesis, &words);
    assert!(text.contains(" generated, "), "nothing was tried: {text}");
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
    // It is the same process, and it still responds.
    let key = user_key(pool);
    let (status, text, _) = pool.request("POST", CHAT, &short(MODEL).to_string(), Some(&key));
    assert_eq!(status, 200, "{text}");
    let crashes = admin(pool, "GET", "/llm/admin/events?kind=crash", &Value::Null);
    assert_eq!(crashes["events"], json!([]));
}
