//! An OpenID provider on this machine for browser sign-in (authorization code with PKCE): a login page with name and password,
//! single-use codes, and ID tokens. It makes the checks of a strict provider, and tests can make it respond incorrectly.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Query, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use crate::http_server;
use crate::issuer::{Key, base64url};

type Fields = BTreeMap<String, String>;
type SharedBehaviour = Arc<Mutex<Behaviour>>;

/// Data and behaviour of the provider. Tests change them at run time.
pub struct Behaviour {
    url: String,
    key: Key,
    /// `None` for a public client.
    pub secret: Option<String>,
    /// The only permitted redirect address.
    pub redirect_uri: String,
    /// Groups of each person. Every password is `word`.
    pub people: BTreeMap<String, Vec<String>>,
    /// Replacements for claims of ID tokens; null removes a claim.
    pub claims: Value,
    pub is_down: bool,
    codes: BTreeMap<String, Code>,
    /// Number of codes exchanged for tokens.
    pub redeemed: usize,
    pub failures: Vec<String>,
}

struct Code {
    person: String,
    sent: Fields,
}

pub struct Provider {
    /// The provider's name, which is its URL.
    pub url: String,
    behaviour: SharedBehaviour,
    _stop: oneshot::Sender<()>,
}

pub const CLIENT: &str = "model-pool";
pub const WORD: &str = "word";

impl Provider {
    /// Serves until dropped.
    pub fn start() -> Provider {
        let listener = http_server::free_port();
        let url = format!("http://{}/realms/lab", listener.local_addr().unwrap());
        let behaviour = Arc::new(Mutex::new(Behaviour {
            url: url.clone(),
            key: Key::ecdsa("2026-11", "P-256"),
            secret: None,
            redirect_uri: String::new(),
            people: BTreeMap::new(),
            claims: json!({}),
            is_down: false,
            codes: BTreeMap::new(),
            redeemed: 0,
            failures: Vec::new(),
        }));
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(describe))
            .route("/keys", get(keys))
            .route("/authorize", get(page).post(sign_in))
            .route("/token", post(token));
        let router = Router::new()
            .nest("/realms/lab", routes)
            .with_state(Arc::clone(&behaviour));
        Provider {
            url,
            behaviour,
            _stop: http_server::serve_while_held(listener, router),
        }
    }

    pub fn now(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap()
    }
}

async fn describe(State(shared): State<SharedBehaviour>) -> Response {
    let now = shared.lock().unwrap();
    if now.is_down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let url = &now.url;
    Json(json!({"issuer": url, "jwks_uri": format!("{url}/keys"), "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"), "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}))
    .into_response()
}

async fn keys(State(shared): State<SharedBehaviour>) -> Json<Value> {
    Json(json!({"keys": [shared.lock().unwrap().key.published()]}))
}

/// The problem with a sign-in request, if any; such a browser is not redirected back.
fn problem(now: &Behaviour, sent: &Fields) -> Option<String> {
    let needed = [
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", &now.redirect_uri),
        ("code_challenge_method", "S256"),
    ];
    let wrong = needed
        .iter()
        .find(|(name, value)| sent.get(*name).map(String::as_str) != Some(value));
    if let Some((name, value)) = wrong {
        return Some(format!("{name} is not {value}: {sent:?}"));
    }
    let scopes = sent.get("scope").map_or("", String::as_str);
    let lengths =
        ["state", "nonce", "code_challenge"].map(|field| sent.get(field).map_or(0, String::len));
    if scopes.split(' ').any(|scope| scope == "openid") && lengths == [43; 3] {
        None
    } else {
        Some(format!("the scope or a random text is wrong: {sent:?}"))
    }
}

async fn page(
    State(shared): State<SharedBehaviour>,
    RawQuery(raw): RawQuery,
    Query(sent): Query<Fields>,
) -> Response {
    let mut now = shared.lock().unwrap();
    if let Some(problem) = problem(&now, &sent) {
        now.failures.push(problem.clone());
        return (StatusCode::BAD_REQUEST, problem).into_response();
    }
    // The form posts to the page's own address to keep the query.
    let target = raw.unwrap_or_default().replace('&', "&amp;");
    Html(format!("<!doctype html><html lang=en><title>The lab's sign-in</title><h1>The lab's sign-in</h1>\
        <form method=post action='authorize?{target}'><label>Name <input name=name></label> <label>Word <input name=word type=password></label> \
        <button name=does value=yes>Continue</button> <button name=does value=no>Cancel</button></form>"))
    .into_response()
}

async fn sign_in(
    State(shared): State<SharedBehaviour>,
    Query(sent): Query<Fields>,
    Form(form): Form<Fields>,
) -> Response {
    let mut now = shared.lock().unwrap();
    if let Some(problem) = problem(&now, &sent) {
        return (StatusCode::BAD_REQUEST, problem).into_response();
    }
    let of = |name: &str| form.get(name).map_or("", String::as_str);
    let name = of("name").to_owned();
    let response = if of("does") == "no" {
        "error=access_denied&error_description=The+person+stopped".to_owned()
    } else if of("word") != WORD || !now.people.contains_key(&name) {
        return (StatusCode::FORBIDDEN, "a wrong name or word").into_response();
    } else {
        let code = base64url(Sha256::digest(format!("{} {name}", now.codes.len())));
        let made = Code {
            person: name,
            sent: sent.clone(),
        };
        now.codes.insert(code.clone(), made);
        format!("code={code}")
    };
    let issuer = now.url.replace(':', "%3A").replace('/', "%2F");
    let back = format!(
        "{}?{response}&state={}&iss={issuer}&session_state=more",
        sent["redirect_uri"], sent["state"]
    );
    (StatusCode::SEE_OTHER, [(header::LOCATION, back)]).into_response()
}

async fn token(
    State(shared): State<SharedBehaviour>,
    headers: HeaderMap,
    Form(form): Form<Fields>,
) -> Response {
    let mut now = shared.lock().unwrap();
    match redeem(&mut now, &headers, &form) {
        Ok(token) => {
            now.redeemed += 1;
            Json(json!({"access_token": "opaque", "token_type": "Bearer", "id_token": token}))
                .into_response()
        }
        Err((error, why)) => {
            now.failures.push(why);
            (StatusCode::BAD_REQUEST, Json(json!({"error": error}))).into_response()
        }
    }
}

fn redeem(
    now: &mut Behaviour,
    headers: &HeaderMap,
    form: &Fields,
) -> Result<String, (&'static str, String)> {
    let of = |name: &str| form.get(name).map_or("", String::as_str);
    let client = match &now.secret {
        Some(secret) => {
            let wanted = format!("Basic {}", STANDARD.encode(format!("{CLIENT}:{secret}")));
            headers
                .get(header::AUTHORIZATION)
                .is_some_and(|value| *value == wanted)
        }
        None => of("client_id") == CLIENT,
    };
    if !client {
        return Err(("invalid_client", "the client's secret is wrong".to_owned()));
    }
    // A code is used up even if the rest of the request is wrong.
    let code = now.codes.remove(of("code"));
    let code = code.ok_or_else(|| ("invalid_grant", "the code is unknown".to_owned()))?;
    let challenge = base64url(Sha256::digest(of("code_verifier")));
    if of("grant_type") != "authorization_code"
        || of("redirect_uri") != code.sent["redirect_uri"]
        || challenge != code.sent["code_challenge"]
    {
        return Err((
            "invalid_grant",
            format!("the code is not for this: {form:?}"),
        ));
    }
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let mut claims = json!({"iss": now.url, "aud": CLIENT, "sub": format!("id of {}", code.person), "nonce": code.sent["nonce"],
        "preferred_username": code.person, "groups": now.people[&code.person], "iat": seconds, "exp": seconds + 60});
    let all = claims.as_object_mut().unwrap();
    all.extend(now.claims.as_object().unwrap().clone());
    all.retain(|_, value| !value.is_null());
    Ok(now.key.token("ES256", &claims))
}
