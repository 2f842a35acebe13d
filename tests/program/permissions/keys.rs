//! Keys that an administrator with a restricted key may create.

use serde_json::{Value, json};

use super::callers::{admin, key, make, models};
use support::service::Pool;

const BEYOND: &str = "beyond_own_rights";

fn pool() -> Pool {
    Pool::with_models(&models(), "limits: {default: {requests_per_minute: 60}}\n")
}

fn code((status, response): &(u16, Value)) -> (u16, &str) {
    (
        *status,
        response["error"]["code"].as_str().unwrap_or_default(),
    )
}

#[test]
fn a_key_that_creates_keys_cannot_grant_more_than_its_own_rights() {
    let pool = pool();
    let maker = key(
        &pool,
        json!({"role": "admin", "routes": ["/admin/keys", "/v1/*"], "models": ["lab/o*"], "expires": "30d",
            "limits": {"requests_per_minute": 30}}),
    );
    let fine = json!({"role": "user", "routes": ["/v1/chat/*"], "models": ["lab/other"], "expires": "29d",
        "limits": {"requests_per_minute": 30}});
    let made = make(&pool, &maker, fine.clone());
    assert_eq!(made.0, 200, "{}", made.1);
    for (field, value) in [
        ("routes", json!([])),
        ("routes", json!(["/admin/*"])),
        ("routes", json!(["/v1/chat/*", "/admin/load"])),
        ("models", json!([])),
        ("models", json!(["lab/*"])),
        ("models", json!(["lab/other", "lab/base"])),
        ("expires", json!("31d")),
        ("expires", Value::Null),
        ("limits", json!({"requests_per_minute": 31})),
        ("limits", json!({})),
        ("limits", Value::Null),
    ] {
        for role in ["user", "admin"] {
            let mut wish = fine.clone();
            wish["role"] = json!(role);
            match &value {
                Value::Null => wish.as_object_mut().unwrap().remove(field),
                value => wish
                    .as_object_mut()
                    .unwrap()
                    .insert(field.to_owned(), value.clone()),
            };
            let refused = make(&pool, &maker, wish);
            assert_eq!(
                code(&refused),
                (403, BEYOND),
                "{field}: {value}: {}",
                refused.1
            );
            let message = refused.1["error"]["message"].as_str().unwrap();
            assert!(message.starts_with(field), "{message}");
        }
    }
    // An unrestricted administrator has no bounds, including the default limits.
    let first = pool.admin_key();
    let wide = make(&pool, &first, json!({"role": "admin", "limits": {}}));
    assert_eq!(wide.0, 200, "{}", wide.1);
}

#[test]
fn a_key_that_creates_keys_cannot_change_or_revoke_a_more_powerful_one() {
    let pool = pool();
    let first = pool.admin_key();
    let maker = key(&pool, json!({"role": "admin", "routes": ["/admin/keys"]}));
    let (_, user) = make(&pool, &first, json!({"role": "user"}));
    let (_, equal) = make(
        &pool,
        &first,
        json!({"role": "admin", "routes": ["/admin/keys"]}),
    );
    let id = |key: &Value| format!("/keys?id={}", key["id"].as_str().unwrap());
    let above = ["/keys?id=k1".to_owned(), id(&user)];
    for path in &above {
        for (method, body) in [
            ("DELETE", Value::Null),
            ("PATCH", json!({"name": "mine"})),
            ("PATCH", json!({"routes": ["/admin/keys"]})),
            ("PATCH", json!({"expires": "1s"})),
        ] {
            let refused = admin(&pool, &maker, method, path, &body);
            assert_eq!(code(&refused), (403, BEYOND), "{method} {path} {body}");
        }
    }
    // It may change itself and equal keys, but not raise them.
    let (_, keys) = admin(&pool, &first, "GET", "/keys", &Value::Null);
    let own = keys["keys"].as_array().unwrap()[1].clone();
    for key in [&equal, &own] {
        let raised = admin(&pool, &maker, "PATCH", &id(key), &json!({"routes": null}));
        assert_eq!(code(&raised), (403, BEYOND));
        // Without separate limits it has the default ones.
        let loosened = json!({"limits": {}});
        let raised = admin(&pool, &maker, "PATCH", &id(key), &loosened);
        assert_eq!(code(&raised), (403, BEYOND));
        let renamed = admin(&pool, &maker, "PATCH", &id(key), &json!({"name": "other"}));
        assert_eq!(code(&renamed).0, 200, "{}", renamed.1);
    }
    assert_eq!(
        admin(&pool, &maker, "DELETE", &id(&equal), &Value::Null).0,
        200
    );
    // No part was stored: the first key still has its permissions, and the user's key is still valid.
    assert_eq!(admin(&pool, &first, "GET", "/models", &Value::Null).0, 200);
    let bearer = user["key"].as_str().unwrap();
    assert_eq!(pool.request("GET", "/v1/models", "", Some(bearer)).0, 200);
}
