//! The keys that an issuer publishes (JWKS) and that can verify signatures, and the choice of the key for a token.

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use serde::Deserialize;
use serde_json::Value;

/// Limit of keys to read. Issuers have two or three.
const KEYS_MAX: usize = 100;
/// 2048 and 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1025;

const OF_RSA: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// The usable keys of one response.
#[derive(Debug)]
pub(super) struct KeySet(Vec<Key>);

#[derive(Debug)]
pub(super) struct Key {
    published: Jwk,
    /// The signature algorithms of its type, or only the algorithm that its issuer names.
    algorithms: Vec<Algorithm>,
    pub(super) material: DecodingKey,
}

/// The reason that no key was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MissingKey {
    Unknown,
    /// The key exists, but is for another kind of signature.
    Mismatch,
    /// The token names no key, and several match.
    Ambiguous,
}

impl PartialEq for KeySet {
    fn eq(&self, other: &KeySet) -> bool {
        let published =
            |set: &KeySet| -> Vec<Jwk> { set.0.iter().map(|key| key.published.clone()).collect() };
        published(self) == published(other)
    }
}

#[derive(Deserialize)]
struct KeyDocument {
    keys: Vec<Value>,
}

impl KeySet {
    /// Skips keys of unknown types, keys for encryption, and keys that are too short or broken.
    pub fn read(bytes: &[u8]) -> Result<KeySet, serde_json::Error> {
        let published: KeyDocument = serde_json::from_slice(bytes)?;
        let each = published.keys.into_iter().take(KEYS_MAX);
        let keys = each.filter_map(|value| Key::read(serde_json::from_value(value).ok()?));
        Ok(KeySet(keys.collect()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of keys, for the log.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The key that the header of a token refers to.
    pub fn find(&self, header: &Header) -> Result<&Key, MissingKey> {
        let fits = |key: &&Key| key.algorithms.contains(&header.alg);
        let Some(id) = &header.kid else {
            let mut fitting = self.0.iter().filter(fits);
            return match (fitting.next(), fitting.next()) {
                (Some(key), None) => Ok(key),
                (None, _) => Err(MissingKey::Unknown),
                _ => Err(MissingKey::Ambiguous),
            };
        };
        let named = |key: &&Key| key.published.common.key_id.as_ref() == Some(id);
        let mut named = self.0.iter().filter(named).peekable();
        if named.peek().is_none() {
            return Err(MissingKey::Unknown);
        }
        named.find(fits).ok_or(MissingKey::Mismatch)
    }
}

impl Key {
    fn read(published: Jwk) -> Option<Key> {
        let common = &published.common;
        if matches!(&common.public_key_use, Some(of) if *of != PublicKeyUse::Signature) {
            return None;
        }
        if matches!(&common.key_operations, Some(all) if !all.contains(&KeyOperations::Verify)) {
            return None;
        }
        let material = DecodingKey::from_jwk(&published).ok()?;
        let point_of = |bytes: usize| {
            material
                .try_get_as_bytes()
                .is_ok_and(|number| number.len() == bytes)
        };
        let mut algorithms = match &published.algorithm {
            AlgorithmParameters::RSA(_) => {
                let jsonwebtoken::DecodingKeyKind::RsaModulusExponent { n, .. } = material.kind()
                else {
                    return None;
                };
                MODULUS_BYTES.contains(&n.len()).then(|| OF_RSA.to_vec())?
            }
            AlgorithmParameters::EllipticCurve(parameters) => match parameters.curve {
                EllipticCurve::P256 if point_of(65) => vec![Algorithm::ES256],
                EllipticCurve::P384 if point_of(97) => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(parameters) => match parameters.curve {
                EllipticCurve::Ed25519 if point_of(32) => vec![Algorithm::EdDSA],
                _ => return None,
            },
            // A published shared secret is useless.
            _ => return None,
        };
        if let Some(only) = common.key_algorithm {
            algorithms.retain(|algorithm| KeyAlgorithm::from(*algorithm) == only);
        }
        let key = Key {
            algorithms,
            material,
            published,
        };
        (!key.algorithms.is_empty()).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(bytes: usize) -> String {
        // Base64 of zero bytes; any modulus will do while no signature is checked.
        let characters = (bytes * 8).div_ceil(6);
        "A".repeat(characters)
    }

    fn set(keys: Value) -> KeySet {
        KeySet::read(json!({"keys": keys}).to_string().as_bytes()).unwrap()
    }

    fn header(algorithm: Algorithm, id: Option<&str>) -> Header {
        Header {
            kid: id.map(str::to_owned),
            ..Header::new(algorithm)
        }
    }

    #[test]
    fn only_signature_verification_keys_are_kept() {
        let rsa = |bytes, more: Value| {
            let mut key = json!({"kty": "RSA", "kid": "r", "n": text(bytes), "e": "AQAB"});
            let key_fields = key.as_object_mut().unwrap();
            key_fields.extend(more.as_object().unwrap().clone());
            key
        };
        for (key, kept) in [
            (rsa(256, json!({})), true),
            (rsa(256, json!({"use": "sig", "alg": "RS256"})), true),
            (rsa(128, json!({})), false),
            (rsa(2048, json!({})), false),
            (rsa(256, json!({"use": "enc"})), false),
            (rsa(256, json!({"key_ops": ["encrypt"]})), false),
            (rsa(256, json!({"alg": "RSA-OAEP"})), false),
            (rsa(256, json!({"alg": "ES256"})), false),
            (rsa(256, json!({"alg": "HS256"})), false),
            (json!({"kty": "oct", "kid": "o", "k": text(32)}), false),
            (
                json!({"kty": "EC", "crv": "P-256", "x": text(32), "y": text(32)}),
                true,
            ),
            (
                json!({"kty": "EC", "crv": "P-256", "x": text(48), "y": text(48)}),
                false,
            ),
            (
                json!({"kty": "EC", "crv": "P-521", "x": text(66), "y": text(66)}),
                false,
            ),
            (
                json!({"kty": "EC", "crv": "secp256k1", "x": text(32), "y": text(32)}),
                false,
            ),
            (json!({"kty": "OKP", "crv": "Ed25519", "x": text(32)}), true),
            (json!({"kty": "OKP", "crv": "X25519", "x": text(32)}), false),
            (json!({"kty": "RSA", "crv": "P-256", "x": text(32)}), false),
            (json!("no key"), false),
        ] {
            assert_eq!(!set(json!([key])).is_empty(), kept, "{key}");
        }
        assert!(KeySet::read(b"{}").is_err() && KeySet::read(b"[]").is_err());
    }

    #[test]
    fn a_token_is_verified_with_the_key_it_names_only_if_the_algorithm_matches() {
        let keys = set(json!([
            {"kty": "EC", "crv": "P-256", "kid": "a", "x": text(32), "y": text(32)},
            {"kty": "OKP", "crv": "Ed25519", "kid": "b", "x": text(32)},
            {"kty": "RSA", "kid": "c", "n": text(256), "e": "AQAB", "alg": "PS256"},
        ]));
        let found = |algorithm, id| keys.find(&header(algorithm, id)).map(|_| ());
        assert_eq!(found(Algorithm::ES256, Some("a")), Ok(()));
        assert_eq!(found(Algorithm::PS256, Some("c")), Ok(()));
        assert_eq!(
            found(Algorithm::RS256, Some("c")),
            Err(MissingKey::Mismatch)
        );
        assert_eq!(
            found(Algorithm::ES384, Some("a")),
            Err(MissingKey::Mismatch)
        );
        assert_eq!(
            found(Algorithm::HS256, Some("a")),
            Err(MissingKey::Mismatch)
        );
        assert_eq!(found(Algorithm::ES256, Some("z")), Err(MissingKey::Unknown));
        assert_eq!(found(Algorithm::EdDSA, None), Ok(()));
        assert_eq!(found(Algorithm::ES384, None), Err(MissingKey::Unknown));
    }

    #[test]
    fn a_token_without_a_key_id_is_ambiguous_among_several_keys() {
        let key = |id: &str| json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": text(32)});
        let two = set(json!([key("a"), key("b")]));
        assert_eq!(
            two.find(&header(Algorithm::EdDSA, None)).map(|_| ()),
            Err(MissingKey::Ambiguous)
        );
        assert!(two == set(json!([key("a"), key("b")])));
        assert!(two != set(json!([key("a")])));
    }
}
