//! Tests of the section `auth.oidc`.

use super::*;
use reading::yaml;

fn read(text: &str) -> OidcSection {
    yaml(text).unwrap()
}

#[test]
fn omitted_oidc_keys_have_defaults() {
    let section =
        read("issuer: https://login.example.org\naudience: pool\ngroups: {staff: {role: admin}}\n");
    assert_eq!(problems(&section), []);
    assert_eq!(section.groups_claim, "groups");
    assert_eq!(section.leeway, Length::from_secs(30));
    assert_eq!(section.groups["staff"].models, ["*"]);
    assert_eq!(section.everybody, None);
}

#[test]
fn every_oidc_problem_is_reported_with_its_key() {
    let section = read(
        "issuer: http://login.example.org/?a=1\naudience: ' '\nleeway: 11m\nrefresh: 1s\n\
         groups: {staff: {role: admin, models: []}, students: {role: user, routes: [v1]}}\n",
    );
    let shown = problems(&section);
    let words = [
        "auth.oidc.issuer is not a URL",
        "auth.oidc.audience is empty",
        "auth.oidc.leeway is 11m; allowed: 0s to 10m",
        "auth.oidc.refresh is 1s; allowed: 1m to 1d",
        "auth.oidc.groups.staff.models is empty or contains",
        "auth.oidc.groups.students.routes has a route that does not begin with `/`",
    ];
    assert_eq!(shown.len(), words.len(), "{shown:?}");
    for (shown, words) in shown.iter().zip(words) {
        assert!(shown.to_string().contains(words), "{shown}");
    }
    let without_roles = read("issuer: https://a.example\naudience: pool\n");
    assert!(
        problems(&without_roles)[0]
            .message
            .contains("no user has any permission")
    );
}

#[test]
fn each_invalid_browser_setting_is_reported_with_its_key() {
    let head = "issuer: https://a.example\naudience: pool\neverybody: {role: user}\nbrowser: ";
    let right = read(&format!("{head}{{client_id: pool}}\n"));
    assert_eq!(problems(&right), []);
    let browser = right.browser.unwrap();
    assert_eq!(browser.scopes, ["openid", "profile"]);
    assert_eq!(browser.session, Length::from_secs(8 * 3600));
    let proxied =
        "{client_id: pool, redirect_uri: 'https://llm.example.org/llm/session/signed-on'}";
    assert_eq!(problems(&read(&format!("{head}{proxied}\n"))), []);
    for (text, words) in [
        ("{client_id: ' '}", "browser.client_id is empty"),
        (
            "{client_id: a, session: 1d}",
            "browser.session is 1day; allowed: 5m to 12h",
        ),
        (
            "{client_id: a, scopes: [profile]}",
            "browser.scopes must contain openid",
        ),
        (
            "{client_id: a, scopes: [openid, 'a b']}",
            "browser.scopes must contain openid",
        ),
        (
            "{client_id: a, redirect_uri: /llm/session/signed-on}",
            "browser.redirect_uri is not the address",
        ),
        (
            "{client_id: a, redirect_uri: 'https://a.example/other'}",
            "browser.redirect_uri is not the address",
        ),
    ] {
        let found = problems(&read(&format!("{head}{text}\n")));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].to_string().contains(words), "{text}: {}", found[0]);
    }
}

#[test]
fn plain_http_is_accepted_only_for_loopback() {
    for good in [
        "https://login.example.org/realms/lab",
        "http://127.0.0.1:9000",
        "http://[::1]:9000/a",
        "http://localhost/",
    ] {
        assert!(trusted_address(good).is_ok(), "{good}");
    }
    for bad in [
        "http://login.example.org",
        "http://127.0.0.1@evil.example",
        "http://localhost.evil.example",
        "http://10.0.0.1",
        "ftp://127.0.0.1",
        "https://user:word@login.example.org",
        "login.example.org",
        "",
    ] {
        assert!(trusted_address(bad).is_err(), "{bad}");
    }
}
