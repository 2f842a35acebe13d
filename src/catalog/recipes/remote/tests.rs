//! Tests of `remote.rs`.

use super::*;

fn url(text: &str) -> String {
    match RemoteUrl::parse(text) {
        Ok(url) => url.to_string(),
        Err(why) => why,
    }
}

#[test]
fn a_remote_url_is_parsed_with_its_port_and_prefix() {
    for (text, read) in [
        ("https://api.example.org/v1", "https://api.example.org/v1"),
        ("HTTPS://API.example.org/v1/", "https://api.example.org/v1"),
        ("https://api.example.org", "https://api.example.org/v1"),
        ("http://10.0.0.7:8000/a/b", "http://10.0.0.7:8000/a/b"),
        ("http://[::1]:81/v1", "http://[::1]:81/v1"),
        ("https://x:443/openai/v1", "https://x/openai/v1"),
    ] {
        assert_eq!(url(text), read, "{text}");
    }
}

#[test]
fn an_invalid_remote_url_is_refused_with_the_reason() {
    for (text, why) in [
        ("ftp://x", "neither https://"),
        ("api.example.org/v1", "neither https://"),
        ("https://", "no valid host"),
        ("https://user:sesame@x/v1", "user or password"),
        ("https://x/v1?key=1", "query"),
        ("https://x/v1#a", "query"),
        ("https://x:0/v1", "port"),
        ("https://x:99999", "port"),
        ("https://[::1/v1", "without `]`"),
        ("https://[x]/v1", "not an IPv6 address"),
        ("https://a b/v1", "spaces"),
    ] {
        assert!(url(text).contains(why), "{text}: {}", url(text));
        assert!(!url(text).contains("sesame"), "a password is not repeated");
    }
}

#[test]
fn loopback_is_recognized_by_the_host_alone() {
    let is_loopback = |text| RemoteUrl::parse(text).is_ok_and(|url| url.is_loopback());
    assert!(is_loopback("http://127.0.0.1:8000"));
    assert!(is_loopback("http://[::1]:8000"));
    assert!(is_loopback("http://localhost"));
    assert!(!is_loopback("http://127.0.0.1.example.org"));
    assert!(!is_loopback("http://10.0.0.1"));
}
