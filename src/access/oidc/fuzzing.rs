//! Entry points for fuzzers: a client's token and an issuer's responses. Signatures are not checked.

use serde_json::{Map, Value};

use super::claims::{self, Rules};
use super::keys::KeySet;
use super::{Oidc, head_of};
use pool::{Span, Time};

const NOW: Time = Time(1_800_000_000_000);
const RULES: [Rules; 2] = [
    Rules {
        issuer: "https://a.example",
        audience: "pool",
        groups_claim: "groups",
        name_claim: "preferred_username",
        leeway: Span(60_000),
    },
    Rules {
        issuer: "https://a.example",
        audience: "pool",
        groups_claim: "realm_access.roles",
        name_claim: "a.b.c",
        leeway: Span(u64::MAX),
    },
];

/// Parses a token, claims and a set of keys, separated by zero bytes.
pub fn token(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (token, claims, keys) = (next(), next(), next());
    let token = String::from_utf8_lossy(token);
    let head = head_of(&token).ok().filter(|_| Oidc::is_token(&token));
    if let (Some(head), Ok(keys)) = (head, KeySet::read(keys)) {
        let _ = keys.find(&head);
    }
    let Ok(claims) = serde_json::from_slice::<Map<String, Value>>(claims) else {
        return;
    };
    for rules in &RULES {
        match claims::check(&claims, rules, NOW) {
            Ok(bearer) => {
                assert_eq!(claims["iss"], rules.issuer);
                assert!(bearer.expires > NOW, "an old token counts");
                assert!(!bearer.subject.is_empty() && bearer.subject.len() <= 255);
                assert!(!bearer.name.chars().any(char::is_control));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
