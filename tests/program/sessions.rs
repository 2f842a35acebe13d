//! Browser login: the cookie represents its key, only for the service's own pages, until either expires.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use crate::permissions::{admin, key, log_in as cookie, models};

const CSRF: (&str, &str) = ("x-model-pool-csrf", "1");

fn pool() -> Pool {
    Pool::with_models(&models(), "auth: {inference: key}\n")
}

/// A login with these additional header lines.
fn log_in(pool: &Pool, key: &str, lines: &[(&str, &str)]) -> (u16, Value, String) {
    let body = json!({ "key": key }).to_string();
    let (status, text, head) = pool.request_with("POST", "/llm/session", &body, lines);
    (
        status,
        serde_json::from_str(&text).unwrap_or_default(),
        head,
    )
}

fn ask(pool: &Pool, method: &str, path: &str, body: &str, lines: &[(&str, &str)]) -> (u16, Value) {
    let (status, text, _) = pool.request_with(method, path, body, lines);
    (status, serde_json::from_str(&text).unwrap_or_default())
}

fn get(pool: &Pool, path: &str, cookie: &str) -> (u16, Value) {
    ask(pool, "GET", path, "", &[("Cookie", cookie)])
}

#[test]
fn a_session_acts_for_its_key_with_a_hashed_secret_and_a_strict_cookie() {
    let pool = pool();
    let (status, view, head) = log_in(&pool, &pool.admin_key(), &[]);
    assert_eq!(status, 200, "{view}");
    assert_eq!(
        (&view["role"], &view["by"]),
        (&json!("admin"), &json!("cookie"))
    );
    assert!(
        view["restricted"] == false && view["expires_at"].is_string(),
        "{view}"
    );
    let line = head
        .lines()
        .find(|line| line.starts_with("set-cookie"))
        .unwrap();
    for part in ["httponly", "samesite=strict", "max-age=43200"] {
        assert!(line.contains(part), "{line}");
    }
    // A proxy may add a prefix to the route, which only the browser knows.
    assert!(!line.contains("path="), "{line}");
    assert!(!line.contains("secure"), "there is no TLS here: {line}");
    let session = cookie(&pool, &pool.admin_key());
    assert_eq!(
        session.split('=').nth(1).unwrap().len(),
        43,
        "256 bits: {session}"
    );
    for path in [
        "/llm/session",
        "/llm/admin/models",
        "/llm/v1/models",
        "/v1/models",
    ] {
        assert_eq!(get(&pool, path, &session).0, 200, "{path}");
    }
    // Nothing written to disk contains the session's secret.
    let secret = session.split('=').nth(1).unwrap();
    assert!(!pool.log().contains(secret) && !pool.log().contains(&pool.admin_key()));
    let (status, _) = get(&pool, "/llm/admin/models", "model-pool-session=guessed");
    assert_eq!(status, 401);
}

#[test]
fn a_page_behind_a_tls_proxy_gets_a_secure_cookie() {
    let pool = pool();
    let host = format!("https://{}", pool.address());
    let lines = [("Origin", host.as_str()), ("Sec-Fetch-Site", "same-origin")];
    let (status, _, head) = log_in(&pool, &pool.admin_key(), &lines);
    assert_eq!(status, 200);
    assert!(head.contains("; secure"), "{head}");
}

#[test]
fn a_change_by_cookie_needs_the_csrf_header_and_is_refused_for_pages_of_other_sites() {
    let pool = pool();
    let session = cookie(&pool, &pool.admin_key());
    let with = ("Cookie", session.as_str());
    let body = json!({"model": "lab/base"}).to_string();
    let (status, refused) = ask(&pool, "POST", "/llm/admin/plan", &body, &[with]);
    assert_eq!((status, &refused["error"]["code"]), (403, &json!("csrf")));
    assert_eq!(
        ask(&pool, "POST", "/llm/admin/plan", &body, &[with, CSRF]).0,
        200
    );
    let elsewhere = ("Origin", "https://evil.example");
    let own = format!("http://{}", pool.address());
    for (line, may) in [
        (elsewhere, false),
        (("Sec-Fetch-Site", "cross-site"), false),
        (("Sec-Fetch-Site", "same-site"), false),
        (("Sec-Fetch-Site", "same-origin"), true),
        (("Origin", own.as_str()), true),
    ] {
        let lines = [with, CSRF, line];
        let expected = if may { 200 } else { 403 };
        let (status, body) = ask(&pool, "POST", "/llm/admin/plan", &body, &lines);
        assert_eq!(status, expected, "{line:?}: {body}");
        assert_eq!(
            ask(&pool, "GET", "/llm/admin/models", "", &lines).0,
            expected
        );
    }
    let (status, refused, _) = log_in(&pool, &pool.admin_key(), &[elsewhere]);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (403, &json!("cross_site"))
    );
    assert_eq!(
        ask(&pool, "DELETE", "/llm/session", "", &[with, elsewhere]).0,
        403
    );
}

#[test]
fn a_session_ends_with_logout_and_with_every_change_of_its_key() {
    let pool = pool();
    let made = |wish: Value| {
        let (status, made) = admin(&pool, &pool.admin_key(), "POST", "/keys", &wish);
        assert_eq!(status, 200, "{made}");
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("key"), text("id"))
    };
    let wish = || json!({"name": "ann", "role": "admin"});
    let (key, _) = made(wish());
    let out = cookie(&pool, &key);
    let lines = [("Cookie", out.as_str()), CSRF];
    assert_eq!(ask(&pool, "DELETE", "/llm/session", "", &lines).0, 204);
    let (status, ended) = get(&pool, "/llm/session", &out);
    assert_eq!(
        (status, &ended["error"]["code"]),
        (401, &json!("session_ended"))
    );

    let (key, id) = made(wish());
    let (changed, kept) = (cookie(&pool, &key), cookie(&pool, &pool.admin_key()));
    let change = json!({"routes": ["/admin/plan"]});
    let path = format!("/keys?id={id}");
    assert_eq!(
        admin(&pool, &pool.admin_key(), "PATCH", &path, &change).0,
        200
    );
    assert_eq!(get(&pool, "/llm/admin/plan", &changed).0, 405);
    assert_eq!(get(&pool, "/llm/session", &changed).0, 401);
    assert_eq!(get(&pool, "/llm/session", &kept).0, 200);

    let (key, id) = made(wish());
    let revoked = cookie(&pool, &key);
    assert_eq!(get(&pool, "/llm/admin/models", &revoked).0, 200);
    let path = format!("/keys?id={id}");
    assert_eq!(
        admin(&pool, &pool.admin_key(), "DELETE", &path, &Value::Null).0,
        200
    );
    assert_eq!(get(&pool, "/llm/admin/models", &revoked).0, 401);

    let (key, _) = made(json!({"name": "short", "role": "viewer", "expires": "1s"}));
    let short = cookie(&pool, &key);
    wait_for("the end of the key", || {
        get(&pool, "/llm/session", &short).0 == 401
    });
}

#[test]
fn a_viewer_reads_what_administrators_read_and_changes_nothing() {
    let pool = pool();
    let viewer = key(&pool, json!({"role": "viewer"}));
    let session = cookie(&pool, &viewer);
    let (_, view) = get(&pool, "/llm/session", &session);
    assert_eq!(view["role"], "viewer");
    for path in [
        "models", "devices", "queue", "events", "config", "keys", "audit", "report",
    ] {
        let (status, body) = get(&pool, &format!("/llm/admin/{path}"), &session);
        assert_eq!(status, 200, "{path}: {body}");
    }
    let with = [("Cookie", session.as_str()), CSRF];
    for (method, path, body) in [
        ("POST", "/llm/admin/load", json!({"model": "lab/base"})),
        ("POST", "/llm/admin/reset", json!({})),
        (
            "POST",
            "/llm/admin/keys",
            json!({"name": "mine", "role": "admin"}),
        ),
        (
            "POST",
            "/llm/v1/chat/completions",
            json!({"model": "lab/base", "messages": []}),
        ),
    ] {
        let (status, refused) = ask(&pool, method, path, &body.to_string(), &with);
        assert_eq!(
            (status, &refused["error"]["code"]),
            (403, &json!("only_a_viewer")),
            "{path}"
        );
    }
    let body = json!({"model": "lab/base"}).to_string();
    assert_eq!(
        ask(&pool, "POST", "/llm/admin/plan", &body, &with).0,
        200,
        "a preview"
    );
    let wish = json!({"name": "some", "role": "viewer", "models": ["lab/*"]});
    let (status, refused) = admin(&pool, &pool.admin_key(), "POST", "/keys", &wish);
    assert_eq!(status, 400, "{refused}");
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("sees all models")
    );
}

#[test]
fn wrong_keys_are_delayed_and_refused_after_ten_attempts_and_the_right_one_is_accepted() {
    let pool = Pool::with_env(
        &models(),
        "auth: {inference: key}\n",
        &[("MODEL_POOL__SERVER__TRUSTED_PROXIES", "[127.0.0.1]")],
    );
    let from = |place: &'static str| [("X-Forwarded-For", place)];
    let wrong = format!("mp-{}", "x".repeat(43));
    for nth in 0..10 {
        let (status, refused, _) = log_in(&pool, &wrong, &from("192.0.2.1"));
        assert_eq!(
            (status, &refused["error"]["code"]),
            (401, &json!("invalid_api_key")),
            "{nth}"
        );
    }
    let (status, refused, head) = log_in(&pool, &wrong, &from("192.0.2.1"));
    assert_eq!(status, 429, "{refused}");
    assert!(head.contains("retry-after: "), "{head}");
    assert_eq!(log_in(&pool, &pool.admin_key(), &from("192.0.2.1")).0, 200);
    assert_eq!(log_in(&pool, &wrong, &from("192.0.2.2")).0, 401);
    assert_eq!(log_in(&pool, &pool.admin_key(), &from("192.0.2.2")).0, 200);
    let (status, refused, _) = log_in(&pool, "secret", &from("192.0.2.3"));
    assert_eq!(status, 400, "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
}

#[test]
fn the_session_route_describes_callers_who_need_no_key() {
    let pool = Pool::with_models(&models(), "");
    let (status, view) = ask(&pool, "GET", "/llm/session", "", &[]);
    assert_eq!(
        (status, &view["role"], &view["by"]),
        (200, &json!("user"), &json!("nothing"))
    );
    let afar = [("X-Forwarded-For", "192.0.2.7")];
    assert_eq!(ask(&pool, "GET", "/llm/session", "", &afar).0, 401);
    let bearer = format!("Bearer {}", pool.admin_key());
    let (_, view) = ask(
        &pool,
        "GET",
        "/llm/session",
        "",
        &[("Authorization", &bearer)],
    );
    assert_eq!(
        (&view["role"], &view["by"]),
        (&json!("admin"), &json!("key"))
    );
}
