//! Other sites' pages in the browser of a user for whom the pool is open.

use serde_json::json;

use super::wire::{WireRequest, say};
use support::service::Pool;
use support::stub::stub_engine;

const CHAT: &str = "/v1/chat/completions";
const JSON: &str = "application/json";
const EVIL: (&str, &str) = ("Origin", "https://evil.example");

fn model() -> Vec<(String, String)> {
    let program = stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: small\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, small]\n  ready_path: /health\npool_config: {{memory_gib: 4}}\n"
    );
    vec![("small.yaml".to_owned(), text)]
}

fn body() -> String {
    json!({"model": "small", "messages": [{"role": "user", "content": "Hello"}]}).to_string()
}

fn chat<'a>(kind: &'a str, body: &'a str, lines: &'a [(&'a str, &'a str)]) -> WireRequest<'a> {
    WireRequest {
        host: None,
        method: "POST",
        path: CHAT,
        kind,
        body,
        lines,
    }
}

/// Status and code of the error.
fn ask(pool: &Pool, kind: &str, lines: &[(&str, &str)]) -> (u16, String) {
    let (status, text) = say(pool, chat(kind, &body(), lines));
    let response: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let code = response["error"]["code"].as_str().unwrap_or_default();
    (status, code.to_owned())
}

#[test]
fn a_page_of_another_origin_cannot_cause_a_load() {
    let pool = Pool::with_models(&model(), "");
    let cross_site = (403, "cross_site".to_owned());
    let not_json = (415, "unsupported_content_type".to_owned());
    let site = |value| ("Sec-Fetch-Site", value);
    // Requests that a page may send without a preflight, with its browser's headers.
    for kind in [
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        JSON,
    ] {
        for lines in [
            &[EVIL][..],
            &[EVIL, site("cross-site")],
            &[("Origin", "null")],
            &[("Origin", "http://127.0.0.1:1")],
            &[site("cross-site")],
            &[site("same-site")],
        ] {
            assert_eq!(ask(&pool, kind, lines), cross_site, "{kind} {lines:?}");
        }
        // A browser that does not send the page's origin cannot send JSON without a preflight.
        if kind != JSON {
            for line in [
                ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"),
                ("Referer", "https://evil.example/"),
                ("Cookie", "a=b"),
            ] {
                assert_eq!(ask(&pool, kind, &[line]), not_json, "{kind} {line:?}");
            }
        }
    }
    for path in ["/v1/models", "/llm/hot-models", "/metrics"] {
        let (status, text, _) = pool.request_with("GET", path, "", &[EVIL]);
        assert_eq!(status, 403, "{path}: {text}");
    }
    let form = "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nsmall\r\n--x--\r\n";
    let audio = WireRequest {
        path: "/v1/audio/transcriptions",
        ..chat("multipart/form-data; boundary=x", form, &[EVIL])
    };
    let (status, text) = say(&pool, audio);
    assert_eq!(status, 403, "{text}");
    assert!(!pool.log().contains("load small"), "{}", pool.log());
    assert!(pool.engine_pids().is_empty());
}

#[test]
fn pages_of_the_service_itself_programs_and_listed_pages_are_served() {
    let pool = Pool::with_models(&model(), "");
    let own = format!("http://{}", pool.address());
    let served = (200, String::new());
    for lines in [
        &[][..],
        &[("Origin", own.as_str())],
        &[("Origin", own.as_str()), ("Sec-Fetch-Site", "same-origin")],
        &[("Sec-Fetch-Site", "none")],
        // OpenAI's clients send an arbitrary key if none is needed.
        &[("Authorization", "Bearer none")],
    ] {
        assert_eq!(ask(&pool, JSON, lines), served, "{lines:?}");
    }
    // Programs need not declare JSON as content type.
    for kind in [
        "application/json; charset=utf-8",
        "application/x-www-form-urlencoded",
        "text/plain",
        "",
    ] {
        assert_eq!(ask(&pool, kind, &[]), served, "{kind}");
        let agent = ("User-Agent", "python-requests/2.32.3");
        assert_eq!(ask(&pool, kind, &[agent]), served, "{kind}");
    }
    // A caller with a key is not a stranger, whatever the headers.
    let key = format!("Bearer {}", pool.admin_key());
    let key = ("Authorization", key.as_str());
    assert_eq!(ask(&pool, "", &[key]), served);
    assert_eq!(ask(&pool, JSON, &[key, EVIL]), served);
    assert_eq!(
        ask(&pool, JSON, &[("Authorization", "Bearer none"), EVIL]).0,
        403
    );
    drop(pool);
    let cors = "{origins: [\"https://lab.example.org\"]}";
    let pool = Pool::with_env(&model(), "", &[("MODEL_POOL__SERVER__CORS", cors)]);
    let listed = ("Origin", "https://lab.example.org");
    assert_eq!(
        ask(&pool, JSON, &[listed, ("Sec-Fetch-Site", "cross-site")]),
        served
    );
    assert_eq!(ask(&pool, JSON, &[EVIL]).0, 403);
}

#[test]
fn a_page_on_a_rebound_host_name_is_not_treated_as_same_origin() {
    let listen = [("MODEL_POOL__SERVER__LISTEN", "0.0.0.0:0")];
    let pool = Pool::with_env(&model(), "", &listen);
    let ask = |host: &str, page: bool| {
        let origin = format!("http://{host}");
        let mut lines = vec![];
        if page {
            lines.extend([
                ("Origin", origin.as_str()),
                ("Sec-Fetch-Site", "same-origin"),
            ]);
        }
        let body = body();
        let said = WireRequest {
            host: Some(host),
            ..chat(JSON, &body, &lines)
        };
        say(&pool, said).0
    };
    let port = pool.address().rsplit_once(':').unwrap().1.to_owned();
    assert_eq!(ask(&format!("rebound.example:{port}"), true), 403);
    assert_eq!(ask(&format!("localhost:{port}"), true), 200);
    assert_eq!(ask(&format!("127.0.0.1:{port}"), true), 200);
    assert_eq!(ask(&format!("lab.example:{port}"), false), 200, "a program");
}
