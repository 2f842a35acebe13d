//! A token issuer on this machine. It serves its description, publishes test keys, signs any claims, counts its requests, and can
//! fail, respond incorrectly or redirect.
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use rsa::pkcs8::EncodePrivateKey;
use rsa::traits::PublicKeyParts;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::http_server;

pub fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A signing key with its private part.
pub struct Key {
    pub id: String,
    public: Value,
    pair: Pair,
}

enum Pair {
    Rsa(&'static RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

/// Generating 2048-bit numbers takes time, so the tests of a program share two.
fn rsa_numbers(which: usize) -> &'static (RsaKeyPair, Value) {
    static FOUND: [OnceLock<(RsaKeyPair, Value)>; 2] = [OnceLock::new(), OnceLock::new()];
    FOUND[which].get_or_init(|| {
        let private = rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048).unwrap();
        let pair = RsaKeyPair::from_pkcs8(private.to_pkcs8_der().unwrap().as_bytes()).unwrap();
        let (n, e) = (private.n().to_bytes_be(), private.e().to_bytes_be());
        let public = json!({"kty": "RSA", "n": base64url(n), "e": base64url(e)});
        (pair, public)
    })
}

impl Key {
    pub fn rsa(id: &str) -> Key {
        Key::rsa_of(id, 0)
    }

    fn rsa_of(id: &str, which: usize) -> Key {
        let (pair, public) = rsa_numbers(which);
        Key {
            id: id.to_owned(),
            public: public.clone(),
            pair: Pair::Rsa(pair),
        }
    }

    pub fn ecdsa(id: &str, curve: &str) -> Key {
        let (kind, half) = match curve {
            "P-256" => (&signature::ECDSA_P256_SHA256_FIXED_SIGNING, 32),
            _ => (&signature::ECDSA_P384_SHA384_FIXED_SIGNING, 48),
        };
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(kind, made.as_ref(), &random).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(half);
        Key {
            id: id.to_owned(),
            public: json!({"kty": "EC", "crv": curve, "x": base64url(x), "y": base64url(y)}),
            pair: Pair::Ecdsa(pair),
        }
    }

    pub fn ed25519(id: &str) -> Key {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap();
        let x = base64url(pair.public_key().as_ref());
        Key {
            id: id.to_owned(),
            public: json!({"kty": "OKP", "crv": "Ed25519", "x": x}),
            pair: Pair::Ed(pair),
        }
    }

    /// The public key in the issuer's format.
    pub fn published(&self) -> Value {
        let mut published = self.public.clone();
        published["kid"] = self.id.as_str().into();
        published["use"] = "sig".into();
        published
    }

    /// A token of this key.
    pub fn token(&self, algorithm: &str, claims: &Value) -> String {
        let header = json!({"typ": "JWT", "alg": algorithm, "kid": self.id});
        self.token_with(&header, claims)
    }

    /// A token with another header, which need not be valid.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = self.sign(header["alg"].as_str().unwrap_or(""), message.as_bytes());
        format!("{message}.{}", base64url(signature))
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ecdsa(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let padding: &dyn signature::RsaEncoding = match algorithm {
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    "PS512" => &signature::RSA_PSS_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, message, &mut signed).unwrap();
                signed
            }
        }
    }
}

/// Header and claims of a token, without its signature.
pub fn message(header: &Value, claims: &Value) -> String {
    format!(
        "{}.{}",
        base64url(header.to_string()),
        base64url(claims.to_string())
    )
}

/// The issuer's responses and behaviour. Tests change them at run time.
pub struct Behaviour {
    pub name: String,
    pub keys_address: String,
    pub keys: Vec<Value>,
    pub is_down: bool,
    /// Redirects every request to this address.
    pub redirect: Option<String>,
    /// Number of blanks before each response.
    pub padding: usize,
    pub described: usize,
    pub keys_given: usize,
}

pub struct Issuer {
    /// The issuer's name, which is its URL.
    pub url: String,
    /// Host and port.
    pub address: String,
    behaviour: Arc<Mutex<Behaviour>>,
    _stop: oneshot::Sender<()>,
}

impl Issuer {
    /// Serves with these keys until dropped.
    pub fn with(keys: &[&Key]) -> Issuer {
        let listener = http_server::free_port();
        let address = listener.local_addr().unwrap().to_string();
        let url = format!("http://{address}/realms/lab");
        let behaviour = Arc::new(Mutex::new(Behaviour {
            name: url.clone(),
            keys_address: format!("{url}/keys"),
            keys: keys.iter().map(|key| key.published()).collect(),
            is_down: false,
            redirect: None,
            padding: 0,
            described: 0,
            keys_given: 0,
        }));
        let router = Router::new()
            .fallback(respond)
            .with_state(Arc::clone(&behaviour));
        Issuer {
            url,
            address,
            behaviour,
            _stop: http_server::serve_while_held(listener, router),
        }
    }

    pub fn now(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap()
    }

    pub fn publishes(&self, keys: &[&Key]) {
        self.now().keys = keys.iter().map(|key| key.published()).collect();
    }

    /// Number of requests for its description.
    pub fn described(&self) -> usize {
        self.now().described
    }

    /// Number of requests for its keys.
    pub fn keys_given(&self) -> usize {
        self.now().keys_given
    }
}

async fn respond(State(behaviour): State<Arc<Mutex<Behaviour>>>, request: Request) -> Response {
    let mut now = behaviour.lock().unwrap();
    let path = request.uri().path();
    let body = if path.ends_with("/.well-known/openid-configuration") {
        now.described += 1;
        json!({"issuer": now.name, "jwks_uri": now.keys_address})
    } else if path.ends_with("/keys") {
        now.keys_given += 1;
        json!({"keys": now.keys})
    } else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if now.is_down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if let Some(target) = &now.redirect {
        let to = [(header::LOCATION, format!("{target}{path}"))];
        return (StatusCode::FOUND, to).into_response();
    }
    format!("{}{body}", " ".repeat(now.padding)).into_response()
}
