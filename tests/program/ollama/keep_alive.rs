//! `keep_alive`: loads, unloads, and the time that a model stays, limited by the caller's permissions.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::{ON, ask, get, loaded, pool, response_to, stub, user_key};

const GENERATE: &str = "/api/generate";

fn expires_at(pool: &Pool) -> String {
    let running = get(pool, "/api/ps");
    let ends = running["models"][0]["expires_at"].as_str();
    ends.unwrap_or_default().to_owned()
}

/// Time until keep-hot ends, in seconds.
fn ends_in(pool: &Pool) -> i64 {
    let ends = expires_at(pool);
    let now = response_to(pool, GENERATE, &json!({"model": "bystander"}));
    let now = now["created_at"].as_str().unwrap();
    seconds(&ends) - seconds(now)
}

/// Seconds of a UTC time since an arbitrary day; valid for differences within years.
fn seconds(moment: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| moment[range].parse::<i64>().unwrap();
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    // The days of the civil calendar, with March as the first month.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    ((days * 24 + number(11..13)) * 60 + number(14..16)) * 60 + number(17..19)
}

fn two() -> Pool {
    Pool::with_models(&[stub("a-writer", &[], ""), stub("bystander", &[], "")], ON)
}

fn prompt(more: Value) -> Value {
    let mut body = json!({"model": "a-writer", "prompt": "x", "stream": false});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

#[test]
fn an_empty_prompt_loads_the_model_for_its_keep_alive_time() {
    let pool = pool("writer", &[]);
    for (path, empty) in [
        (GENERATE, json!({"model": "writer", "keep_alive": "1s"})),
        (
            "/api/chat",
            json!({"model": "writer", "messages": [], "keep_alive": 1}),
        ),
    ] {
        let told = response_to(&pool, path, &empty);
        assert_eq!(
            (&told["done"], &told["done_reason"]),
            (&json!(true), &json!("load"))
        );
        wait_for("the model to be loaded", || {
            loaded(&pool) == ["writer:latest"]
        });
        // Its keep-hot time is ten minutes.
        wait_for("the model to have left", || loaded(&pool).is_empty());
    }
}

#[test]
fn keep_alive_shortens_only_the_requests_own_time() {
    let pool = two();
    response_to(&pool, GENERATE, &prompt(json!({})));
    response_to(&pool, GENERATE, &prompt(json!({"keep_alive": 0})));
    let left = ends_in(&pool);
    assert!((500..=601).contains(&left), "{left} s");
    let (_, _, head) = ask(
        &pool,
        "/api/embed",
        &json!({"model": "a-writer", "input": "x", "keep_alive": 0}),
        None,
    );
    assert!(!head.contains("x-model-pool-ignored"), "{head}");
    let left = ends_in(&pool);
    assert!((500..=601).contains(&left), "{left} s");
}

#[test]
fn only_administrators_can_keep_a_model_beyond_its_keep_hot_time() {
    let pool = two();
    let user = user_key(&pool);
    for keep_alive in [json!("2h"), json!(-1)] {
        for key in [None, Some(user.as_str())] {
            let body = prompt(json!({"keep_alive": keep_alive}));
            let before = expires_at(&pool);
            let (status, told, head) = ask(&pool, GENERATE, &body, key);
            assert_eq!(status, 200, "{told}");
            assert!(head.contains("x-model-pool-ignored: keep_alive"), "{head}");
            wait_for("another end", || expires_at(&pool) != before);
            let left = ends_in(&pool);
            assert!((500..=601).contains(&left), "{left} s");
        }
    }
    let admin = pool.admin_key();
    for (keep_alive, least, most) in [
        (json!(-1), 364 * 86_400, 366 * 86_400),
        (json!("2h"), 7_000, 7_201),
        (json!(60), 500, 601),
    ] {
        let body = prompt(json!({"keep_alive": keep_alive}));
        let before = expires_at(&pool);
        let (status, _, head) = ask(&pool, GENERATE, &body, Some(&admin));
        assert_eq!(status, 200);
        assert!(!head.contains("x-model-pool-ignored"), "{head}");
        wait_for("another end", || expires_at(&pool) != before);
        let left = ends_in(&pool);
        assert!((least..=most).contains(&left), "{keep_alive}: {left} s");
    }
}

#[test]
fn only_an_administrator_can_unload_and_the_order_is_audited() {
    let pool = pool("writer", &[]);
    let unload = json!({"model": "writer:latest", "keep_alive": 0});
    response_to(
        &pool,
        GENERATE,
        &json!({"model": "writer", "prompt": "x", "stream": false}),
    );
    for (key, status) in [(None, 401), (Some(user_key(&pool)), 403)] {
        for (path, body) in [(GENERATE, &unload), ("/api/chat", &unload)] {
            let (refused, response, _) = ask(&pool, path, body, key.as_deref());
            let words = response["error"].as_str().unwrap();
            assert_eq!(refused, status, "{words}");
            assert!(words.contains("only administrators may"), "{words}");
        }
    }
    assert_eq!(loaded(&pool), ["writer:latest"]);
    let admin = pool.admin_key();
    for (path, empty) in [(GENERATE, "response"), ("/api/chat", "message")] {
        let (status, told, _) = ask(&pool, path, &unload, Some(&admin));
        assert_eq!(
            (status, &told["done_reason"]),
            (200, &json!("unload")),
            "{told}"
        );
        assert!(told.get(empty).is_some() && told["done"] == true, "{told}");
        assert_eq!(
            loaded(&pool),
            Vec::<String>::new(),
            "the second time there is nothing to unload"
        );
    }
    let (_, audit, _) = pool.request("GET", "/llm/admin/audit", "", Some(&admin));
    let audit: Value = serde_json::from_str(&audit).unwrap();
    let text = audit.to_string();
    let rows = text.matches("/admin/unload").count();
    assert!(rows >= 2, "an order and a refused one: {text}");
    let unknown = json!({"model": "nobody", "keep_alive": 0});
    assert_eq!(ask(&pool, GENERATE, &unknown, Some(&admin)).0, 404);
}
