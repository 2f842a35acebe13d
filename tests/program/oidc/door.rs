//! The real program with single sign-on: permissions by group.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::claims_of;
use support::issuer::{Issuer, Key};
use support::service::{Pool, wait_for};

fn now_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

fn token(key: &Key, issuer: &Issuer, group: &str, subject: &str) -> String {
    let changes = json!({"groups": [group], "sub": subject, "preferred_username": subject});
    key.token("RS256", &claims_of(&issuer.url, now_seconds(), changes))
}

fn pool(issuer: &Issuer) -> Pool {
    let section = json!({
        "issuer": issuer.url, "audience": "model-pool",
        "groups": {
            "staff": {"role": "admin"},
            "students": {"role": "user", "models": ["tiny-guide", "tiny-chat"], "routes": ["/v1/chat/*", "/v1/models"]},
        },
    });
    Pool::demo_with(&format!(
        "evening: {{cleanup: null, reopen: null}}\nauth: {{oidc: {section}}}\n"
    ))
}

fn chat(model: &str) -> String {
    json!({"model": model, "temperature": 0, "max_tokens": 8,
        "messages": [{"role": "user", "content": "What is a priority?"}]})
    .to_string()
}

#[test]
fn staff_administer_the_pool_and_students_chat() {
    let key = Key::rsa("2026-11");
    let issuer = Issuer::with(&[&key]);
    let pool = pool(&issuer);
    let staff = token(&key, &issuer, "staff", "ann");
    let student = token(&key, &issuer, "students", "bob");
    let ask = |method: &str, path: &str, body: &str, bearer: &str| {
        let (status, text, _) = pool.request(method, path, body, Some(bearer));
        (status, text)
    };
    let load = r#"{"model":"tiny-chat"}"#;
    let (status, text) = ask("POST", "/llm/admin/load", load, &staff);
    assert_eq!(status, 200, "{text}");
    for path in ["/v1/chat/completions", "/llm/v1/chat/completions"] {
        let (status, text) = ask("POST", path, &chat("tiny-chat"), &student);
        assert_eq!(status, 200, "{text}");
    }
    let refused = [
        ("POST", "/llm/admin/load", load.to_owned(), "not_an_admin"),
        ("GET", "/llm/admin/keys", String::new(), "not_an_admin"),
        (
            "POST",
            "/v1/chat/completions",
            chat("tiny-helper"),
            "model_not_found",
        ),
        (
            "POST",
            "/v1/chat/completions",
            chat("org/unheard-of"),
            "model_not_found",
        ),
        (
            "POST",
            "/v1/completions",
            json!({"model": "tiny-chat", "prompt": "x"}).to_string(),
            "route_not_allowed",
        ),
    ];
    for (method, path, body, code) in refused {
        let (status, text) = ask(method, path, &body, &student);
        // A forbidden model does not exist for them.
        let wanted = if code == "model_not_found" { 404 } else { 403 };
        assert_eq!(status, wanted, "{path}: {text}");
        let error: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(error["error"]["code"], code, "{path}: {text}");
    }
    assert_eq!(ask("GET", "/v1/models", "", &student).0, 200);
    let outsider = token(&key, &issuer, "chess", "eve");
    let (status, text) = ask(
        "POST",
        "/v1/chat/completions",
        &chat("tiny-chat"),
        &outsider,
    );
    assert!(status == 403 && text.contains("no_group"), "{text}");
}

#[test]
fn an_invalid_token_is_refused_even_where_none_is_required_and_keys_keep_working() {
    let key = Key::rsa("2026-11");
    let issuer = Issuer::with(&[&key]);
    let pool = pool(&issuer);
    let late = json!({"exp": now_seconds() - 185});
    let late = key.token("RS256", &claims_of(&issuer.url, now_seconds(), late));
    for path in ["/v1/chat/completions", "/llm/admin/load"] {
        let (status, text, head) = pool.request("POST", path, &chat("tiny-chat"), Some(&late));
        assert_eq!(status, 401, "{text}");
        assert!(
            text.contains("expired 3 min ago") && text.contains("invalid_token"),
            "{text}"
        );
        assert!(head.contains("www-authenticate"), "{head}");
    }
    let (status, text) = pool.post("/v1/chat/completions", &chat("tiny-guide"));
    assert_eq!(status, 200, "{text}");
    let admin = pool.admin_key();
    let (status, config, _) = pool.request("GET", "/llm/admin/config", "", Some(&admin));
    assert!(status == 200 && config.contains(&issuer.url), "{config}");
    wait_for("the log to say why", || {
        pool.log().contains("expired 3 min ago")
    });
    assert!(!pool.log().contains(&late), "the token itself is in no log");
}

#[test]
fn the_service_starts_while_the_issuer_is_down_and_reports_it() {
    let key = Key::rsa("2026-11");
    let issuer = Issuer::with(&[&key]);
    issuer.now().is_down = true;
    let pool = pool(&issuer);
    let staff = token(&key, &issuer, "staff", "ann");
    let (status, text, head) = pool.request("GET", "/llm/admin/models", "", Some(&staff));
    assert!(
        status == 503 && text.contains("issuer_unavailable"),
        "{text}"
    );
    assert!(head.contains("retry-after"), "{head}");
    wait_for("the log to say why", || {
        pool.log().contains("responds with status 503")
    });
    let admin = pool.admin_key();
    assert_eq!(
        pool.request("GET", "/llm/admin/models", "", Some(&admin)).0,
        200
    );
}

#[test]
fn an_unusable_oidc_section_is_refused_at_the_start() {
    let section = |text: &str| format!("auth: {{oidc: {{{text}}}}}\n");
    let issuer = "issuer: \"http://127.0.0.1:1\", audience: pool, everybody: {role: user}";
    for (text, words) in [
        (
            "issuer: \"http://login.example.org\", audience: pool".to_owned(),
            "http is only for this machine",
        ),
        (
            "issuer: \"https://login.example.org\"".to_owned(),
            "audience",
        ),
        (format!("{issuer}, ca_file: /nowhere.pem"), "/nowhere.pem"),
        (format!("{issuer}, group: {{}}"), "group"),
    ] {
        let (status, told) = Pool::refused(&section(&text));
        assert_eq!(status, Some(1), "{text}: {told}");
        assert!(told.contains(words), "{text}: {told}");
    }
}

/// The batch with this id, as its holder sees it.
fn batch_of(pool: &Pool, bearer: &str, id: &str) -> (u16, Value) {
    let path = format!("/v1/messages/batches/{id}");
    pool.call(Some(bearer), "GET", &path, &Value::Null)
}

#[test]
fn people_who_have_signed_on_run_batches_and_background_responses_with_the_rights_of_their_groups()
{
    let key = Key::rsa("2026-11");
    let issuer = Issuer::with(&[&key]);
    let section = json!({
        "issuer": issuer.url, "audience": "model-pool",
        "groups": {
            "staff": {"role": "admin"},
            "students": {"role": "user", "models": ["tiny-chat"], "routes": ["/v1/*"]},
            "readers": {"role": "user", "routes": ["/v1/models"]},
        },
    });
    let pool = Pool::demo_with(&format!(
        "evening: {{cleanup: null, reopen: null}}\nauth: {{inference: key, oidc: {section}}}\n"
    ));
    let [ann, bob, eve, rob] = [
        ("staff", "ann"),
        ("students", "bob"),
        ("students", "eve"),
        ("readers", "rob"),
    ]
    .map(|(group, subject)| token(&key, &issuer, group, subject));
    let message = |custom_id: &str, model: &str| {
        let params = json!({"model": model, "max_tokens": 4,
            "messages": [{"role": "user", "content": "What is a priority?"}]});
        json!({"custom_id": custom_id, "params": params})
    };
    // The second model is not visible to the person.
    let body = json!({"requests": [message("1", "tiny-chat"), message("2", "tiny-helper")]});
    let create = |bearer: &str| pool.call(Some(bearer), "POST", "/v1/messages/batches", &body);
    let (status, refused) = create(&rob);
    assert_eq!(status, 403, "{refused}");
    let (status, batch) = create(&bob);
    assert_eq!(status, 200, "{batch}");
    let id = batch["id"].as_str().expect("an id").to_owned();
    assert_eq!(
        batch_of(&pool, &eve, &id).0,
        404,
        "the batch of another person"
    );
    wait_for("the end of the batch", || {
        batch_of(&pool, &bob, &id).1["processing_status"] == "ended"
    });
    let counts = &batch_of(&pool, &bob, &id).1["request_counts"];
    let ended = (&counts["succeeded"], &counts["errored"]);
    assert_eq!(ended, (&json!(1), &json!(1)), "{counts}");
    // Background responses outlast the session in the same way.
    let input = |model: &str| json!({"model": model, "input": "Hi", "background": true, "max_output_tokens": 4});
    let respond =
        |bearer: &str, model: &str| pool.call(Some(bearer), "POST", "/v1/responses", &input(model));
    let (status, refused) = respond(&rob, "tiny-chat");
    assert_eq!(status, 403, "{refused}");
    let (status, refused) = respond(&bob, "tiny-helper");
    assert_eq!(status, 404, "{refused}");
    let (status, queued) = respond(&bob, "tiny-chat");
    assert_eq!(status, 200, "{queued}");
    let path = format!("/v1/responses/{}", queued["id"].as_str().expect("an id"));
    let shown = |bearer: &str| pool.call(Some(bearer), "GET", &path, &Value::Null);
    assert_eq!(shown(&eve).0, 404, "the response of another person");
    wait_for("the end of the response", || {
        let (_, response) = shown(&bob);
        let status = response["status"].as_str().unwrap_or_default();
        assert_ne!(status, "failed", "{response}");
        ["completed", "incomplete"].contains(&status)
    });
    let (status, all) = pool.call(Some(&ann), "GET", "/llm/admin/batches", &Value::Null);
    assert_eq!(status, 200, "{all}");
    assert_eq!(all["batches"][0]["holder"], "bob (signed on)", "{all}");
}
