//! Another base path than `/llm`: every route of the service lies below it, and every hint names it.

use serde_json::Value;
use support::whole::Pool;

const BASE: &str = "/lab/pool";

#[test]
fn routes_documents_and_hints_follow_the_configured_base_path() {
    let pool = Pool::with_env(&[], "", &[("MODEL_POOL__SERVER__BASE_PATH", BASE)]);
    let status = |path: &str| pool.request("GET", path, "", Some(&pool.admin_key())).0;
    assert_eq!(status(&format!("{BASE}/docs/")), 200);
    assert_eq!(status(&format!("{BASE}/admin/models")), 200);
    assert_eq!(status("/llm/docs/"), 404);
    assert_eq!(status("/llm/admin/models"), 404);

    let (_, document, _) = pool.request("GET", &format!("{BASE}/openapi.json"), "", None);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["servers"][0]["url"], BASE);

    for (method, path, expected) in [
        ("GET", "/nothing", 404),
        ("GET", "/v1/nothing", 404),
        ("GET", "/llm/docs", 404),
        ("GET", "/a//b", 404),
        ("DELETE", "/v1/models", 405),
    ] {
        let (status, answer, _) = pool.request(method, path, "", None);
        assert_eq!(status, expected, "{method} {path}: {answer}");
        let hint = format!("the routes are listed at {BASE}/docs");
        assert!(answer.contains(&hint), "{method} {path}: {answer}");
    }
}

#[test]
fn a_browser_finds_a_page_at_the_root_and_a_program_finds_an_error_with_a_hint() {
    let pool = Pool::with_env(&[], "", &[("MODEL_POOL__SERVER__BASE_PATH", BASE)]);
    let accept = |kind| [("accept", kind)];
    let browser = accept("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    let (status, page, head) = pool.request_with("GET", "/", "", &browser);
    assert_eq!(status, 200, "{page}");
    let head = head.to_ascii_lowercase();
    assert!(head.contains("content-type: text/html"), "{head}");
    assert!(head.contains("vary: accept"), "{head}");
    assert!(
        page.contains(&format!("{BASE}/docs")),
        "links go to the base path"
    );
    let nonce = head.split("script-src 'nonce-").nth(1).expect("a policy");
    let nonce = nonce.split('\'').next().expect("a nonce");
    assert!(page.contains(&format!("nonce=\"{nonce}\"")));
    assert!(!page.contains("{{"), "every placeholder is filled");
    let (_, other, _) = pool.request_with("GET", "/", "", &browser);
    assert!(!other.contains(nonce), "a nonce is for one answer");
    for kind in ["*/*", "application/json"] {
        let (status, answer, head) = pool.request_with("GET", "/", "", &accept(kind));
        assert_eq!(status, 404, "{kind}: {answer}");
        assert!(answer.contains(&format!("{BASE}/docs")), "{kind}: {answer}");
        assert!(head.to_ascii_lowercase().contains("vary: accept"), "{head}");
    }
}
