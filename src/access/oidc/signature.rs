//! Verifies signatures for `jsonwebtoken` with `ring`, the only cryptography library in this program. It never
//! signs, and supports no algorithm with a shared secret.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{Error as Mismatch, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as checks;

/// Installed for the process before the first token is read.
pub(super) static RING: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let check = match algorithm {
        Algorithm::RS256 => Check::Rsa(&checks::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Check::Rsa(&checks::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Check::Rsa(&checks::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Check::Rsa(&checks::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Check::Rsa(&checks::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Check::Rsa(&checks::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Check::Point(&checks::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Check::Point(&checks::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Check::Point(&checks::ED25519),
        // Shared secrets, and algorithms unknown to this program.
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    // A key of another family would be misinterpreted.
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(RingVerifier {
        algorithm: *algorithm,
        check,
        key: key.clone(),
    }))
}

enum Check {
    Rsa(&'static checks::RsaParameters),
    Point(&'static dyn checks::VerificationAlgorithm),
}

struct RingVerifier {
    algorithm: Algorithm,
    check: Check,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Mismatch> {
        let checked = match (&self.check, self.key.kind()) {
            (Check::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let public = checks::RsaPublicKeyComponents {
                    n: without_zeros(n),
                    e: without_zeros(e),
                };
                public.verify(parameters, message, signature)
            }
            (Check::Point(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                checks::UnparsedPublicKey::new(*algorithm, point).verify(message, signature)
            }
            _ => return Err(Mismatch::new()),
        };
        checked.map_err(|_| Mismatch::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// Some issuers write a number with a sign byte, which `ring` does not accept.
fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_algorithms_are_refused_and_signing_is_unsupported() {
        let secret = DecodingKey::from_secret(b"secret");
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            assert!(verifier(&algorithm, &secret).is_err());
        }
        assert!(verifier(&Algorithm::RS256, &secret).is_err(), "wrong kind");
        let own = EncodingKey::from_secret(b"secret");
        assert!(no_signer(&Algorithm::HS256, &own).is_err());
    }

    #[test]
    fn leading_zeros_of_a_number_are_ignored() {
        assert_eq!(without_zeros(&[0, 0, 1, 0]), [1, 0]);
        assert_eq!(without_zeros(&[0]), [0_u8; 0]);
    }
}
