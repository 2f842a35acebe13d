//! Hub models that users register: the pool's token, error messages, and the limit of lookups per user (B1).

use super::*;

#[test]
fn models_behind_the_pools_own_token_are_open_to_users_only_if_configured() {
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.token = Some("hf_secret".to_owned()));
    for (is_private, status_of_user) in [("false", 404), ("true", 200)] {
        let env = [
            ("HF_TOKEN", "hf_secret"),
            ("MODEL_POOL__CATALOG__ON_UNKNOWN", "anyone"),
            ("MODEL_POOL__CATALOG__UNKNOWN_PRIVATE", is_private),
        ];
        let pool = lab.pool_with(&[model("unused", "")], "", &env);
        let (status, text) = pool.post("/v1/chat/completions", &body("lab/other", false));
        assert_eq!(status, status_of_user, "{text}");
        if is_private == "false" {
            assert!(text.contains("catalog.unknown_private"), "{text}");
            let place = lab.cache.path().display().to_string();
            assert!(
                !text.contains(&place) && !text.contains("hf_secret"),
                "{text}"
            );
            let load = json!({"model": "lab/far", "wait": true});
            let (status, response) = admin(&pool, "POST", "/load", &load);
            assert_eq!(status, 200, "an administrator may: {response}");
        } else {
            assert!(
                pool.log().contains("catalog.unknown_private"),
                "{}",
                pool.log()
            );
        }
    }
}

#[test]
fn the_error_for_an_unreachable_hub_names_no_folder_to_users() {
    let lab = Lab::new();
    let env = [
        ("MODEL_POOL__CATALOG__ON_UNKNOWN", "anyone"),
        ("MODEL_POOL__SOURCES__HUB", "http://127.0.0.1:1"),
    ];
    let pool = lab.pool_with(&[model("unused", "")], "", &env);
    let (status, text) = pool.post("/v1/chat/completions", &body("lab/other", false));
    assert_eq!(status, 503, "{text}");
    let place = lab.cache.path().display().to_string();
    assert!(
        text.contains("cannot be reached") && !text.contains(&place),
        "{text}"
    );
    pool.wait_for_log(&place);
}

#[test]
fn b1_a_user_who_requests_unknown_names_does_not_block_the_hub_for_others() {
    let lab = Lab::new();
    let env = [("MODEL_POOL__CATALOG__ON_UNKNOWN", "anyone")];
    let pool = lab.pool_with(&[model("unused", "")], "auth: {inference: key}\n", &env);
    let key = |name: &str| {
        let (status, made) = admin(
            &pool,
            "POST",
            "/keys",
            &json!({"name": name, "role": "user"}),
        );
        assert_eq!(status, 200, "{made}");
        made["key"].as_str().unwrap().to_owned()
    };
    let (inventor, other) = (key("inventor"), key("other"));
    let ask = |key: &str, name: &str| {
        let path = "/v1/chat/completions";
        pool.request("POST", path, &body(name, false), Some(key))
    };
    let mut refused = 0;
    for nth in 0..100 {
        let (status, text, _) = ask(&inventor, &format!("lab/none-{nth}"));
        assert!([404, 503].contains(&status), "{text}");
        refused += u32::from(status == 503);
    }
    assert!(refused > 0);
    let (status, text, _) = ask(&other, "lab/other");
    assert_eq!(status, 200, "{text}");
}

#[test]
fn concurrent_registrations_by_users_never_exceed_the_limit() {
    let lab = Lab::new();
    lab.hub.add_folder("lab/third", Path::new(TINY));
    let env = [
        ("MODEL_POOL__CATALOG__ON_UNKNOWN", "anyone"),
        ("MODEL_POOL__CATALOG__UNKNOWN_LIMIT", "1"),
    ];
    let pool = lab.pool_with(&[model("unused", "")], "", &env);
    // Several users request the same model: later ones use the first registration.
    let names = ["lab/far", "lab/other", "lab/third", "lab/far", "lab/other"];
    let mut responses: Vec<(&str, u16)> = std::thread::scope(|scope| {
        let asked = names.map(|name| {
            let pool = &pool;
            let ask = move || pool.post("/v1/chat/completions", &body(name, false)).0;
            (name, scope.spawn(ask))
        });
        asked
            .into_iter()
            .map(|(name, asks)| (name, asks.join().unwrap()))
            .collect()
    });
    responses.sort_unstable();
    responses.dedup();
    let served: Vec<_> = responses
        .iter()
        .filter(|(_, status)| *status == 200)
        .collect();
    assert_eq!(served.len(), 1, "{responses:?}");
    assert!(
        responses
            .iter()
            .all(|(_, status)| [200, 503].contains(status)),
        "{responses:?}"
    );
}
