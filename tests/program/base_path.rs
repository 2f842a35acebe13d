//! A base path other than `/llm`: every route is below it, and every hint names it.

use serde_json::Value;
use support::service::Pool;

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
        let (status, response, _) = pool.request(method, path, "", None);
        assert_eq!(status, expected, "{method} {path}: {response}");
        let hint = format!("the routes are listed at {BASE}/docs");
        assert!(response.contains(&hint), "{method} {path}: {response}");
    }
    for (method, before, below) in [("POST", "", "chat/completions"), ("GET", BASE, "models")] {
        let (status, response, _) = pool.request(method, &format!("{before}/{below}"), "", None);
        assert_eq!(status, 404, "{response}");
        let hint = format!("did you mean {before}/v1/{below}?");
        assert!(response.contains(&hint), "{response}");
    }
}

#[test]
fn the_dashboard_and_its_files_are_served_below_the_base_path() {
    let pool = Pool::with_env(&[], "", &[("MODEL_POOL__SERVER__BASE_PATH", BASE)]);
    let get = |path: &str| pool.request_unchecked("GET", path, "");
    let (status, page, head) = get(&format!("{BASE}/dashboard"));
    assert_eq!(status, 200, "{page}");
    assert!(head.contains("content-type: text/html"), "{head}");
    assert!(head.contains("script-src 'self'"), "{head}");
    assert!(!head.contains("unsafe"), "{head}");
    assert!(!page.contains(BASE), "a proxy may add another prefix");
    let links = page.split("=\"dashboard/").skip(1);
    let links: Vec<&str> = links.map(|link| link.split('"').next().unwrap()).collect();
    assert!(links.len() > 20, "{page}");
    for link in &links {
        let (status, _, head) = get(&format!("{BASE}/dashboard/{link}"));
        assert_eq!(status, 200, "{link}");
        assert!(head.contains("cache-control: public, max-age=31536000, immutable"));
    }
    let (status, _, head) = get(&format!("{BASE}/dashboard/"));
    assert_eq!(status, 308);
    assert!(head.contains("location: ../dashboard"), "{head}");
    let main = links
        .iter()
        .find(|link| link.ends_with("/main.js"))
        .unwrap();
    let other = main.replace(main.split('/').next().unwrap(), "0123456789abcdef");
    let (status, response, _) = get(&format!("{BASE}/dashboard/{other}"));
    assert_eq!(
        status, 404,
        "the files of another version are not mixed with these"
    );
    assert!(
        response.contains(&format!("{BASE}/dashboard")),
        "{response}"
    );
    assert_eq!(get("/llm/dashboard").0, 404);
}

#[test]
fn at_the_root_a_browser_gets_a_page_and_a_program_gets_an_error_with_a_hint() {
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
        let (status, response, head) = pool.request_with("GET", "/", "", &accept(kind));
        assert_eq!(status, 404, "{kind}: {response}");
        assert!(
            response.contains(&format!("{BASE}/docs")),
            "{kind}: {response}"
        );
        assert!(head.to_ascii_lowercase().contains("vary: accept"), "{head}");
    }
}
