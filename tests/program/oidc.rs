//! Single sign-on with a local issuer: accepted and rejected tokens, changing keys, and an issuer that is down. Tests control the
//! clock.

mod browser;
mod door;
mod rotation;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model_pool::access::oidc::{Identity, Oidc, OidcError};
use model_pool::config::OidcSection;
use model_pool::pool::Time;
use serde_json::{Value, json};

use support::issuer::Issuer;

const NOW_SECONDS: u64 = 1_800_000_000;

/// A pool's view of an issuer, at a time that the test sets.
struct Scene {
    issuer: Issuer,
    oidc: Arc<Oidc>,
    clock: Arc<AtomicU64>,
}

impl Scene {
    async fn new(issuer: Issuer) -> Scene {
        let name = issuer.now().name.clone();
        Scene::with(issuer, &json!({"issuer": name})).await
    }

    /// As `new`, with these keys of the section.
    async fn with(issuer: Issuer, changes: &Value) -> Scene {
        let clock = Arc::new(AtomicU64::new(NOW_SECONDS * 1000));
        let reads = Arc::clone(&clock);
        let section = section(&issuer.url, changes);
        let oidc = Oidc::new(&section, move || Time(reads.load(Ordering::Relaxed)));
        let oidc = Arc::new(oidc.await.unwrap());
        Scene {
            issuer,
            oidc,
            clock,
        }
    }

    async fn verify(&self, token: &str) -> Result<Arc<Identity>, OidcError> {
        self.oidc.verify(token).await
    }

    /// The error message.
    async fn refusal(&self, token: &str) -> String {
        self.verify(token)
            .await
            .expect_err("is refused")
            .to_string()
    }

    fn pass_seconds(&self, seconds: u64) {
        self.clock.fetch_add(seconds * 1000, Ordering::Relaxed);
    }

    /// Valid claims with these replacements; null removes a claim.
    fn claims(&self, changes: Value) -> Value {
        claims_of(&self.issuer.now().name, NOW_SECONDS, changes)
    }
}

fn section(issuer: &str, changes: &Value) -> OidcSection {
    let mut section = json!({
        "issuer": issuer, "audience": "model-pool",
        "groups": {
            "staff": {"role": "admin"},
            "students": {"role": "user", "models": ["tiny-*"], "routes": ["/v1/*"]},
        },
    });
    merge(&mut section, changes);
    serde_json::from_value(section).unwrap()
}

fn claims_of(issuer: &str, now: u64, changes: Value) -> Value {
    let mut claims = json!({
        "iss": issuer, "aud": "model-pool", "sub": "4711", "preferred_username": "ann",
        "iat": now - 10, "exp": now + 300, "groups": ["staff"],
    });
    merge(&mut claims, &changes);
    claims
}

fn merge(into: &mut Value, changes: &Value) {
    let all = into.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        all.insert(name.clone(), value.clone());
    }
    all.retain(|_, value| !value.is_null());
}
