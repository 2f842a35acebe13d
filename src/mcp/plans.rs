//! Planned changes that wait for their `apply`. They are kept in memory: a restart ends them like any other change of the pool.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use axum::http::Method;
use serde_json::{Map, Value};
use uuid::Uuid;

use api_types::error::Failure;
use pool::{KeyId, OrderEffect, Span, Time};

/// Time for which a token is valid.
pub const TOKEN_LIFETIME: Span = Span::from_secs(60);
/// Plans of one key or person. A further plan replaces the oldest.
pub const PLANS_PER_KEY_MAX: usize = 32;
const PREFIX: &str = "plan-";

/// A change, as a request to an admin route with the effect that was planned for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub method: Method,
    /// The path, with the query.
    pub target: String,
    pub body: Map<String, Value>,
    pub effect: OrderEffect,
}

#[derive(Debug)]
struct Held {
    token: String,
    until: Time,
    change: Change,
}

/// The plans of all keys and people.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<BTreeMap<KeyId, VecDeque<Held>>>);

impl Plans {
    /// Keeps the change for this key or person and returns its token.
    pub fn keep(&self, holder: KeyId, change: Change, now: Time) -> String {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|_, held| {
            held.retain(|plan| now < plan.until);
            !held.is_empty()
        });
        let own = plans.entry(holder).or_default();
        if own.len() == PLANS_PER_KEY_MAX {
            own.pop_front();
        }
        // 122 random bits of the operating system.
        let token = format!("{PREFIX}{}", Uuid::new_v4().simple());
        own.push_back(Held {
            token: token.clone(),
            until: now + TOKEN_LIFETIME,
            change,
        });
        token
    }

    /// Takes the change with this token, which is then used up.
    ///
    /// # Errors
    /// The holder has no plan with this token, or it has expired.
    pub fn take(&self, holder: KeyId, token: &str, now: Time) -> Result<Change, Failure> {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = plans.get_mut(&holder);
        let held = own.and_then(|own| {
            let at = own.iter().position(|plan| plan.token == token)?;
            own.remove(at)
        });
        match held {
            Some(plan) if now < plan.until => Ok(plan.change),
            Some(_) => Err(failure(
                "token_expired",
                format!(
                    "token: it has expired after {} s; plan again",
                    TOKEN_LIFETIME.0 / 1_000
                ),
            )),
            None => Err(failure(
                "unknown_token",
                format!(
                    "token: your key has no plan with this token: it was used, has expired, was replaced by {PLANS_PER_KEY_MAX} later plans, or is of another key; plan again"
                ),
            )),
        }
    }
}

fn failure(code: &'static str, message: String) -> Failure {
    let mut failure = Failure::conflict(code, message);
    failure.body.error.param = Some("token".to_owned());
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: KeyId = KeyId(1);
    const BOB: KeyId = KeyId(2);
    const NOW: Time = Time(1_000);

    fn change(target: &str) -> Change {
        Change {
            method: Method::POST,
            target: target.to_owned(),
            body: Map::new(),
            effect: OrderEffect::Leaving(Vec::new()),
        }
    }

    fn code(taken: Result<Change, Failure>) -> &'static str {
        let failure = taken.expect_err("no plan");
        assert_eq!(failure.body.error.param.as_deref(), Some("token"));
        failure.body.error.code.unwrap()
    }

    #[test]
    fn a_token_is_used_once_and_only_by_its_key() {
        let plans = Plans::default();
        let token = plans.keep(ANN, change("/a"), NOW);
        assert_eq!(code(plans.take(BOB, &token, NOW)), "unknown_token");
        assert_eq!(plans.take(ANN, &token, NOW).unwrap(), change("/a"));
        assert_eq!(code(plans.take(ANN, &token, NOW)), "unknown_token");
    }

    #[test]
    fn a_token_expires_after_a_minute() {
        let plans = Plans::default();
        let token = plans.keep(ANN, change("/a"), NOW);
        let last = plans.keep(ANN, change("/b"), NOW);
        let end = NOW + TOKEN_LIFETIME;
        assert!(plans.take(ANN, &last, Time(end.0 - 1)).is_ok());
        assert_eq!(code(plans.take(ANN, &token, end)), "token_expired");
    }

    #[test]
    fn b1_a_key_with_many_plans_displaces_only_its_own() {
        let plans = Plans::default();
        let of_bob = plans.keep(BOB, change("/bob"), NOW);
        let tokens: Vec<String> = (0..PLANS_PER_KEY_MAX + 10)
            .map(|_| plans.keep(ANN, change("/ann"), NOW))
            .collect();
        let held = |plans: &Plans| -> usize {
            let all = plans.0.lock().unwrap();
            all.values().map(VecDeque::len).sum()
        };
        assert_eq!(held(&plans), PLANS_PER_KEY_MAX + 1);
        assert_eq!(code(plans.take(ANN, &tokens[9], NOW)), "unknown_token");
        assert!(plans.take(ANN, &tokens[10], NOW).is_ok());
        assert!(plans.take(BOB, &of_bob, NOW).is_ok());
        // Expired plans of all keys leave with the next plan.
        plans.keep(BOB, change("/bob"), NOW + TOKEN_LIFETIME);
        assert_eq!(held(&plans), 1);
    }

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let plans = Plans::default();
        let one = plans.keep(ANN, change("/a"), NOW);
        let other = plans.keep(ANN, change("/a"), NOW);
        assert_ne!(one, other);
        assert_eq!(one.len(), PREFIX.len() + 32);
    }
}
