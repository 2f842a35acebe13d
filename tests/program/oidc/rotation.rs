//! The issuer's keys over time: changed, withdrawn, requested by a flood, unavailable, or served by an impostor.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{NOW_SECONDS, Scene, claims_of};
use model_pool::access::oidc::OidcError;
use support::issuer::{Issuer, Key};
use support::servers::tls_before;

#[tokio::test]
async fn a_new_key_is_picked_up_and_a_withdrawn_one_is_dropped() {
    let (old, new) = (Key::ecdsa("old", "P-256"), Key::ecdsa("new", "P-256"));
    let scene = Scene::new(Issuer::with(&[&old])).await;
    let by_old = old.token("ES256", &scene.claims(json!({})));
    assert!(scene.verify(&by_old).await.is_ok());
    scene.pass_seconds(11);
    scene.issuer.publishes(&[&old, &new]);
    let by_new = new.token("ES256", &scene.claims(json!({})));
    assert!(scene.verify(&by_new).await.is_ok());
    assert!(scene.verify(&by_old).await.is_ok());
    assert_eq!(scene.issuer.keys_given(), 2);
    assert_eq!(scene.issuer.described(), 1, "it is known where they are");
    // A verified token is not trusted longer than its key.
    scene.pass_seconds(11);
    scene.issuer.publishes(&[&new]);
    let other = Key::ecdsa("other", "P-256").token("ES256", &scene.claims(json!({})));
    assert!(scene.verify(&other).await.is_err());
    let told = scene.refusal(&by_old).await;
    assert!(told.contains("does not publish"), "{told}");
    assert!(scene.verify(&by_new).await.is_ok());
}

#[tokio::test]
async fn unnamed_keys_are_fetched_again_if_a_signature_does_not_verify() {
    let (old, new) = (Key::ed25519("1"), Key::ed25519("2"));
    let unnamed = |key: &Key| {
        let mut published = key.published();
        published.as_object_mut().unwrap().remove("kid");
        published
    };
    let issuer = Issuer::with(&[]);
    issuer.now().keys = vec![unnamed(&old)];
    let scene = Scene::new(issuer).await;
    let head = json!({"alg": "EdDSA"});
    let token = |key: &Key| key.token_with(&head, &scene.claims(json!({})));
    assert!(scene.verify(&token(&old)).await.is_ok());
    scene.pass_seconds(11);
    scene.issuer.now().keys = vec![unnamed(&new)];
    assert!(scene.verify(&token(&new)).await.is_ok());
    scene.pass_seconds(11);
    scene.issuer.now().keys = vec![unnamed(&old), unnamed(&new)];
    assert!(scene.refusal(&token(&old)).await.contains("names no key"));
}

#[tokio::test]
async fn a_flood_of_unknown_keys_queries_the_issuer_once_in_ten_seconds() {
    let key = Key::ecdsa("s", "P-256");
    let scene = Arc::new(Scene::new(Issuer::with(&[&key])).await);
    assert!(
        scene
            .verify(&key.token("ES256", &scene.claims(json!({}))))
            .await
            .is_ok()
    );
    assert_eq!(scene.issuer.keys_given(), 1);
    for round in 0..3 {
        scene.pass_seconds(11);
        let flood = (0..200).map(|number| {
            let head = json!({"alg": "ES256", "kid": format!("k{round}-{number}")});
            let token = key.token_with(&head, &scene.claims(json!({})));
            let scene = Arc::clone(&scene);
            async move { scene.verify(&token).await }
        });
        for refused in futures_util::future::join_all(flood).await {
            assert!(matches!(refused, Err(OidcError::UnknownKey { .. })));
        }
        // Sequential requests never find another attempt in progress.
        for number in 0..20 {
            let head = json!({"alg": "ES256", "kid": format!("later{round}-{number}")});
            let token = key.token_with(&head, &scene.claims(json!({})));
            let refused = scene.verify(&token).await;
            assert!(matches!(refused, Err(OidcError::UnknownKey { .. })));
        }
        assert_eq!(scene.issuer.keys_given(), 2 + round);
        // Known callers are served during this time.
        let good = key.token("ES256", &scene.claims(json!({"jti": round})));
        assert!(scene.verify(&good).await.is_ok());
    }
}

#[tokio::test]
async fn many_concurrent_first_tokens_query_the_issuer_once() {
    let key = Key::ed25519("e");
    let scene = Scene::new(Issuer::with(&[&key])).await;
    let tokens: Vec<String> = (0..100)
        .map(|number| key.token("EdDSA", &scene.claims(json!({"jti": number}))))
        .collect();
    let all = tokens.iter().map(|token| scene.verify(token));
    for verified in futures_util::future::join_all(all).await {
        verified.unwrap();
    }
    assert_eq!(
        (scene.issuer.described(), scene.issuer.keys_given()),
        (1, 1)
    );
}

#[tokio::test]
async fn an_issuer_that_is_down_at_the_start_is_found_later() {
    let key = Key::ed25519("e");
    let issuer = Issuer::with(&[&key]);
    issuer.now().is_down = true;
    let scene = Scene::new(issuer).await;
    let token = key.token("EdDSA", &scene.claims(json!({})));
    for _ in 0..20 {
        let told = scene.refusal(&token).await;
        assert!(
            told.contains("not known now; try again in 10.0 s"),
            "{told}"
        );
    }
    assert_eq!(scene.issuer.described(), 1, "it is left in peace");
    scene.issuer.now().is_down = false;
    scene.pass_seconds(4);
    assert!(scene.refusal(&token).await.contains("in 6.0 s"));
    scene.pass_seconds(6);
    assert!(scene.verify(&token).await.is_ok());
}

#[tokio::test]
async fn keys_are_refreshed_automatically_and_kept_for_a_day_if_that_fails() {
    let key = Key::ed25519("e");
    let scene = Scene::new(Issuer::with(&[&key])).await;
    let at = |seconds: u64| {
        let claims = claims_of(&scene.issuer.url, NOW_SECONDS + seconds, json!({}));
        key.token("EdDSA", &claims)
    };
    scene.verify(&at(0)).await.unwrap();
    scene.pass_seconds(3600);
    scene.verify(&at(3600)).await.unwrap();
    // In the background, without delaying the previous token.
    let patience = std::time::Duration::from_secs(20);
    let read_anew = async {
        while scene.issuer.keys_given() < 2 || scene.issuer.described() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(patience, read_anew).await.unwrap();
    scene.issuer.now().is_down = true;
    scene.pass_seconds(22 * 3600);
    assert!(scene.verify(&at(23 * 3600)).await.is_ok());
    scene.pass_seconds(2 * 3600);
    let late = at(25 * 3600);
    let told = scene.refusal(&late).await;
    assert!(told.contains("not known now"), "{told}");
    scene.issuer.now().is_down = false;
    scene.pass_seconds(11);
    assert!(scene.verify(&late).await.is_ok());
}

#[tokio::test]
async fn a_verified_token_is_cached_only_until_it_expires() {
    let key = Key::ed25519("e");
    let scene = Scene::new(Issuer::with(&[&key])).await;
    let token = key.token("EdDSA", &scene.claims(json!({})));
    let first = scene.verify(&token).await.unwrap();
    let again = scene.verify(&token).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again), "it was not verified again");
    assert_eq!(scene.oidc.name_of(first.key).as_deref(), Some("ann"));
    // Until `exp` and the leeway.
    scene.pass_seconds(329);
    assert!(scene.verify(&token).await.is_ok());
    scene.pass_seconds(1);
    assert!(scene.refusal(&token).await.contains("expired 30.0 s ago"));
}

#[tokio::test]
async fn keys_published_by_another_issuer_are_not_used() {
    let key = Key::ed25519("e");
    let stranger = Issuer::with(&[&key]);
    type Change = Box<dyn Fn(&Issuer)>;
    let elsewhere = stranger.url.clone();
    let changes: [(&str, Change); 5] = [
        (
            "another name",
            Box::new(|issuer: &Issuer| issuer.now().name.push('/')),
        ),
        (
            "keys over the open net",
            Box::new(|issuer: &Issuer| {
                issuer.now().keys_address = "http://192.0.2.1/keys".to_owned()
            }),
        ),
        (
            "a redirect",
            Box::new(move |issuer: &Issuer| issuer.now().redirect = Some(elsewhere.clone())),
        ),
        (
            "too long",
            Box::new(|issuer: &Issuer| issuer.now().padding = 2 << 20),
        ),
        (
            "no keys",
            Box::new(|issuer: &Issuer| issuer.now().keys.clear()),
        ),
    ];
    for (what, change) in changes {
        let issuer = Issuer::with(&[&key]);
        change(&issuer);
        let claims = claims_of(&issuer.url, NOW_SECONDS, json!({}));
        let scene = Scene::with(issuer, &json!({})).await;
        let told = scene.refusal(&key.token("EdDSA", &claims)).await;
        assert!(told.contains("not known now"), "{what}: {told}");
    }
    assert_eq!((stranger.described(), stranger.keys_given()), (0, 0));
}

#[tokio::test]
async fn an_issuer_behind_tls_is_trusted_only_with_its_own_authority() {
    let key = Key::ed25519("e");
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    let told = async |changes: Value, in_the_open: bool| {
        let mut issuer = Issuer::with(&[&key]);
        let port = tls_before(&issuer.address, &authority);
        issuer.url = format!("https://localhost:{port}");
        issuer.now().name.clone_from(&issuer.url);
        if !in_the_open {
            issuer.now().keys_address = format!("{}/keys", issuer.url);
        }
        let scene = Scene::with(issuer, &changes).await;
        let token = key.token("EdDSA", &scene.claims(json!({})));
        let verified = scene.verify(&token).await;
        verified.map_or_else(|error| error.to_string(), |person| person.name.clone())
    };
    let trusting = json!({"ca_file": authority});
    assert_eq!(told(trusting.clone(), false).await, "ann");
    assert!(told(json!({}), false).await.contains("not known now"));
    // An HTTPS issuer's keys are not accepted over plain HTTP.
    assert!(told(trusting, true).await.contains("not known now"));
}
