//! Votes on model comparisons and the leaderboard, with the real program: permissions, error messages, and the models that each
//! caller sees.

use std::time::Duration;

use serde_json::{Value, json};
use support::net::stub;
use support::service::Pool;
use support::table;

const VOTES: &str = "/llm/votes";
const BOARD: &str = "/llm/leaderboard";

fn pool(config: &str) -> Pool {
    let mut models = vec![stub("one", &[]), stub("two", &[]), stub("three", &[])];
    models[0].1 = models[0].1.replace("0.5}", "0.5, aliases: [uno]}");
    Pool::with_models(&models, config)
}

fn key(pool: &Pool, wishes: &Value) -> String {
    let mut body = json!({"name": "voter", "role": "user"});
    for (name, value) in wishes.as_object().unwrap() {
        body[name] = value.clone();
    }
    let admin = pool.admin_key();
    let (status, made) = pool.call(Some(&admin), "POST", "/llm/admin/keys", &body);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

fn vote(comparison: &str, models: &[&str], winner: Option<&str>) -> Value {
    match winner {
        Some(winner) => json!({"comparison": comparison, "models": models, "winner": winner}),
        None => json!({"comparison": comparison, "models": models, "tie": true}),
    }
}

#[test]
fn votes_change_the_leaderboard_in_order_and_survive_a_restart() {
    let mut pool = pool("");
    let key = key(&pool, &json!({}));
    let first = vote("comparison-1", &["uno", "two"], Some("uno"));
    let (status, response) = pool.call(Some(&key), "POST", VOTES, &first);
    assert_eq!(status, 200, "{response}");
    assert_eq!(
        response,
        json!({"comparison": "comparison-1", "winner": "one", "ratings": [
            {"model": "one", "rating": 1016.0, "change": 16.0}, {"model": "two", "rating": 984.0, "change": -16.0}]})
    );
    let tie = vote("comparison-2", &["two", "three"], None);
    let (status, response) = pool.call(Some(&key), "POST", VOTES, &tie);
    assert_eq!(
        (status, &response["winner"]),
        (200, &Value::Null),
        "{response}"
    );
    let best = vote("comparison-3", &["one", "two", "three"], Some("three"));
    assert_eq!(pool.call(Some(&key), "POST", VOTES, &best).0, 200);
    let (status, board) = pool.call(Some(&key), "GET", BOARD, &Value::Null);
    assert_eq!(status, 200, "{board}");
    let models = board["models"].as_array().unwrap();
    let told = |model: &Value| {
        let number = |name: &str| model[name].as_u64().unwrap();
        let counts = [
            number("rank"),
            number("comparisons"),
            number("wins"),
            number("losses"),
            number("ties"),
        ];
        (model["model"].as_str().unwrap().to_owned(), counts)
    };
    let told: Vec<_> = models.iter().map(told).collect();
    assert_eq!(
        told,
        [
            ("three".to_owned(), [1, 2, 1, 0, 1]),
            ("one".to_owned(), [2, 2, 1, 1, 0]),
            ("two".to_owned(), [3, 3, 0, 2, 1]),
        ]
    );
    let sum: f64 = models
        .iter()
        .map(|model| model["rating"].as_f64().unwrap())
        .sum();
    assert!(
        (sum - 3000.0).abs() < 1e-6,
        "points move and do not grow: {sum}"
    );
    // (1 win + 1) x 3000 / (2 comparisons + 3).
    assert_eq!(models[0]["win_ratio"], 1200);
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(60)), "it ends");
    pool.restart();
    assert_eq!(pool.call(Some(&key), "GET", BOARD, &Value::Null).1, board);
    let (status, refused) = pool.call(Some(&key), "POST", VOTES, &first);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (409, &json!("already_voted")),
        "{refused}"
    );
    assert_eq!(pool.call(Some(&key), "GET", BOARD, &Value::Null).1, board);
}

/// A body | the status | the wrong field | a part of the message
const WRONG: &str = r#"
    {"models": ["one", "two"], "winner": "one"} | 400 | comparison | is missing
    {"comparison": "short", "models": ["one", "two"], "winner": "one"} | 400 | comparison | 8 to 64
    {"comparison": "with a space", "models": ["one", "two"], "winner": "one"} | 400 | comparison | letters
    {"comparison": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "models": ["one", "two"], "winner": "one"} | 400 | comparison | 8 to 64
    {"comparison": "comparison-1", "winner": "one"} | 400 | models | has 0 models; allowed: the 2 to 4
    {"comparison": "comparison-1", "models": ["one"], "winner": "one"} | 400 | models | has 1 models
    {"comparison": "comparison-1", "models": ["one", "one", "one", "one", "one"], "winner": "one"} | 400 | models | has 5 models
    {"comparison": "comparison-1", "models": "one", "winner": "one"} | 400 | models | a list of texts
    {"comparison": "comparison-1", "models": [1, 2], "winner": "one"} | 400 | models | a list of texts
    {"comparison": "comparison-1", "models": ["one", "one"], "winner": "one"} | 400 | models | one is listed twice
    {"comparison": "comparison-1", "models": ["one", "uno"], "winner": "one"} | 400 | models | one is listed twice
    {"comparison": "comparison-1", "models": ["one", "tow"], "winner": "one"} | 404 | models | no model is called tow; the closest is two
    {"comparison": "comparison-1", "models": ["one", "two"], "winner": "three"} | 400 | winner | three was not in this comparison; choose one of one, two
    {"comparison": "comparison-1", "models": ["one", "two"]} | 400 | winner | is missing; name the model
    {"comparison": "comparison-1", "models": ["one", "two"], "tie": false} | 400 | winner | is missing
    {"comparison": "comparison-1", "models": ["one", "two"], "winner": "one", "tie": true} | 400 | tie | send only one of them
    {"comparison": "comparison-1", "models": ["one", "two"], "winner": ["one"]} | 400 | winner | a text
    {"comparison": "comparison-1", "models": ["one", "two"], "tie": true, "winer": "one"} | 400 | winer | did you mean winner?
    [] | 400 |  | expected an object
"#;

#[test]
fn invalid_votes_are_refused_with_the_reason_and_not_counted() {
    let pool = pool("");
    let key = key(&pool, &json!({}));
    for [body, status, param, words] in table::rows_of(WRONG) {
        let body = table::json(body);
        let (found, refused) = pool.call(Some(&key), "POST", VOTES, &body);
        let error = &refused["error"];
        assert_eq!(found.to_string(), status, "{body}: {refused}");
        assert_eq!(
            error["param"].as_str().unwrap_or_default(),
            param,
            "{body}: {refused}"
        );
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{body}: {refused}"
        );
    }
    let long = format!("{{\"comparison\": \"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(pool.request("POST", VOTES, &long, Some(&key)).0, 413);
    let board = pool.call(Some(&key), "GET", BOARD, &Value::Null).1;
    assert_eq!(board["models"], json!([]));
}

#[test]
fn votes_need_a_key_and_viewers_and_keys_for_other_models_have_none() {
    let pool = pool("");
    let body = vote("comparison-1", &["one", "two"], Some("one"));
    let (status, refused) = pool.call(None, "POST", VOTES, &body);
    assert_eq!(status, 401, "{refused}");
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("a vote needs a key"),
        "{refused}"
    );
    let viewer = key(&pool, &json!({"role": "viewer"}));
    let narrow = key(&pool, &json!({"models": ["two", "three"]}));
    assert_eq!(pool.call(Some(&viewer), "POST", VOTES, &body).0, 403);
    let (status, refused) = pool.call(Some(&narrow), "POST", VOTES, &body);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (404, &json!("model_not_found")),
        "{refused}"
    );
    let admin = pool.admin_key();
    assert_eq!(pool.call(Some(&admin), "POST", VOTES, &body).0, 200);
    let names = |key: Option<&str>| {
        let board = pool.call(key, "GET", BOARD, &Value::Null).1;
        let models = board["models"].as_array().unwrap().iter();
        let names: Vec<String> = models
            .map(|model| model["model"].as_str().unwrap().to_owned())
            .collect();
        names.join(" ")
    };
    assert_eq!(names(Some(&viewer)), "one two");
    assert_eq!(names(None), "one two");
    assert_eq!(
        names(Some(&narrow)),
        "two",
        "other models do not exist for it"
    );
}

#[test]
fn one_key_may_vote_at_most_thirty_times_a_minute() {
    let pool = pool("");
    let (eager, calm) = (key(&pool, &json!({})), key(&pool, &json!({})));
    let send = |key: &str, nth: usize| {
        let body = vote(&format!("comparison-{nth}"), &["one", "two"], None).to_string();
        pool.request("POST", VOTES, &body, Some(key))
    };
    for nth in 0..30 {
        assert_eq!(send(&eager, nth).0, 200);
    }
    let (status, text, head) = send(&eager, 30);
    assert_eq!(status, 429, "{text}");
    assert!(
        text.contains("too_many_votes") && text.contains("voted 30 times in a minute"),
        "{text}"
    );
    assert!(head.to_lowercase().contains("retry-after:"), "{head}");
    assert_eq!(send(&calm, 30).0, 200, "another key is not slowed");
}
