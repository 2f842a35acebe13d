//! Accepted and rejected tokens, and the errors of the latter.

use model_pool::config::GrantRole;
use serde_json::{Value, json};

use super::{NOW_SECONDS, Scene};
use support::issuer::{Issuer, Key, base64url, message};

#[tokio::test]
async fn every_supported_signature_algorithm_is_accepted_and_a_changed_claim_is_not() {
    let (rsa, small) = (Key::rsa("r"), Key::ecdsa("s", "P-256"));
    let (large, ed) = (Key::ecdsa("l", "P-384"), Key::ed25519("e"));
    let scene = Scene::new(Issuer::with(&[&rsa, &small, &large, &ed])).await;
    let kinds = [
        (&rsa, "RS256"),
        (&rsa, "RS384"),
        (&rsa, "RS512"),
        (&rsa, "PS256"),
        (&rsa, "PS384"),
        (&rsa, "PS512"),
        (&small, "ES256"),
        (&large, "ES384"),
        (&ed, "EdDSA"),
    ];
    for (key, algorithm) in kinds {
        let token = key.token(algorithm, &scene.claims(json!({})));
        let identity = scene.verify(&token).await.expect(algorithm);
        assert_eq!((&*identity.subject, &*identity.name), ("4711", "ann"));
        let [head, _, signature] = token.split('.').collect::<Vec<_>>()[..] else {
            panic!("three parts");
        };
        let other = base64url(scene.claims(json!({"sub": "root"})).to_string());
        let changed = format!("{head}.{other}.{signature}");
        assert!(
            scene.refusal(&changed).await.contains("signature"),
            "{algorithm}"
        );
    }
}

#[tokio::test]
async fn groups_determine_a_persons_permissions() {
    let key = Key::ed25519("e");
    let scene = Scene::new(Issuer::with(&[&key])).await;
    let token = |changes: Value| key.token("EdDSA", &scene.claims(changes));
    let staff = scene.verify(&token(json!({}))).await.unwrap();
    assert!(staff.may(GrantRole::Admin, "/admin/load"));
    assert!(staff.may_use("any", "/v1/chat/completions"));
    let student = token(json!({"groups": ["chess", "students"], "sub": "0815"}));
    let student = scene.verify(&student).await.unwrap();
    assert!(!student.may(GrantRole::Admin, "/admin/load"));
    assert!(student.may(GrantRole::User, "/v1/chat/completions"));
    assert!(student.may_use("tiny-chat", "/v1/chat/completions"));
    assert!(!student.may_use("large", "/v1/chat/completions"));
    assert_ne!(student.key, staff.key, "each has a place in the queues");
    for nobody in [json!({"groups": ["chess"]}), json!({"groups": null})] {
        let words = scene.refusal(&token(nobody)).await;
        assert!(words.contains("ann is in no group"), "{words}");
    }
}

#[tokio::test]
async fn groups_may_be_nested_and_everybody_may_have_a_role() {
    let key = Key::ed25519("e");
    let issuer = Issuer::with(&[&key]);
    let changes = json!({
        "groups_claim": "realm_access.roles", "name_claim": "email",
        "everybody": {"role": "user", "models": ["tiny-guide"]},
    });
    let scene = Scene::with(issuer, &changes).await;
    let nested = json!({"realm_access": {"roles": ["staff"]}, "email": "ann@lab.example"});
    let staff = key.token("EdDSA", &scene.claims(nested));
    let staff = scene.verify(&staff).await.unwrap();
    assert_eq!(staff.name, "ann@lab.example");
    assert!(staff.may(GrantRole::Admin, "/admin/load"));
    // The default claim `groups` no longer counts.
    let guest = key.token("EdDSA", &scene.claims(json!({})));
    let guest = scene.verify(&guest).await.unwrap();
    assert_eq!(guest.grants.len(), 1);
    assert!(guest.may_use("tiny-guide", "/v1/models") && !guest.may_use("tiny-chat", "/v1/models"));
    assert!(!guest.may(GrantRole::Admin, "/admin/load"));
}

#[tokio::test]
async fn an_invalid_token_is_refused_with_the_reason() {
    let key = Key::ecdsa("s", "P-256");
    let scene = Scene::new(Issuer::with(&[&key])).await;
    let at = NOW_SECONDS;
    for (changes, words) in [
        (json!({"aud": "another"}), "for another audience"),
        (json!({"aud": ["a", "b"]}), "for another audience"),
        (json!({"exp": at - 180}), "expired 3 min ago"),
        (json!({"exp": null}), "`exp` of this token is missing"),
        (json!({"nbf": at + 600}), "not valid before 10 min from now"),
        (json!({"iat": at + 600}), "issued 10 min in the future"),
        (
            json!({"iss": "https://evil.example"}),
            "from another issuer",
        ),
        (json!({"iss": null}), "from another issuer"),
    ] {
        let token = key.token("ES256", &scene.claims(changes.clone()));
        let told = scene.refusal(&token).await;
        assert!(told.contains(words), "{changes}: {told}");
        assert!(!told.contains(&scene.issuer.address), "{told}");
    }
    let list = scene.claims(json!({"aud": ["another", "model-pool"]}));
    assert!(scene.verify(&key.token("ES256", &list)).await.is_ok());
}

#[tokio::test]
async fn a_token_with_a_forged_algorithm_is_refused() {
    let (rsa, point) = (Key::rsa("r"), Key::ecdsa("s", "P-256"));
    let scene = Scene::new(Issuer::with(&[&rsa, &point])).await;
    let claims = scene.claims(json!({}));
    for none in ["none", "None", "NONE", "nOnE", ""] {
        let unsigned = message(&json!({"alg": none, "kid": "r"}), &claims);
        for token in [format!("{unsigned}."), format!("{unsigned}.AAAA")] {
            let told = scene.refusal(&token).await;
            assert!(told.contains("not accepted"), "{none}: {told}");
        }
    }
    // The public key as shared secret, in every form that a careless verifier would accept.
    let published = rsa.published();
    let modulus = published["n"].as_str().unwrap();
    for secret in [modulus.as_bytes(), published.to_string().as_bytes()] {
        for algorithm in ["HS256", "HS384", "HS512"] {
            let unsigned = message(&json!({"alg": algorithm, "kid": "r"}), &claims);
            let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
            let signature = ring::hmac::sign(&secret, unsigned.as_bytes());
            let told = scene
                .refusal(&format!("{unsigned}.{}", base64url(signature)))
                .await;
            assert!(told.contains(&format!("signed with {algorithm}")), "{told}");
        }
    }
    // A key under the id of a key of another type.
    for (signer, algorithm, id) in [
        (&point, "ES256", "r"),
        (&rsa, "RS256", "s"),
        (&point, "ES384", "s"),
        (&point, "EdDSA", "s"),
    ] {
        let head = json!({"alg": algorithm, "kid": id});
        let told = scene.refusal(&signer.token_with(&head, &claims)).await;
        assert!(told.contains("does not match the key"), "{told}");
    }
    // Another key under a known id, and a key embedded in the token.
    let stranger = Key::ecdsa("s", "P-256");
    let own = json!({"alg": "ES256", "kid": "s", "jwk": stranger.published(), "jku": "http://127.0.0.1:1/keys"});
    for token in [
        stranger.token("ES256", &claims),
        stranger.token_with(&own, &claims),
    ] {
        assert!(scene.refusal(&token).await.contains("signature"));
    }
    let critical = json!({"alg": "ES256", "kid": "s", "crit": ["b64"], "b64": false});
    assert!(
        scene
            .verify(&point.token_with(&critical, &claims))
            .await
            .is_err()
    );
    let logout = json!({"alg": "ES256", "kid": "s", "typ": "logout+jwt"});
    let told = scene.refusal(&point.token_with(&logout, &claims)).await;
    assert!(told.contains("of the kind `logout+jwt`"), "{told}");
}

#[tokio::test]
async fn a_malformed_token_is_refused_without_querying_the_issuer() {
    let key = Key::ed25519("e");
    let scene = Scene::new(Issuer::with(&[&key])).await;
    let token = key.token("EdDSA", &scene.claims(json!({})));
    assert!(scene.verify(&token).await.is_ok());
    let asked = scene.issuer.keys_given();
    let huge = key.token(
        "EdDSA",
        &scene.claims(json!({"more": "x".repeat(16 << 10)})),
    );
    let told = scene.refusal(&huge).await;
    assert!(told.contains("allowed: up to 16384"), "{told}");
    let odd = [
        "a.b.c".to_owned(),
        "..".to_owned(),
        "....".to_owned(),
        format!("{token}."),
        format!(".{token}"),
        format!("{token}="),
        token.replace('.', ".."),
        format!("{}.e30.", base64url("[1]")),
        format!("{}.e30.", base64url(vec![b'['; 9_000])),
        format!("\u{fffd}{token}"),
    ];
    for text in &odd {
        assert!(scene.verify(text).await.is_err(), "{text}");
    }
    let list = key.token_with(&json!({"alg": "EdDSA", "kid": "e"}), &json!(["sub"]));
    assert!(scene.verify(&list).await.is_err());
    assert_eq!(scene.issuer.keys_given(), asked);
}

#[tokio::test]
async fn published_keys_of_the_wrong_type_are_not_used() {
    let (rsa, ed) = (Key::rsa("r"), Key::ed25519("e"));
    let issuer = Issuer::with(&[&ed]);
    let mut as_point = ed.published();
    as_point["kty"] = "EC".into();
    as_point["crv"] = "P-256".into();
    as_point["y"] = as_point["x"].clone();
    as_point["kid"] = "point".into();
    let mut for_sealing = rsa.published();
    for_sealing["use"] = "enc".into();
    let shared = json!({"kty": "oct", "kid": "o", "k": base64url("secret"), "alg": "HS256"});
    issuer
        .now()
        .keys
        .extend([as_point, for_sealing, shared, json!(7)]);
    let scene = Scene::new(issuer).await;
    let claims = scene.claims(json!({}));
    // The valid key next to them is still read.
    assert!(scene.verify(&ed.token("EdDSA", &claims)).await.is_ok());
    let sealing = rsa.token("RS256", &claims);
    assert!(scene.refusal(&sealing).await.contains("does not publish"));
    let head = json!({"alg": "ES256", "kid": "point"});
    assert!(
        scene.verify(&ed.token_with(&head, &claims)).await.is_err(),
        "32 bytes are not a point of the curve"
    );
}
