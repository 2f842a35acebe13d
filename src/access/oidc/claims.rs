//! Checks the claims of a token with a valid signature (audience and times), and extracts the identity. Pure functions without a
//! clock.

use serde_json::{Map, Value};

use super::error::OidcError;
use pool::{Span, Time};

/// Longer than any issuer's subjects, which appear in logs and the audit.
const SUBJECT_MAX: usize = 255;
const NAME_MAX: usize = 100;

pub(super) struct Rules<'a> {
    pub issuer: &'a str,
    pub audience: &'a str,
    pub groups_claim: &'a str,
    pub name_claim: &'a str,
    pub leeway: Span,
}

/// The extracted parts of valid claims.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bearer {
    pub subject: String,
    pub name: String,
    pub groups: Vec<String>,
    /// Includes the leeway.
    pub expires: Time,
}

pub(super) fn check(
    claims: &Map<String, Value>,
    rules: &Rules,
    now: Time,
) -> Result<Bearer, OidcError> {
    if claims.get("iss").and_then(Value::as_str) != Some(rules.issuer) {
        return Err(OidcError::Issuer);
    }
    let is_for_us = match claims.get("aud") {
        Some(Value::String(one)) => one == rules.audience,
        Some(Value::Array(all)) => all
            .iter()
            .any(|audience| audience.as_str() == Some(rules.audience)),
        _ => false,
    };
    if !is_for_us {
        return Err(OidcError::Audience);
    }
    let missing = |claim| OidcError::Claim {
        claim,
        problem: "is missing",
    };
    let expires = moment(claims, "exp")?.ok_or_else(|| missing("exp"))?;
    let expires = Time(expires.0.saturating_add(rules.leeway.0));
    if now >= expires {
        // The error reports the time since `exp`, without the leeway.
        let ago = Span(now.since(expires).0.saturating_add(rules.leeway.0));
        return Err(OidcError::Expired { ago });
    }
    let latest = Time(now.0.saturating_add(rules.leeway.0));
    if let Some(begins) = moment(claims, "nbf")?.filter(|begins| *begins > latest) {
        return Err(OidcError::NotYet {
            wait: begins.since(now),
        });
    }
    if let Some(issued) = moment(claims, "iat")? {
        if issued > latest {
            return Err(OidcError::FromFuture {
                ahead: issued.since(now),
            });
        }
        if issued > expires {
            return Err(OidcError::Claim {
                claim: "iat",
                problem: "is later than its `exp`",
            });
        }
    }
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or("");
    if subject.is_empty() {
        return Err(missing("sub"));
    }
    if subject.len() > SUBJECT_MAX {
        return Err(OidcError::Claim {
            claim: "sub",
            problem: "has more than 255 bytes",
        });
    }
    let name = at(claims, rules.name_claim).and_then(Value::as_str);
    let groups = match at(claims, rules.groups_claim) {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(all)) => {
            let texts = all.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    Ok(Bearer {
        subject: subject.to_owned(),
        name: shown(
            name.filter(|name| !name.trim().is_empty())
                .unwrap_or(subject),
        ),
        groups,
        expires,
    })
}

/// Seconds since 1970, integer or not.
fn moment(claims: &Map<String, Value>, claim: &'static str) -> Result<Option<Time>, OidcError> {
    let milliseconds = match claims.get(claim) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value
            .as_u64()
            .map(|seconds| seconds.saturating_mul(1000))
            // A float beyond the range becomes the nearest limit.
            .or_else(|| {
                let seconds = value
                    .as_f64()
                    .filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
                seconds.map(|seconds| (seconds * 1000.0) as u64)
            }),
    };
    match milliseconds {
        Some(milliseconds) => Ok(Some(Time(milliseconds))),
        None => Err(OidcError::Claim {
            claim,
            problem: "is not a time in seconds since 1970",
        }),
    }
}

/// The claim with this name, which may contain dots, or else the value at this path.
fn at<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(path) {
        return Some(value);
    }
    let mut steps = path.split('.');
    let first = claims.get(steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(step))
}

/// The name, shortened to one line.
fn shown(name: &str) -> String {
    let clean = name
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter });
    clean.take(NAME_MAX).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Time = Time(1_800_000_000_000);

    fn judge(change: Value) -> Result<Bearer, OidcError> {
        judge_at(change, "groups")
    }

    /// Valid claims with these changes; null removes a claim.
    fn judge_at(change: Value, groups_claim: &str) -> Result<Bearer, OidcError> {
        let mut claims = json!({
            "iss": "https://a.example", "aud": "pool", "sub": "4711", "preferred_username": "ann",
            "exp": 1_800_000_060, "iat": 1_799_999_990, "groups": ["staff", 7, "students"]
        });
        let all = claims.as_object_mut().unwrap();
        for (name, value) in change.as_object().unwrap() {
            all.insert(name.clone(), value.clone());
            all.retain(|_, value| !value.is_null());
        }
        let rules = Rules {
            issuer: "https://a.example",
            audience: "pool",
            groups_claim,
            name_claim: "preferred_username",
            leeway: Span::from_secs(30),
        };
        check(all, &rules, NOW)
    }

    #[test]
    fn valid_claims_yield_the_identity() {
        let bearer = judge(json!({})).unwrap();
        assert_eq!(
            (bearer.subject.as_str(), bearer.name.as_str()),
            ("4711", "ann")
        );
        assert_eq!(bearer.groups, ["staff", "students"]);
        assert_eq!(bearer.expires, Time(1_800_000_090_000));
    }

    #[test]
    fn invalid_claims_are_refused_with_the_reason() {
        let far = 1_800_000_100;
        for (change, words) in [
            (json!({"iss": "https://b.example"}), "another issuer"),
            (json!({"iss": ["https://a.example"]}), "another issuer"),
            (json!({"aud": "other"}), "another audience"),
            (json!({"aud": ["other", "pools"]}), "another audience"),
            (json!({"aud": null}), "another audience"),
            (json!({"exp": 1_799_999_820}), "expired 3 min ago"),
            (json!({"exp": 1_799_999_970}), "expired 30.0 s ago"),
            (json!({"exp": null}), "`exp` of this token is missing"),
            (json!({"exp": "soon"}), "is not a time"),
            (json!({"exp": -5}), "is not a time"),
            (json!({"nbf": far}), "not valid before 100.0 s from now"),
            (json!({"nbf": []}), "is not a time"),
            (json!({"iat": far}), "issued 100.0 s in the future"),
            (json!({"sub": null}), "`sub` of this token is missing"),
            (json!({"sub": ""}), "is missing"),
            (json!({"sub": "x".repeat(256)}), "more than 255 bytes"),
        ] {
            let error = judge(change.clone()).expect_err(&change.to_string());
            assert!(error.to_string().contains(words), "{change}: {error}");
        }
    }

    #[test]
    fn times_within_the_leeway_are_accepted() {
        for change in [
            json!({"exp": 1_799_999_971}),
            json!({"exp": 1_799_999_970.5}),
            json!({"nbf": 1_800_000_030, "iat": 1_800_000_030}),
            json!({"aud": ["other", "pool"]}),
            json!({"exp": 1e300}),
            json!({"iat": null}),
        ] {
            assert!(judge(change.clone()).is_ok(), "{change}");
        }
    }

    #[test]
    fn groups_may_be_a_list_a_string_nested_or_under_a_name_with_dots() {
        let nested = json!({"realm_access": {"roles": ["staff"]}});
        let found = |change: &Value, path: &str| judge_at(change.clone(), path).unwrap().groups;
        assert_eq!(found(&nested, "realm_access.roles"), ["staff"]);
        assert_eq!(found(&nested, "realm_access.groups"), [] as [&str; 0]);
        assert_eq!(found(&nested, "realm_access"), [] as [&str; 0]);
        let named = json!({"https://lab.example/groups": ["staff"], "role": "students"});
        assert_eq!(found(&named, "https://lab.example/groups"), ["staff"]);
        assert_eq!(found(&named, "role"), ["students"]);
    }

    #[test]
    fn a_name_is_sanitized_to_one_short_line_and_defaults_to_the_subject() {
        let named = |name: Value| judge(json!({"preferred_username": name})).unwrap().name;
        assert_eq!(named(json!("a\nb\u{1b}[2J")), "a b [2J");
        assert_eq!(named(json!("é".repeat(300))).chars().count(), NAME_MAX);
        for none in [json!(null), json!(" "), json!(7)] {
            assert_eq!(named(none), "4711");
        }
    }
}
