//! The kinds of callers, with the headers of their requests.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::wire::{WireRequest, cookie, say};
use support::issuer::{Issuer, Key};
use support::service::Pool;

/// A kind of caller.
pub struct Caller {
    pub title: &'static str,
    bearer: Bearer,
    /// Additional header lines.
    lines: &'static [(&'static str, &'static str)],
    pub is_admin: bool,
    /// A remote caller, or a page of another site.
    pub is_stranger: bool,
    pub is_for_another_model: bool,
    pub is_viewer: bool,
    pub is_group_admin: bool,
    pub is_page_of_another_site: bool,
}

#[derive(Clone, Copy)]
enum Bearer {
    None,
    Text(&'static str),
    /// The key at this index in [`Scene::keys`].
    Key(usize),
    Person(&'static str),
    /// A new session of the key at this index.
    Session(usize),
}

const fn caller(title: &'static str, bearer: Bearer) -> Caller {
    Caller {
        title,
        bearer,
        lines: &[],
        is_admin: false,
        is_stranger: false,
        is_for_another_model: false,
        is_viewer: false,
        is_group_admin: false,
        is_page_of_another_site: false,
    }
}

const FROM_AFAR: &[(&str, &str)] = &[("X-Forwarded-For", "192.0.2.7")];
const FROM_A_PAGE: &[(&str, &str)] = &[
    ("Origin", "https://evil.example"),
    ("Sec-Fetch-Site", "cross-site"),
    ("Sec-Fetch-Mode", "no-cors"),
];

const FROM_OUR_PAGE: &[(&str, &str)] = &[
    ("Sec-Fetch-Site", "same-origin"),
    ("x-model-pool-csrf", "1"),
];
const FROM_A_PAGE_WITH_THE_HEADER: &[(&str, &str)] = &[
    ("Origin", "https://evil.example"),
    ("Sec-Fetch-Site", "cross-site"),
    ("x-model-pool-csrf", "1"),
];

pub const CALLERS: [Caller; 17] = [
    Caller {
        lines: FROM_AFAR,
        is_stranger: true,
        ..caller("from afar, no key", Bearer::None)
    },
    caller("this machine, no key", Bearer::None),
    Caller {
        lines: FROM_A_PAGE,
        is_stranger: true,
        is_page_of_another_site: true,
        ..caller("a web page in a browser here", Bearer::None)
    },
    Caller {
        is_stranger: true,
        ..caller(
            "unknown key",
            Bearer::Text("mp-0000000000000000000000000000000000000000000"),
        )
    },
    caller("user key", Bearer::Key(0)),
    Caller {
        is_for_another_model: true,
        ..caller("key for another model", Bearer::Key(1))
    },
    Caller {
        is_for_another_model: true,
        ..caller("key for an adapter of the model", Bearer::Key(2))
    },
    caller("key for `/v1/models`", Bearer::Key(3)),
    Caller {
        is_admin: true,
        ..caller("admin key", Bearer::Key(4))
    },
    Caller {
        is_admin: true,
        ..caller("admin key for `/admin/plan`", Bearer::Key(5))
    },
    caller("person, user", Bearer::Person("students")),
    Caller {
        is_admin: true,
        ..caller("person, admin", Bearer::Person("staff"))
    },
    Caller {
        is_viewer: true,
        ..caller("viewer key", Bearer::Key(6))
    },
    Caller {
        is_group_admin: true,
        ..caller("group admin key", Bearer::Key(7))
    },
    Caller {
        is_group_admin: true,
        ..caller("person, group admin", Bearer::Person("tutors"))
    },
    Caller {
        lines: FROM_OUR_PAGE,
        is_admin: true,
        ..caller("session of an admin key", Bearer::Session(4))
    },
    Caller {
        lines: FROM_A_PAGE_WITH_THE_HEADER,
        is_stranger: true,
        is_page_of_another_site: true,
        ..caller("that session, another site's page", Bearer::Session(4))
    },
];

/// A pool with a model, two adapters of it and another model, all routes of older systems, and an issuer.
pub struct Scene {
    pub pool: Pool,
    keys: Vec<String>,
    issuer: Issuer,
    signer: Key,
}

impl Scene {
    pub fn open() -> Scene {
        let signer = Key::ecdsa("2026-11", "P-256");
        let issuer = Issuer::with(&[&signer]);
        let oidc = json!({"issuer": issuer.url, "audience": "model-pool",
            "groups": {"staff": {"role": "admin"}, "students": {"role": "user"}, "tutors": {"role": "group-admin"}}});
        let config = format!(
            "auth: {{oidc: {oidc}}}\ngroups: {{course: {{claims: [tutors]}}}}\ncompat: {{ncsa: true, ollama: true, rayllm: true, run: true}}\n"
        );
        let proxies = [("MODEL_POOL__SERVER__TRUSTED_PROXIES", "[127.0.0.1]")];
        let pool = Pool::with_env(&models(), &config, &proxies);
        let wishes = [
            json!({"role": "user"}),
            json!({"role": "user", "models": ["lab/other"]}),
            json!({"role": "user", "models": ["lab/polite"]}),
            json!({"role": "user", "routes": ["/v1/models"]}),
            json!({"role": "admin"}),
            json!({"role": "admin", "routes": ["/admin/plan"]}),
            json!({"role": "viewer"}),
            json!({"role": "group-admin", "group": "course"}),
        ];
        let keys = wishes.into_iter().map(|wish| key(&pool, wish)).collect();
        Scene {
            pool,
            keys,
            issuer,
            signer,
        }
    }

    /// Returns status and body. Loads nothing.
    pub fn ask(
        &self,
        caller: &Caller,
        method: &str,
        address: &str,
        kind: &str,
        body: &str,
    ) -> (u16, String) {
        let bearer = match caller.bearer {
            Bearer::None => None,
            Bearer::Text(text) => Some(text.to_owned()),
            Bearer::Key(place) => Some(self.keys[place].clone()),
            Bearer::Person(group) => Some(self.token(group)),
            Bearer::Session(_) => None,
        };
        let cookie = match caller.bearer {
            // This request may end the session.
            Bearer::Session(place) => Some(log_in(&self.pool, &self.keys[place])),
            _ => None,
        };
        let bearer = bearer.map(|text| format!("Bearer {text}"));
        let mut lines = vec![("x-model-pool-wait", "false")];
        lines.extend(caller.lines);
        lines.extend(cookie.as_deref().map(|text| ("Cookie", text)));
        lines.extend(bearer.as_deref().map(|text| ("Authorization", text)));
        let said = WireRequest {
            host: None,
            method,
            path: address,
            kind,
            body,
            lines: &lines,
        };
        say(&self.pool, said)
    }

    fn token(&self, group: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap().as_secs();
        let claims = json!({
            "iss": self.issuer.url, "aud": "model-pool", "sub": group, "preferred_username": group,
            "iat": now - 10, "exp": now + 300, "groups": [group],
        });
        self.signer.token("ES256", &claims)
    }
}

/// These models need no engine: their requests do not wait for a load.
pub fn models() -> Vec<(String, String)> {
    let base = "engine_config:\n  model_id: lab/base\n  type: VLLMEngine\n  model_path: /srv/base\n  lora_adapters: [{name: lab/polite, path: /srv/polite}, {name: lab/terse, path: /srv/terse}]\npool_config: {memory_gib: 10, aliases: [base]}\n";
    let other = "engine_config: {model_id: lab/other, type: VLLMEngine, model_path: /srv/other}\npool_config: {memory_gib: 10}\n";
    [("base.yaml", base), ("other.yaml", other)]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .to_vec()
}

/// The cookie of a new session.
pub fn log_in(pool: &Pool, key: &str) -> String {
    let body = json!({ "key": key }).to_string();
    let said = WireRequest {
        host: None,
        method: "POST",
        path: "/llm/session",
        kind: "application/json",
        body: &body,
        lines: &[],
    };
    cookie(pool, said).expect("a cookie")
}

/// A new key created by the first administrator.
pub fn key(pool: &Pool, wish: Value) -> String {
    let (status, made) = make(pool, &pool.admin_key(), wish);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

/// Result of creating a key with this bearer token.
pub fn make(pool: &Pool, bearer: &str, mut wish: Value) -> (u16, Value) {
    wish["name"] = json!("made");
    admin(pool, bearer, "POST", "/keys", &wish)
}

pub fn admin(pool: &Pool, bearer: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let (status, text, _) = pool.request(method, &format!("/llm/admin{path}"), &text, Some(bearer));
    (status, serde_json::from_str(&text).unwrap_or_default())
}
