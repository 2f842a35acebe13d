//! Proxies in front of the pool, and the clients that count as local.

use super::callers::models;
use support::service::{Pool, wait_for};

fn status(pool: &Pool, lines: &[(&str, &str)]) -> u16 {
    pool.request_with("GET", "/v1/models", "", lines).0
}

#[test]
fn clients_of_an_unconfigured_proxy_are_not_local_and_the_log_names_the_setting_once() {
    let pool = Pool::with_models(&models(), "");
    assert_eq!(status(&pool, &[]), 200);
    let headers = [
        ("Via", "1.1 proxy.example"),
        ("X-Real-IP", "192.0.2.7"),
        ("Forwarded", "for=192.0.2.7"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "llm.example.org"),
        ("CF-Connecting-IP", "192.0.2.7"),
        ("True-Client-IP", "192.0.2.7"),
        ("X-Client-IP", "192.0.2.7"),
    ];
    for header in headers {
        assert_eq!(status(&pool, &[header]), 401, "{header:?}");
        let metrics = pool.request_with("GET", "/metrics", "", &[header]).0;
        assert_eq!(metrics, 401, "{header:?}");
    }
    assert_eq!(status(&pool, &[]), 200, "who comes by no proxy is local");
    let advice = "set server.trusted_proxies: [127.0.0.1]";
    wait_for("the log to say what to set", || pool.log().contains(advice));
    assert_eq!(pool.log().matches(advice).count(), 1, "{}", pool.log());
}

#[test]
fn a_trusted_proxy_without_client_addresses_is_logged_and_its_clients_are_not_local() {
    let proxies = [("MODEL_POOL__SERVER__TRUSTED_PROXIES", "[127.0.0.1]")];
    let pool = Pool::with_env(&models(), "", &proxies);
    let via = ("Via", "1.1 proxy.example");
    assert_eq!(status(&pool, &[]), 200);
    assert_eq!(status(&pool, &[via]), 401);
    assert_eq!(status(&pool, &[via, ("X-Forwarded-For", "192.0.2.7")]), 401);
    for named in ["127.0.0.1", "::1", "[::1]:80", "::ffff:127.0.0.1"] {
        let line = ("X-Forwarded-For", named);
        assert_eq!(status(&pool, &[via, line]), 401, "{named}");
        assert_eq!(status(&pool, &[line]), 401, "{named}");
        let line = ("Forwarded", &*format!("for=\"{named}\""));
        assert_eq!(status(&pool, &[line]), 401, "{named}");
        let metrics = pool.request_with("GET", "/metrics", "", &[line]).0;
        assert_eq!(metrics, 401, "{named}");
    }
    wait_for("the log to say what to set", || {
        pool.log().contains("proxy_set_header X-Forwarded-For")
    });
}
