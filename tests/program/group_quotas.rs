//! Groups in the responses of the real program, and quotas: they end as configured, survive a restart, and change with a reload.

use serde_json::{Value, json};
use support::net::stub;
use support::service::{Pool, Stream, wait_for};

use crate::permissions::admin;

fn key(pool: &Pool, name: &str) -> String {
    let wish = json!({"name": name, "role": "user"});
    let (status, made) = admin(pool, &pool.admin_key(), "POST", "/keys", &wish);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

/// The status, the response and its headers. The stub counts 20 tokens of the response.
fn chat(pool: &Pool, key: &str) -> (u16, Value, String) {
    let body = json!({"model": "one", "messages": [{"role": "user", "content": "hello"}]});
    let path = "/v1/chat/completions";
    let (status, text, head) = pool.request("POST", path, &body.to_string(), Some(key));
    let response = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, response, head)
}

pub fn stream(pool: &Pool, key: &str, body: &Value) -> Stream {
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str())];
    pool.stream_with("/v1/chat/completions", &body.to_string(), &headers)
}

fn class(head: &str) -> &str {
    let mut lines = head.lines();
    lines
        .find_map(|line| line.strip_prefix("x-model-pool-class: "))
        .unwrap_or("none")
}

fn groups(pool: &Pool) -> Value {
    let (status, list) = admin(pool, &pool.admin_key(), "GET", "/groups", &Value::Null);
    assert_eq!(status, 200, "{list}");
    list
}

fn group(pool: &Pool, name: &str) -> Value {
    let list = groups(pool);
    let mut all = list["groups"].as_array().unwrap().iter();
    let found = all.find(|group| group["group"] == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {list}"))
        .clone()
}

fn reload(pool: &Pool, from: &str, to: &str) -> (u16, Value) {
    let file = pool.folder().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&file, text.replace(from, to)).unwrap();
    admin(pool, &pool.admin_key(), "POST", "/reload", &Value::Null)
}

#[test]
fn administrators_see_the_tree_with_its_use_and_members_their_own_group() {
    let slow = ["--tokens", "4000", "--token-ms", "10"];
    let config = "auth: {inference: key}\ngroups: {physics: {weight: 2, quota: {tokens: 1k, at_end: warn}}, lab: {parent: physics, keys: [ann, bob]}, course: {keys: [eve]}}\n";
    let pool = Pool::with_models(
        &[stub("one", &["--tokens", "20"]), stub("slow", &slow)],
        config,
    );
    let [ann, eve, none] = ["ann", "eve", "none"].map(|name| key(&pool, name));
    for _ in 0..2 {
        assert_eq!(chat(&pool, &ann).0, 200);
    }
    assert_eq!(chat(&pool, &eve).0, 200);
    wait_for("the tokens", || {
        group(&pool, "physics")["tokens"].as_u64() >= Some(40)
    });
    let (physics, lab, course) = (
        group(&pool, "physics"),
        group(&pool, "lab"),
        group(&pool, "course"),
    );
    assert_eq!(physics["tokens"], lab["tokens"]);
    assert_eq!(lab["path"], "physics/lab");
    assert_eq!(
        (&lab["members"], &course["members"]),
        (&json!(1), &json!(1)),
        "bob has no key"
    );
    let used = physics["tokens"].as_f64().unwrap() / 1_000.0;
    assert!(
        (physics["quota"]["used_ratio"].as_f64().unwrap() - used).abs() < 1e-9,
        "{physics}"
    );
    assert!(course["tokens"].as_u64() < physics["tokens"].as_u64());

    let body =
        json!({"model": "slow", "stream": true, "messages": [{"role": "user", "content": "x"}]});
    let running = stream(&pool, &eve, &body);
    wait_for("the request", || group(&pool, "course")["running"] == 1);
    let share = group(&pool, "lab")["share_now"].as_f64().unwrap();
    assert!((share - 2.0 / 3.0).abs() < 1e-9, "{share}");
    drop(running);

    let (status, text, _) = pool.request("GET", "/llm/me", "", Some(&ann));
    assert_eq!(status, 200, "{text}");
    let me: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(me["group"]["path"], "physics/lab");
    assert_eq!(me["group"]["quotas"][0]["tokens"], 1_000);
    let (_, text, _) = pool.request("GET", "/llm/me", "", Some(&none));
    let me: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(me["group"], Value::Null);
    let (status, refused) = admin(&pool, &ann, "GET", "/groups", &Value::Null);
    assert_eq!(status, 403, "{refused}");
    let (_, metrics, _) = pool.request("GET", "/metrics", "", Some(&pool.admin_key()));
    let line = format!(
        "model_pool_group_month_tokens{{group=\"physics/lab\"}} {}",
        lab["tokens"]
    );
    assert!(metrics.contains(&line), "{line}: {metrics}");
}

#[test]
fn a_spent_quota_ends_as_configured_survives_a_kill_and_changes_with_a_reload() {
    let config = "auth: {inference: key}\ngroups: {top: {quota: {tokens: 30, at_end: lowest}}, lab: {parent: top, keys: [ann]}, strict: {quota: {tokens: 30, at_end: refuse}, keys: [bob]}, open: {quota: {tokens: 1, at_end: warn}, keys: [eve]}}\n";
    let mut pool = Pool::with_models(&[stub("one", &["--tokens", "20"])], config);
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(|name| key(&pool, name));
    let spend = |pool: &Pool, key: &str, name: &str| {
        for _ in 0..2 {
            let (status, response, head) = chat(pool, key);
            assert_eq!((status, class(&head)), (200, "default"), "{response}");
        }
        wait_for("the quota", || {
            group(pool, name)["quota"]["used_ratio"].as_f64() >= Some(1.0)
        });
    };
    spend(&pool, &ann, "top");
    spend(&pool, &bob, "strict");
    assert_eq!(chat(&pool, &eve).0, 200);
    wait_for("the quota", || {
        group(&pool, "open")["quota"]["used_ratio"].as_f64() >= Some(1.0)
    });
    let check = |pool: &Pool| {
        let (status, response, head) = chat(pool, &ann);
        assert_eq!((status, class(&head)), (200, "flex"), "{response}");
        let (status, response, head) = chat(pool, &eve);
        assert_eq!((status, class(&head)), (200, "default"), "{response}");
        let (status, response, head) = chat(pool, &bob);
        assert_eq!(status, 429, "{response}");
        assert_eq!(response["error"]["code"], "group_quota_exceeded");
        assert_eq!(response["error"]["type"], "insufficient_quota");
        let message = response["error"]["message"].as_str().unwrap();
        for part in [
            "the group strict has used",
            "of 30 tokens",
            "groups.strict.quota",
            "from 20",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let retry = head
            .lines()
            .find_map(|line| line.strip_prefix("retry-after: "));
        let retry: u64 = retry.expect("a time").trim().parse().unwrap();
        assert!(retry <= 31 * 24 * 3_600, "{retry}");
    };
    check(&pool);
    pool.wait_for_log("the group open has used");
    // Counts are written every few seconds.
    let before = group(&pool, "strict")["tokens"].clone();
    wait_for("the counts on disk", || {
        stored_tokens(&pool, "strict") == before.as_u64()
    });
    pool.kill_and_restart();
    assert_eq!(group(&pool, "strict")["tokens"], before);
    check(&pool);

    let (status, reloaded) = reload(
        &pool,
        "strict: {quota: {tokens: 30",
        "strict: {quota: {tokens: 10k",
    );
    assert_eq!(status, 200, "{reloaded}");
    assert_eq!(
        chat(&pool, &bob).0,
        200,
        "raised in the middle of the month"
    );
    let (status, reloaded) = reload(
        &pool,
        "strict: {quota: {tokens: 10k",
        "strict: {quota: {tokens: 20",
    );
    assert_eq!(status, 200, "{reloaded}");
    assert_eq!(
        chat(&pool, &bob).0,
        429,
        "lowered in the middle of the month"
    );
    for (wrong, words) in [
        ("{tokens: -1", "is -1; allowed: 1 to 1000T"),
        ("{gpu_hours: -1", "is -1; allowed: more than 0"),
        ("{tokens: 0", "is 0; allowed: 1 to 1000T"),
    ] {
        let file = pool.folder().join("config.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let (status, refused) = reload(
            &pool,
            "strict: {quota: {tokens: 20",
            &format!("strict: {{quota: {wrong}"),
        );
        assert_eq!(status, 400, "{wrong}: {refused}");
        assert!(refused.to_string().contains(words), "{wrong}: {refused}");
        std::fs::write(&file, text).unwrap();
    }
    assert_eq!(chat(&pool, &bob).0, 429, "a refused reload changes nothing");
}

/// The tokens of a group in the database.
fn stored_tokens(pool: &Pool, path: &str) -> Option<u64> {
    use sqlx::{Connection, Row};
    let url = format!("sqlite://{}", pool.data().join("model-pool.db").display());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut connection = sqlx::SqliteConnection::connect(&url).await.expect("open");
        let sum =
            "SELECT sum(prompt_tokens + completion_tokens) AS sum FROM group_usage WHERE path = ?";
        let row = sqlx::query(sum).bind(path).fetch_one(&mut connection).await;
        let sum: Option<i64> = row.expect("a sum").get("sum");
        connection.close().await.expect("closed");
        sum.and_then(|sum| u64::try_from(sum).ok())
    })
}

#[test]
fn a_group_that_is_removed_while_its_requests_run_leaves_them_and_its_use_to_its_return() {
    let slow = ["--tokens", "600", "--token-ms", "5"];
    let config = "auth: {inference: key}\ngroups: {lab: {quota: {tokens: 5, at_end: refuse}, keys: [ann]}}\n";
    let pool = Pool::with_models(
        &[stub("one", &["--tokens", "20"]), stub("slow", &slow)],
        config,
    );
    let ann = key(&pool, "ann");
    let body =
        json!({"model": "slow", "stream": true, "messages": [{"role": "user", "content": "x"}]});
    let running = stream(&pool, &ann, &body);
    wait_for("the request", || group(&pool, "lab")["running"] == 1);
    let groups_of = "groups: {lab: {quota: {tokens: 5, at_end: refuse}, keys: [ann]}}";
    let (status, reloaded) = reload(&pool, groups_of, "groups: {}");
    assert_eq!(status, 200, "{reloaded}");
    assert_eq!(groups(&pool)["groups"], json!([]));
    assert!(running.whole().contains("[DONE]"));
    assert_eq!(chat(&pool, &ann).0, 200);
    let (status, reloaded) = reload(&pool, "groups: {}", groups_of);
    assert_eq!(status, 200, "{reloaded}");
    wait_for("the tokens of the request", || {
        group(&pool, "lab")["tokens"].as_u64() >= Some(600)
    });
    assert_eq!(chat(&pool, &ann).0, 429);
}
