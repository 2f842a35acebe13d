//! Tests of token servers and of the challenges of registries.

use super::*;

fn token_requests(registry: &TestRegistry) -> usize {
    let heads = registry.heads();
    let to_token = |head: &&String| head.starts_with("get /token");
    heads.iter().filter(to_token).count()
}

#[tokio::test]
async fn a_token_server_that_names_a_time_gets_another_request_within_the_fetch() {
    let mut registry = small_registry();
    registry.needs_token = true;
    let refusals = [
        ("503 Service Unavailable", "retry-after: 0\r\n"),
        ("429 Too Many Requests", "retry-after: 0\r\n"),
    ];
    registry.token_refusals = Mutex::new(refusals.to_vec());
    let registry = Arc::new(registry);
    let port = registry.serve().await;
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = wanted(folder.path(), port, tag(), &ACCOUNT);
    fetch(&wanted).await.expect("fetched");
    assert!(wanted.is_here());
    assert!(token_requests(&registry) >= 3);
}

#[tokio::test]
async fn an_overloaded_token_server_is_transient_and_a_refused_account_is_not() {
    for (status, headers, expected) in [
        ("429 Too Many Requests", "", pool::Remedy::Time),
        // Longer than a fetch waits.
        (
            "429 Too Many Requests",
            "retry-after: 3600\r\n",
            pool::Remedy::Time,
        ),
        ("500 Internal Server Error", "", pool::Remedy::Time),
        ("502 Bad Gateway", "", pool::Remedy::Time),
        ("401 Unauthorized", "", pool::Remedy::Change),
        ("403 Forbidden", "", pool::Remedy::Change),
    ] {
        let mut registry = small_registry();
        registry.needs_token = true;
        registry.token_refusals = Mutex::new(vec![(status, headers)]);
        let registry = Arc::new(registry);
        let port = registry.serve().await;
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = wanted(folder.path(), port, tag(), &ACCOUNT);
        let error = fetch(&wanted).await.expect_err(status);
        assert_eq!(error.remedy(), expected, "{status}: {error}");
        assert!(error.to_string().contains(&status[..3]), "{error}");
        assert_eq!(token_requests(&registry), 1, "{status}");
        fetch(&wanted).await.expect("the next attempt succeeds");
        assert!(wanted.is_here());
    }
}

#[tokio::test]
async fn a_download_continues_after_the_token_server_failed_in_the_middle() {
    for status in ["500 Internal Server Error", "429 Too Many Requests"] {
        let mut registry = small_registry();
        registry.needs_token = true;
        registry.expires_once = true.into();
        registry.token_refusals = Mutex::new(vec![(status, ""), ("200 OK", "")]);
        let registry = Arc::new(registry);
        let port = registry.serve().await;
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = wanted(folder.path(), port, tag(), &ACCOUNT);
        fetch(&wanted).await.expect("the download is retried");
        assert!(wanted.is_here(), "{status}");
        assert_eq!(token_requests(&registry), 2, "{status}");
    }
}

#[tokio::test]
async fn a_challenge_is_found_in_any_header_and_case() {
    for (challenges, has_token) in [
        (
            "www-authenticate: Basic realm=\"r\"\r\nwww-authenticate: bearer realm=\"http://127.0.0.1:PORT/token\",service=\"r\"\r\n",
            true,
        ),
        (
            "www-authenticate: Negotiate, BASIC realm=\"a, b\", BEARER Service=r, Realm=\"http://127.0.0.1:PORT/token\"\r\n",
            true,
        ),
        (
            "www-authenticate: Negotiate\r\nwww-authenticate: bAsIc realm=\"r\"\r\n",
            false,
        ),
    ] {
        let mut registry = small_registry();
        registry.challenges = Some(challenges);
        let registry = Arc::new(registry);
        let port = registry.serve().await;
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = wanted(folder.path(), port, tag(), &ACCOUNT);
        fetch(&wanted).await.expect(challenges);
        assert!(wanted.is_here(), "{challenges}");
        assert_eq!(token_requests(&registry) > 0, has_token, "{challenges}");
        let with_account = |head: &String| head.contains("authorization: basic");
        let to_registry = |head: &&String| !head.starts_with("get /token");
        let heads = registry.heads();
        let in_registry = heads.iter().filter(to_registry).any(with_account);
        assert_eq!(in_registry, !has_token, "{challenges}");
    }
}

#[tokio::test]
async fn a_registry_with_an_unknown_scheme_does_not_receive_the_account() {
    let mut registry = small_registry();
    registry.challenges = Some("www-authenticate: Negotiate\r\n");
    let registry = Arc::new(registry);
    let port = registry.serve().await;
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = wanted(folder.path(), port, tag(), &ACCOUNT);
    let error = fetch(&wanted).await.expect_err("it is refused");
    assert!(error.to_string().contains("401"), "{error}");
    assert_eq!(error.remedy(), pool::Remedy::Change);
    let heads = registry.heads();
    assert!(heads.iter().all(|head| !head.contains("authorization")));
}
