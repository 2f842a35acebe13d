//! Browser sign-in at the issuer: each step, and deviations from it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use support::provider::{CLIENT, Provider, WORD};
use support::service::Pool;

const BACK: &str = "/llm/session/signed-on";

/// Status, body and head of a response.
type BrowserResponse = (u16, String, String);

/// A pool and its issuer, at which `ann` and `bob` have accounts.
struct Scene {
    provider: Provider,
    pool: Pool,
}

impl Scene {
    fn with(browser: Value) -> Scene {
        let provider = Provider::start();
        let mut section = json!({"client_id": CLIENT});
        super::merge(&mut section, &browser);
        let oidc = json!({
            "issuer": provider.url, "audience": "model-pool", "browser": section,
            "groups": {"staff": {"role": "admin"}, "students": {"role": "user", "models": ["tiny-*"]}, "guests": {"role": "viewer"}},
        });
        let pool = Pool::demo_with(&format!(
            "evening: {{cleanup: null, reopen: null}}\nauth: {{inference: key, oidc: {oidc}}}\n"
        ));
        let mut now = provider.now();
        now.redirect_uri = format!("http://{}{BACK}", pool.address());
        for (name, group) in [("ann", "staff"), ("bob", "students"), ("eve", "chess")] {
            now.people.insert(name.to_owned(), vec![group.to_owned()]);
        }
        drop(now);
        Scene { provider, pool }
    }

    fn get(&self, path: &str, lines: &[(&str, &str)]) -> BrowserResponse {
        say(self.pool.address(), "GET", path, lines, "")
    }

    /// Starts a sign-in, and returns the issuer's address and the cookie.
    fn begin(&self) -> (String, String) {
        let (status, body, head) = self.get("/llm/session/sign-on", &[]);
        assert_eq!(status, 303, "{body}");
        let cookies = cookies(&head);
        assert_eq!(cookies.len(), 1, "{head}");
        (location(&head), pair(&cookies[0]))
    }

    /// The issuer's redirect after the person has signed in.
    fn at_issuer(&self, address: &str, person: &str) -> String {
        let rest = address.strip_prefix("http://").unwrap();
        let (host, path) = rest.split_at(rest.find('/').unwrap());
        let form = format!("name={person}&word={WORD}&does=yes");
        let kind = [("Content-Type", "application/x-www-form-urlencoded")];
        let (status, body, head) = say(host, "POST", path, &kind, &form);
        assert_eq!(status, 303, "{body}");
        let back = location(&head);
        back[back.find(BACK).expect(&back)..].to_owned()
    }

    /// Takes all steps for this person, and returns the last response.
    fn sign_in(&self, person: &str) -> BrowserResponse {
        let (address, cookie) = self.begin();
        let back = self.at_issuer(&address, person);
        self.get(&back, &[("Cookie", &cookie)])
    }

    fn redeemed(&self) -> usize {
        self.provider.now().redeemed
    }
}

fn say(
    address: &str,
    method: &str,
    path: &str,
    lines: &[(&str, &str)],
    body: &str,
) -> BrowserResponse {
    let mut socket = TcpStream::connect(address).unwrap();
    let patience = Some(Duration::from_secs(30));
    socket.set_read_timeout(patience).unwrap();
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    for (name, value) in lines {
        text += &format!("{name}: {value}\r\n");
    }
    let length = body.len();
    text += &format!("Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    socket.write_all(text.as_bytes()).unwrap();
    let mut response = Vec::new();
    let _ = socket.read_to_end(&mut response);
    let text = String::from_utf8_lossy(&response);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (status.unwrap_or(0), body.to_owned(), head.to_owned())
}

fn line(head: &str, name: &str) -> Vec<String> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.to_owned()).collect()
}

fn location(head: &str) -> String {
    line(head, "location").pop().expect(head)
}

fn cookies(head: &str) -> Vec<String> {
    line(head, "set-cookie")
}

/// As a browser sends it back.
fn pair(cookie: &str) -> String {
    cookie.split(';').next().unwrap().to_owned()
}

fn failed(word: &str) -> String {
    format!("../dashboard#/sign-on?failed={word}")
}

#[test]
fn signing_in_at_the_issuer_opens_a_session_with_the_rights_of_the_persons_groups() {
    let scene = Scene::with(json!({}));
    let (_, ways, _) = scene.get("/llm/session/ways", &[]);
    let ways: Value = serde_json::from_str(&ways).unwrap();
    let host = scene.provider.url.split('/').nth(2).unwrap();
    assert_eq!(ways["sign_on"], host);
    for (person, role, admin) in [("ann", "admin", 200), ("bob", "user", 403)] {
        let (address, cookie) = scene.begin();
        let back = scene.at_issuer(&address, person);
        let (status, body, head) = scene.get(&back, &[("Cookie", &cookie)]);
        assert_eq!(status, 303, "{body} {:?}", scene.provider.now().failures);
        assert_eq!(location(&head), "../dashboard");
        let given = cookies(&head);
        assert!(given[0].contains("Max-Age=0"), "the first is over: {head}");
        let session = &given[1];
        for part in ["HttpOnly", "SameSite=Strict", "Path=/llm;", "Max-Age=28800"] {
            assert!(session.contains(part), "{session}");
        }
        let session = pair(session);
        let with = [("Cookie", session.as_str())];
        let (_, who, _) = scene.get("/llm/session", &with);
        let who: Value = serde_json::from_str(&who).unwrap();
        let found = [&who["name"], &who["role"], &who["by"]];
        assert_eq!(found, [person, role, "cookie"], "{who}");
        assert_eq!(scene.get("/llm/admin/models", &with).0, admin);
        let code = back
            .split("code=")
            .nth(1)
            .unwrap()
            .split('&')
            .next()
            .unwrap();
        let log = scene.pool.log();
        for secret in [code, cookie.split('=').nth(1).unwrap(), &session[20..]] {
            assert!(!log.contains(secret), "{log}");
        }
    }
    assert_eq!(scene.redeemed(), 2);
}

#[test]
fn a_code_is_valid_once_and_only_in_the_browser_that_started_the_sign_in() {
    let scene = Scene::with(json!({}));
    let (address, cookie) = scene.begin();
    let (_, other) = scene.begin();
    let back = scene.at_issuer(&address, "ann");
    let unknown = failed("unknown");
    // Without a cookie, with the cookie of another attempt under either name, with another state, and with half of the parameters.
    let (name, _) = cookie.split_once('=').unwrap();
    let mixed = format!("{name}={}", other.split_once('=').unwrap().1);
    let code = back
        .split("code=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap();
    let another_state = format!("{BACK}?code={code}&state={}", "A".repeat(43));
    for (path, cookie) in [
        (back.as_str(), ""),
        (&back, other.as_str()),
        (&back, &mixed),
        (&another_state, &cookie),
        (BACK, &cookie),
        (&format!("{back}&state=x"), &cookie),
    ] {
        let (status, _, head) = scene.get(path, &[("Cookie", cookie)]);
        assert_eq!((status, location(&head)), (303, unknown.clone()), "{path}");
        assert!(!head.contains("model-pool-session"), "{head}");
    }
    assert_eq!(scene.redeemed(), 0, "the issuer received none of the codes");
    let with = [("Cookie", cookie.as_str())];
    let (_, _, head) = scene.get(&back, &with);
    assert_eq!(location(&head), "../dashboard");
    let (_, _, head) = scene.get(&back, &with);
    assert_eq!(location(&head), failed("refused"), "a second time");
    assert_eq!(scene.redeemed(), 1);
}

#[test]
fn an_id_token_with_wrong_claims_does_not_sign_in() {
    let scene = Scene::with(json!({}));
    for (claims, word) in [
        (json!({"nonce": "x"}), "refused"),
        (json!({"nonce": null}), "refused"),
        (json!({"aud": "other"}), "refused"),
        (json!({"aud": "model-pool-api"}), "refused"),
        (json!({"azp": "other"}), "refused"),
        (json!({"iss": "http://127.0.0.1:1/realms/lab"}), "refused"),
        (json!({"exp": 1_000_000_000}), "refused"),
        (json!({"groups": []}), "no_group"),
    ] {
        scene.provider.now().claims = claims.clone();
        let (_, _, head) = scene.sign_in("ann");
        assert_eq!(location(&head), failed(word), "{claims}");
        assert!(!head.contains("model-pool-session"), "{head}");
    }
}

#[test]
fn other_sign_in_failures_are_shown_on_the_dashboard() {
    let scene = Scene::with(json!({}));
    let (_, _, head) = scene.sign_in("eve");
    assert_eq!(location(&head), failed("no_group"));
    let (address, cookie) = scene.begin();
    let state = address
        .split("&state=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap();
    let with = [("Cookie", cookie.as_str())];
    let denied = format!("{BACK}?error=access_denied&state={state}");
    let (_, _, head) = scene.get(&denied, &with);
    assert_eq!(location(&head), failed("denied"));
    // Another issuer may not complete this issuer's sign-in (RFC 9207).
    let mixed = format!("{BACK}?code=x&state={state}&iss=https%3A%2F%2Fevil.example");
    let (_, _, head) = scene.get(&mixed, &with);
    assert_eq!(location(&head), failed("refused"));
}

#[test]
fn cross_site_requests_from_another_page_lock_out_neither_keys_nor_people() {
    let scene = Scene::with(json!({}));
    let picture = [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "no-cors"),
        ("Sec-Fetch-Dest", "image"),
    ];
    let frame = [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-Dest", "iframe"),
    ];
    let (_, cookie) = scene.begin();
    let link = [("Sec-Fetch-Mode", "navigate"), ("Cookie", cookie.as_str())];
    let old: [(&str, &str); 0] = [];
    for nth in 0..25 {
        for from in [&picture[..], &frame, &link, &old] {
            for query in [
                format!("?state=x{nth}&code=y"),
                format!("?state=x{nth}&code=y&iss=http%3A%2F%2Fevil.example"),
                "?error=no".to_owned(),
                String::new(),
            ] {
                let (_, _, head) = scene.get(&format!("{BACK}{query}"), from);
                assert_ne!(location(&head), failed("too_many"), "{query} {from:?}");
            }
        }
    }
    assert_eq!(scene.redeemed(), 0, "the issuer received none of the codes");
    let key = scene.pool.admin_key();
    let login = json!({"key": key}).to_string();
    let (status, body, _) = scene.pool.request("POST", "/llm/session", &login, None);
    assert_eq!(status, 200, "{body}");
    let (_, _, head) = scene.sign_in("ann");
    assert_eq!(location(&head), "../dashboard");
}

#[test]
fn codes_refused_by_the_issuer_are_limited_and_block_no_key() {
    let scene = Scene::with(json!({}));
    let forged = || {
        let (address, cookie) = scene.begin();
        let state = address.split("&state=").nth(1).unwrap();
        let state = state.split('&').next().unwrap();
        let path = format!("{BACK}?code=forged&state={state}");
        location(&scene.get(&path, &[("Cookie", &cookie)]).2)
    };
    for _ in 0..10 {
        assert_eq!(forged(), failed("refused"));
    }
    assert_eq!(forged(), failed("too_many"));
    let key = scene.pool.admin_key();
    let login = json!({"key": key}).to_string();
    let (status, body, _) = scene.pool.request("POST", "/llm/session", &login, None);
    assert_eq!(status, 200, "{body}");
}

#[test]
fn an_unavailable_issuer_is_reported_and_queried_rarely() {
    let scene = Scene::with(json!({}));
    scene.provider.now().is_down = true;
    for _ in 0..3 {
        let (status, _, head) = scene.get("/llm/session/sign-on", &[]);
        assert_eq!((status, location(&head)), (303, failed("unavailable")));
    }
    scene.pool.wait_for_log("responds with status 503");
    let key = scene.pool.admin_key();
    let (status, _, _) = scene
        .pool
        .request("GET", "/llm/admin/models", "", Some(&key));
    assert_eq!(status, 200, "keys go on");
}

#[test]
fn a_client_secret_is_sent_and_never_logged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    fs::write(&file, "a secret: with signs\n").unwrap();
    let scene = Scene::with(json!({"client_secret_file": file}));
    // RFC 6749 encodes name and secret before they are joined.
    scene.provider.now().secret = Some("a+secret%3A+with+signs".to_owned());
    let (_, _, head) = scene.sign_in("ann");
    assert_eq!(
        location(&head),
        "../dashboard",
        "{:?}",
        scene.provider.now().failures
    );
    fs::write(&file, "another").unwrap();
    let (_, _, head) = scene.sign_in("ann");
    assert_eq!(location(&head), failed("refused"));
    fs::remove_file(&file).unwrap();
    let (_, _, head) = scene.sign_in("ann");
    assert_eq!(location(&head), failed("refused"));
    scene.pool.wait_for_log("client_secret_file");
    let log = scene.pool.log();
    assert!(!log.contains("with signs"), "{log}");
    assert_eq!(scene.redeemed(), 1);
}

#[test]
fn behind_a_proxy_the_configured_redirect_url_is_used_and_cookies_are_secure() {
    let address = format!("https://llm.example.org{BACK}");
    let scene = Scene::with(json!({"redirect_uri": address}));
    scene.provider.now().redirect_uri = address;
    let (_, _, head) = scene.get("/llm/session/sign-on", &[]);
    assert!(cookies(&head)[0].contains("; Secure"), "{head}");
    let (_, _, head) = scene.sign_in("ann");
    assert_eq!(location(&head), "../dashboard");
    assert!(
        cookies(&head)
            .iter()
            .all(|cookie| cookie.contains("; Secure")),
        "{head}"
    );
}

#[test]
fn without_a_browser_section_single_sign_on_is_unavailable() {
    let pool = Pool::demo();
    let (_, ways, _) = pool.request("GET", "/llm/session/ways", "", None);
    assert_eq!(ways, r#"{"sign_on":null}"#);
    for path in ["/llm/session/sign-on", BACK] {
        let (status, text, _) = pool.request("GET", path, "", None);
        assert!(
            status == 404 && text.contains("auth.oidc.browser"),
            "{text}"
        );
    }
}
