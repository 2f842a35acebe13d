//! Single sign-on: verifies bearer tokens of the configured issuer, and determines the permissions of the person's groups. Keeps
//! the issuer's keys and the verified identities; of a token it keeps only the digest.
//!
//! | file        | what                                                          |
//! |-------------|---------------------------------------------------------------|
//! | `browser`   | browsers that sign in at the issuer                           |
//! | `claims`    | checks of audience and time, and the identity                 |
//! | `keys`      | the keys of the issuer, and the choice of one for a token     |
//! | `signature` | the cryptography, by `ring`                                   |
//! | `issuer`    | fetches the issuer's discovery document and keys              |
//! | `rotation`  | the current keys, and when they are refreshed                 |

mod browser;
mod claims;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod issuer;
mod keys;
mod rotation;
mod signature;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, AlgorithmFamily, Header, Validation};
use lru::LruCache;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use config::OidcSection;
use pool::{KeyId, Time};

use browser::Browser;
use claims::Rules;
use issuer::Issuer;
use keys::MissingKey;
use rotation::{KnownKeys, Rotation};

pub use browser::{ATTEMPT_MAX, PendingSignIn};
pub use error::{IssuerError, OidcError, SignOnError};
pub use identity::{Grant, Identity};

/// Tokens with a hundred groups have 6 KiB.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Verified tokens in the cache; the least recently used one is removed first.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).expect("is not zero");

/// The accepted token types, in lower case. Some issuers write none.
const KINDS: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

type Clock = dyn Fn() -> Time + Send + Sync;

/// One issuer, its keys, and the tokens that were verified with them.
pub struct Oidc {
    section: OidcSection,
    clock: Box<Clock>,
    issuer: Arc<Issuer>,
    rotation: Arc<Rotation>,
    /// `None` if browsers do not sign in at the issuer.
    browser: Option<Browser>,
    verified: Mutex<LruCache<[u8; 32], VerifiedToken>>,
    /// The names of people who signed in from a browser, whose tokens are not cached.
    signed_on: Mutex<LruCache<KeyId, String>>,
    /// The second in which a refused token was last logged.
    last_logged: AtomicU64,
}

struct VerifiedToken {
    /// The keys' generation: a cached token is invalid after its issuer has changed its keys.
    generation: u64,
    identity: Arc<Identity>,
}

impl std::fmt::Debug for Oidc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oidc")
            .field("issuer", &self.section.issuer)
            .finish_non_exhaustive()
    }
}

impl Oidc {
    /// Starts to read the issuer's keys without waiting for them: an issuer that is down does not block the
    /// start. `clock` is the wall clock for checking tokens.
    ///
    /// # Errors
    /// A permanent problem: an address or a file that cannot be used.
    pub async fn new(
        section: &OidcSection,
        clock: impl Fn() -> Time + Send + Sync + 'static,
    ) -> Result<Oidc, IssuerError> {
        // An earlier call may have installed the same provider.
        let _ = signature::RING.install_default();
        let issuer = Arc::new(Issuer::new(section).await?);
        let browser = section.browser.as_ref().map(Browser::new).transpose()?;
        let rotation = Rotation::new(Arc::clone(&issuer), section.refresh.0);
        let rotation = Arc::new(rotation);
        rotation.read_soon(clock());
        Ok(Oidc {
            section: section.clone(),
            clock: Box::new(clock),
            issuer,
            rotation,
            browser,
            verified: Mutex::new(LruCache::new(REMEMBERED)),
            signed_on: Mutex::new(LruCache::new(REMEMBERED)),
            last_logged: AtomicU64::new(0),
        })
    }

    /// Returns true if a bearer text may be an issuer's token: the pool's own keys contain no dots.
    pub fn is_token(text: &str) -> bool {
        !text.starts_with("mp-") && text.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// The identity of the token.
    ///
    /// # Errors
    /// The reason for refusing the token, with a message for its sender.
    pub async fn verify(&self, token: &str) -> Result<Arc<Identity>, OidcError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(OidcError::TooLong {
                bytes: token.len(),
                limit: TOKEN_BYTES_MAX,
            });
        }
        let now = (self.clock)();
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let known = self.rotation.known(now);
        if let Some(identity) = known
            .as_ref()
            .and_then(|known| self.recall(&digest, known, now))
        {
            return Ok(identity);
        }
        let header = head_of(token)?;
        let judged = match self.judge(token, &header, known, now).await {
            Ok((identity, generation)) => {
                let verified = VerifiedToken {
                    generation,
                    identity: Arc::clone(&identity),
                };
                self.verified().put(digest, verified);
                Ok(identity)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &judged {
            self.tell(error, &header, now);
        }
        judged
    }

    /// The name of a person whose token was verified recently.
    pub fn name_of(&self, key: KeyId) -> Option<String> {
        if let Some(name) = self.signed_on().get(&key) {
            return Some(name.clone());
        }
        let verified = self.verified();
        let mut known = verified.iter().map(|(_, verified)| &verified.identity);
        known
            .find(|identity| identity.key == key)
            .map(|identity| identity.name.clone())
    }

    /// The identity of a person whose token was verified earlier, with the present permissions of its groups. It does not expire.
    ///
    /// # Errors
    /// None of the groups has permissions any more.
    pub fn remembered(
        &self,
        subject: &str,
        name: &str,
        groups: &[String],
    ) -> Result<Identity, OidcError> {
        let grants = Grant::all(&self.section, groups);
        if grants.is_empty() {
            let name = name.to_owned();
            return Err(OidcError::NoGroup { name });
        }
        Ok(Identity {
            key: identity::key_of(&self.section.issuer, subject),
            subject: subject.to_owned(),
            name: name.to_owned(),
            claims: groups.to_vec(),
            grants,
            expires: Time(u64::MAX),
        })
    }

    /// The issuer's name in the configuration.
    pub fn issuer(&self) -> &str {
        &self.section.issuer
    }

    /// Logs at most once a second, because any client can send tokens.
    fn tell(&self, error: &OidcError, header: &Header, now: Time) {
        let second = now.0 / 1000;
        if self.last_logged.swap(second, Ordering::Relaxed) != second {
            tracing::info!(%error, key = header.kid, algorithm = ?header.alg, "a token was refused");
        }
    }

    fn recall(&self, digest: &[u8; 32], known: &KnownKeys, now: Time) -> Option<Arc<Identity>> {
        let mut verified = self.verified();
        let found = verified.get(digest)?;
        if found.generation == known.generation && now < found.identity.expires {
            return Some(Arc::clone(&found.identity));
        }
        verified.pop(digest);
        None
    }

    async fn judge(
        &self,
        token: &str,
        header: &Header,
        known: Option<Arc<KnownKeys>>,
        now: Time,
    ) -> Result<(Arc<Identity>, u64), OidcError> {
        let (claims, generation) = self.verified_claims(token, header, known, now).await?;
        let identity = self.identify(&claims, &self.section.audience, now)?;
        Ok((Arc::new(identity), generation))
    }

    /// The claims of a token that the issuer has signed, and the generation of its keys.
    async fn verified_claims(
        &self,
        token: &str,
        header: &Header,
        known: Option<Arc<KnownKeys>>,
        now: Time,
    ) -> Result<(Map<String, Value>, u64), OidcError> {
        let unavailable = || OidcError::Unavailable {
            retry: self.rotation.pause_left(now),
        };
        let first = match known {
            Some(known) => known,
            None => self.rotation.newest(now).await.ok_or_else(unavailable)?,
        };
        // The issuer may have changed its keys since they were read. For a token without a key id, this can also appear as a wrong
        // signature.
        let claims = match claims_of(token, header, &first) {
            Err(TokenProblem::NoKey(MissingKey::Unknown)) => None,
            Err(TokenProblem::Signature) if header.kid.is_none() => None,
            other => Some(other),
        };
        let (known, claims) = match claims {
            Some(claims) => (first, claims),
            None => {
                let newest = self.rotation.newest(now).await.ok_or_else(unavailable)?;
                let claims = claims_of(token, header, &newest);
                (newest, claims)
            }
        };
        let claims = claims.map_err(|why| match why {
            TokenProblem::NoKey(MissingKey::Unknown) => OidcError::UnknownKey {
                retry: self.rotation.pause_left(now),
            },
            TokenProblem::NoKey(MissingKey::Ambiguous) => OidcError::NoKeyNamed,
            TokenProblem::NoKey(MissingKey::Mismatch) => OidcError::KeyMismatch {
                algorithm: format!("{:?}", header.alg),
            },
            TokenProblem::Signature => OidcError::Signature,
            TokenProblem::Unreadable => OidcError::Unreadable,
        })?;
        Ok((claims, known.generation))
    }

    fn identify(
        &self,
        claims: &Map<String, Value>,
        audience: &str,
        now: Time,
    ) -> Result<Identity, OidcError> {
        let section = &self.section;
        let rules = Rules {
            issuer: &section.issuer,
            audience,
            groups_claim: &section.groups_claim,
            name_claim: &section.name_claim,
            leeway: section.leeway.0,
        };
        let bearer = claims::check(claims, &rules, now)?;
        let grants = Grant::all(section, &bearer.groups);
        if grants.is_empty() {
            return Err(OidcError::NoGroup { name: bearer.name });
        }
        Ok(Identity {
            key: identity::key_of(&section.issuer, &bearer.subject),
            subject: bearer.subject,
            name: bearer.name,
            claims: bearer.groups,
            grants,
            expires: bearer.expires,
        })
    }

    fn signed_on(&self) -> MutexGuard<'_, LruCache<KeyId, String>> {
        self.signed_on
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn verified(&self) -> MutexGuard<'_, LruCache<[u8; 32], VerifiedToken>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The header, if its signature algorithm is accepted at all. It is not trusted before the signature is checked.
fn head_of(token: &str) -> Result<Header, OidcError> {
    let header = jsonwebtoken::decode_header(token).map_err(|_| OidcError::Unreadable)?;
    if header.alg.family() == AlgorithmFamily::Hmac {
        return Err(OidcError::Algorithm {
            algorithm: format!("{:?}", header.alg),
        });
    }
    // An unknown header parameter marked as critical may change the token's meaning.
    if header.crit.is_some() {
        return Err(OidcError::Unreadable);
    }
    match &header.typ {
        Some(kind) if !KINDS.contains(&kind.to_ascii_lowercase().as_str()) => {
            Err(OidcError::Kind {
                kind: kind
                    .chars()
                    .filter(|letter| !letter.is_control())
                    .take(40)
                    .collect(),
            })
        }
        _ => Ok(header),
    }
}

enum TokenProblem {
    NoKey(MissingKey),
    Signature,
    Unreadable,
}

/// The claims, after the signature was verified with the token's key.
fn claims_of(
    token: &str,
    header: &Header,
    known: &KnownKeys,
) -> Result<Map<String, Value>, TokenProblem> {
    let key = known.keys.find(header).map_err(TokenProblem::NoKey)?;
    let decoded = jsonwebtoken::decode(token, &key.material, &only_signed(header.alg));
    match decoded {
        Ok(decoded) => Ok(decoded.claims),
        Err(error) => Err(match error.kind() {
            ErrorKind::InvalidSignature => TokenProblem::Signature,
            _ => TokenProblem::Unreadable,
        }),
    }
}

/// Only the signature is checked here. `claims` checks the claims, with the pool's clock and error messages
/// with numbers.
fn only_signed(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pools_own_keys_are_not_tokens() {
        assert!(Oidc::is_token("a.b.c"));
        for other in ["mp-a.b.c", "mp-abc", "a.b", "a.b.c.d", "", "none"] {
            assert!(!Oidc::is_token(other), "{other}");
        }
    }
}
