//! Tokens with which a node downloads the files of one model from another. The controller signs one for each transfer with the
//! secret that it shares with the sending node, which verifies the token offline. A token is useless for anything else: engines,
//! joining, or other models.
//!
//! `EXPIRES.NONCE.MAC`: milliseconds of the controller's clock, 64 random bits, and HMAC-SHA256 over both and the model.

use ring::hmac;

use engine::RelaySecret;

/// Prefix of the signed text, which separates it from other uses of the secret.
const PURPOSE: &str = "model-pool-peer/1";
const MAC_BYTES: usize = 32;

/// Signs a token for the files of the model with this name in the cache.
pub fn sign_peer_token(secret: &RelaySecret, model: &str, expires: u64, nonce: u64) -> String {
    let signed = format!("{expires}.{nonce:016x}");
    let tag = hmac::sign(&key(secret), message(model, &signed).as_bytes());
    let mac: String = tag
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{signed}.{mac}")
}

/// Returns true if the controller signed the token for this model, and it has not expired at the controller's time `now`.
pub fn is_peer_token(secret: &RelaySecret, token: &str, model: &str, now: u64) -> bool {
    let Some((signed, mac)) = token.rsplit_once('.') else {
        return false;
    };
    let expires = signed
        .split('.')
        .next()
        .and_then(|expires| expires.parse::<u64>().ok());
    let Some(mac) = bytes_of(mac) else {
        return false;
    };
    let is_signed = hmac::verify(&key(secret), message(model, signed).as_bytes(), &mac).is_ok();
    is_signed && expires.is_some_and(|at| now < at)
}

fn key(secret: &RelaySecret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes())
}

fn message(model: &str, signed: &str) -> String {
    format!("{PURPOSE}\n{model}\n{signed}")
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    if hex.len() != 2 * MAC_BYTES || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).ok();
    (0..hex.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "models--lab--small";

    fn secret(letter: &str) -> RelaySecret {
        RelaySecret::parse(&letter.repeat(64)).expect("a secret")
    }

    #[test]
    fn a_token_is_valid_only_for_its_node_model_and_period() {
        let token = sign_peer_token(&secret("a"), MODEL, 1000, 7);
        assert!(is_peer_token(&secret("a"), &token, MODEL, 999));
        assert!(!is_peer_token(&secret("a"), &token, MODEL, 1000));
        assert!(!is_peer_token(&secret("b"), &token, MODEL, 999));
        assert!(!is_peer_token(
            &secret("a"),
            &token,
            "models--lab--other",
            999
        ));
        let longer = token.replacen("1000.", "9000.", 1);
        assert!(!is_peer_token(&secret("a"), &longer, MODEL, 999));
    }

    #[test]
    fn a_malformed_token_is_refused() {
        let mac = "0".repeat(64);
        let odd = format!("1.2.{}", "é".repeat(32));
        for wrong in ["", ".", "..", "1.2", "x.y.z", &format!("1.2.{mac}"), &odd] {
            assert!(!is_peer_token(&secret("a"), wrong, MODEL, 0), "{wrong}");
        }
    }
}
