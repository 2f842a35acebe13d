//! The pool as a client of the issuer: sends a browser there (authorization code with PKCE, RFC 7636), and exchanges the code that
//! the browser brings back for an identity. The pool stores no state in between: state, nonce and verifier are digests of the text
//! in the browser's cookie, keyed by this process.
//!
//! ```text
//!  begin ─▶ address of the issuer, cookie ─▶ the person signs in there ─▶ complete(state, code, cookie)
//!                                                                          └─▶ code for ID token ─▶ identity
//! ```

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::error::{IssuerError, OidcError, SignOnError};
use super::identity::Identity;
use super::issuer::{Endpoints, Issuer};
use super::{Oidc, TOKEN_BYTES_MAX, head_of};
use config::oidc::BrowserSection;
use pool::{Span, Time};

/// Time limit for signing in at the issuer.
pub const ATTEMPT_MAX: Span = Span::from_secs(600);
/// Time for which the issuer's addresses, or a failure to read them, are cached.
const ADDRESSES_KEPT: Span = Span::from_secs(600);
const FAILURE_KEPT: Span = Span::from_secs(10);
/// Issuers' codes have some hundred characters.
const CODE_BYTES_MAX: usize = 4096;

/// A sign-in in progress: the address for the browser, and its cookie until it comes back.
pub struct PendingSignIn {
    pub address: Url,
    pub state: String,
    pub cookie: String,
}

pub(super) struct Browser {
    pub section: BrowserSection,
    key: hmac::Key,
    random: SystemRandom,
    addresses: Mutex<Addresses>,
}

#[derive(Default)]
struct Addresses {
    known: Option<(Endpoints, Time)>,
    failed: Option<(String, Time)>,
}

/// The values derived from the text of the cookie.
#[derive(Clone, Copy)]
enum Part {
    State,
    Nonce,
    Verifier,
}

impl Browser {
    pub fn new(section: &BrowserSection) -> Result<Browser, IssuerError> {
        let random = SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        let key = key.map_err(|_| IssuerError::Client {
            why: "the system has no random numbers".to_owned(),
        })?;
        Ok(Browser {
            section: section.clone(),
            key,
            random,
            addresses: Mutex::default(),
        })
    }

    /// Returns the address to send the browser to.
    pub async fn begin(
        &self,
        issuer: &Issuer,
        redirect: &str,
        now: Time,
    ) -> Result<PendingSignIn, SignOnError> {
        let endpoints = self.endpoints(issuer, now).await?;
        let mut bytes = [0; 32];
        self.random
            .fill(&mut bytes)
            .map_err(|_| SignOnError::NoRandom)?;
        let cookie = format!("{}.{}", now.0, URL_SAFE_NO_PAD.encode(bytes));
        let state = self.derive(Part::State, &cookie);
        let challenge = Sha256::digest(self.derive(Part::Verifier, &cookie));
        let mut address = endpoints.authorization;
        address
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.section.client_id)
            .append_pair("redirect_uri", redirect)
            .append_pair("scope", &self.section.scopes.join(" "))
            .append_pair("state", &state)
            .append_pair("nonce", &self.derive(Part::Nonce, &cookie))
            .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(challenge))
            .append_pair("code_challenge_method", "S256");
        Ok(PendingSignIn {
            address,
            state,
            cookie,
        })
    }

    /// Checks that this browser began the sign-in with this state, within the time limit.
    pub fn recognize(&self, state: &str, cookie: &str, now: Time) -> Result<(), SignOnError> {
        let began = cookie
            .split_once('.')
            .and_then(|(began, _)| began.parse().ok());
        let began = Time(began.ok_or(SignOnError::Unknown)?);
        let given = URL_SAFE_NO_PAD.decode(state);
        let given = given.map_err(|_| SignOnError::Unknown)?;
        let message = Part::State.message(cookie);
        let is_same = hmac::verify(&self.key, message.as_bytes(), &given).is_ok();
        // The wall clock may have been set back slightly.
        let age = Span(now.0.abs_diff(began.0));
        if is_same && age < ATTEMPT_MAX {
            Ok(())
        } else {
            Err(SignOnError::Unknown)
        }
    }

    /// Exchanges a code for the ID token. The issuer accepts each code once.
    pub async fn exchange(
        &self,
        issuer: &Issuer,
        (code, cookie): (&str, &str),
        redirect: &str,
        now: Time,
    ) -> Result<String, SignOnError> {
        if code.is_empty() || code.len() > CODE_BYTES_MAX {
            return Err(SignOnError::Unknown);
        }
        let endpoints = self.endpoints(issuer, now).await?;
        let secret = self.secret().await?;
        let verifier = self.derive(Part::Verifier, cookie);
        let id = self.section.client_id.as_str();
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", &verifier),
        ];
        let mut basic = None;
        match &secret {
            Some(secret) if endpoints.takes_basic => {
                let pair = format!("{}:{}", encoded(id), encoded(secret));
                let text = base64::engine::general_purpose::STANDARD.encode(pair);
                basic = Some(format!("Basic {text}"));
            }
            Some(secret) => form.extend([("client_id", id), ("client_secret", secret.as_str())]),
            None => form.push(("client_id", id)),
        }
        let response = issuer
            .post(&endpoints.token, form_text(&form), basic)
            .await?;
        let text = |field: &str| response.body.get(field).and_then(Value::as_str);
        if let Some(token) = text("id_token").filter(|_| response.is_success) {
            return Ok(token.to_owned());
        }
        let words = text("error").unwrap_or("without an ID token");
        let clean = words
            .chars()
            .filter(|letter| !letter.is_control())
            .take(100);
        Err(SignOnError::Refused {
            status: response.status,
            error: clean.collect(),
        })
    }

    /// Checks that the ID token was made for this sign-in and for this client.
    pub fn check(&self, claims: &Map<String, Value>, cookie: &str) -> Result<(), SignOnError> {
        let text = |claim: &str| claims.get(claim).and_then(Value::as_str);
        let nonce = self.derive(Part::Nonce, cookie);
        let is_ours = text("azp").is_none_or(|party| party == self.section.client_id);
        if text("nonce") == Some(nonce.as_str()) && is_ours {
            Ok(())
        } else {
            Err(SignOnError::OtherSignIn)
        }
    }

    async fn secret(&self) -> Result<Option<String>, SignOnError> {
        let Some(path) = &self.section.client_secret_file else {
            return Ok(None);
        };
        let unusable = |why: String| SignOnError::Secret {
            path: path.clone(),
            why,
        };
        let text = tokio::fs::read_to_string(path).await;
        let text = text.map_err(|error| unusable(error.to_string()))?;
        match text.trim() {
            "" => Err(unusable("it is empty".to_owned())),
            secret => Ok(Some(secret.to_owned())),
        }
    }

    /// The issuer's addresses. One request reads them for all waiting sign-ins. A failure is cached for some time, because any
    /// visitor may begin to sign in.
    async fn endpoints(&self, issuer: &Issuer, now: Time) -> Result<Endpoints, SignOnError> {
        let is_recent = |since: Time, most: Span| now.0.abs_diff(since.0) < most.0;
        let mut addresses = self.addresses.lock().await;
        if let Some((known, since)) = &addresses.known
            && is_recent(*since, ADDRESSES_KEPT)
        {
            return Ok(known.clone());
        }
        if let Some((why, since)) = &addresses.failed
            && is_recent(*since, FAILURE_KEPT)
        {
            return Err(SignOnError::Unavailable { why: why.clone() });
        }
        match issuer.endpoints().await {
            Ok(endpoints) => {
                addresses.known = Some((endpoints.clone(), now));
                addresses.failed = None;
                Ok(endpoints)
            }
            Err(error) => {
                let why = error.to_string();
                addresses.failed = Some((why.clone(), now));
                Err(SignOnError::Unavailable { why })
            }
        }
    }

    fn derive(&self, part: Part, cookie: &str) -> String {
        let tag = hmac::sign(&self.key, part.message(cookie).as_bytes());
        URL_SAFE_NO_PAD.encode(tag)
    }
}

impl Part {
    fn message(self, cookie: &str) -> String {
        let name = match self {
            Part::State => "state",
            Part::Nonce => "nonce",
            Part::Verifier => "verifier",
        };
        format!("{name} {cookie}")
    }
}

impl Oidc {
    /// The issuer's host and the registered redirect address, if browsers may sign in there.
    pub fn browsers(&self) -> Option<(String, Option<&str>)> {
        let browser = self.browser.as_ref()?;
        let host = self.issuer.host();
        Some((host, browser.section.redirect_uri.as_deref()))
    }

    /// Returns the address to send a browser to for signing in. It comes back to `redirect`.
    ///
    /// # Errors
    /// If the issuer cannot be reached, or is not for browsers.
    pub async fn begin(&self, redirect: &str) -> Result<PendingSignIn, SignOnError> {
        let browser = self.browser.as_ref().ok_or(SignOnError::Unknown)?;
        browser.begin(&self.issuer, redirect, (self.clock)()).await
    }

    /// The identity of the person who came back from the issuer, for a session of the configured length.
    ///
    /// # Errors
    /// The reason that the person is not signed in.
    pub async fn complete(
        &self,
        state: &str,
        code: &str,
        cookie: &str,
        redirect: &str,
    ) -> Result<Arc<Identity>, SignOnError> {
        let browser = self.browser.as_ref().ok_or(SignOnError::Unknown)?;
        let now = (self.clock)();
        browser.recognize(state, cookie, now)?;
        let exchanged = browser.exchange(&self.issuer, (code, cookie), redirect, now);
        let token = exchanged.await?;
        if token.len() > TOKEN_BYTES_MAX {
            let (bytes, limit) = (token.len(), TOKEN_BYTES_MAX);
            return Err(OidcError::TooLong { bytes, limit }.into());
        }
        let header = head_of(&token)?;
        let known = self.rotation.known(now);
        let (claims, _) = self.verified_claims(&token, &header, known, now).await?;
        browser.check(&claims, cookie)?;
        let mut identity = self.identify(&claims, &browser.section.client_id, now)?;
        identity.expires = now + browser.section.session.0;
        let name = identity.name.clone();
        self.signed_on().put(identity.key, name);
        Ok(Arc::new(identity))
    }
}

/// A form as `application/x-www-form-urlencoded`.
fn form_text(fields: &[(&str, &str)]) -> String {
    let mut address = Url::parse("http://form/").expect("is an address");
    address.query_pairs_mut().extend_pairs(fields);
    address.query().unwrap_or_default().to_owned()
}

/// One value of a form (RFC 6749, 2.3.1).
fn encoded(text: &str) -> String {
    form_text(&[("", text)])[1..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn browser() -> Browser {
        let section = serde_json::from_value(json!({"client_id": "pool"})).unwrap();
        Browser::new(&section).unwrap()
    }

    #[test]
    fn an_oidc_state_is_valid_for_ten_minutes_with_its_cookie_in_the_same_process() {
        let (browser, other) = (browser(), browser());
        let (now, cookie) = (Time(1_800_000_000_000), "1800000000000.abc");
        let state = browser.derive(Part::State, cookie);
        let at = |seconds: u64| Time(now.0 + seconds * 1000);
        assert!(browser.recognize(&state, cookie, at(599)).is_ok());
        for (by, state, cookie, when) in [
            (&browser, state.as_str(), cookie, at(600)),
            (&browser, &state, "1800000000000.abd", now),
            (&browser, &state, "1800000000001.abc", now),
            (&browser, &state, "abc", now),
            (&browser, &state, "", now),
            (&browser, "", cookie, now),
            (&browser, "no base64!", cookie, now),
            (&other, &state, cookie, now),
        ] {
            let refused = by.recognize(state, cookie, when);
            assert!(refused.is_err(), "{state} {cookie}");
        }
    }

    #[test]
    fn an_id_token_must_contain_the_nonce_of_its_cookie() {
        let browser = browser();
        let nonce = browser.derive(Part::Nonce, "1.a");
        let check = |claims: Value| browser.check(claims.as_object().unwrap(), "1.a");
        assert!(check(json!({"nonce": nonce})).is_ok());
        assert!(check(json!({"nonce": nonce, "azp": "pool"})).is_ok());
        assert!(check(json!({"nonce": nonce, "azp": "other"})).is_err());
        assert!(check(json!({"nonce": browser.derive(Part::State, "1.a")})).is_err());
        assert!(check(json!({})).is_err());
    }

    #[test]
    fn form_fields_are_percent_encoded() {
        let fields = [("a", "1 2&3"), ("b", "ä:+")];
        assert_eq!(form_text(&fields), "a=1+2%263&b=%C3%A4%3A%2B");
        assert_eq!(encoded("a:b c"), "a%3Ab+c");
    }
}
