//! Checks a key against an administrator's own rights: administrators cannot create, change or revoke a key with more rights than
//! they have.

use std::sync::Arc;

use access::oidc::Identity;
use api_types::error::Failure;
use config::{GrantRole, Limit};
use pool::{KeyId, Time};
use store::{KeyRecord, KeyUse, Role, StoreError};

/// The holder of rights.
#[derive(Clone, Debug)]
pub enum Holder {
    Key(KeyId),
    /// A person of the single sign-on.
    Person(Arc<Identity>),
}

/// The administrator who creates, changes or revokes a key, and the default limit of keys.
#[derive(Clone, Copy, Debug)]
pub struct By<'a> {
    pub holder: &'a Holder,
    pub default: Limit,
}

impl By<'_> {
    pub(crate) fn rights(&self, known: &[KeyRecord], now: Time) -> Result<Rights, KeyRefusal> {
        // Uses the current list of keys, because the credential may have been revoked since the request was authenticated.
        let rights = Rights::new(self.holder, known, now, self.default);
        rights.ok_or(KeyRefusal::HolderGone)
    }

    pub(crate) fn check(
        &self,
        rights: &Rights,
        key: &KeyUse,
        end: Option<Time>,
    ) -> Result<(), KeyRefusal> {
        match rights.beyond(key, end, self.default) {
            None => Ok(()),
            Some(beyond) => Err(KeyRefusal::Beyond(beyond)),
        }
    }
}

/// A refused change of keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyRefusal {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}", .0.0)]
    Beyond(Beyond),
    #[error("this key is unknown, expired or revoked")]
    HolderGone,
    #[error(
        "it is the last valid admin key for all routes; create another one first: `admin-client keys create NAME --role admin`, or `model-pool admin-key new` on the server"
    )]
    LastAdmin,
    #[error(
        "models: a viewer sees all models; omit models, or restrict the key to routes such as /admin/live"
    )]
    ViewerOfSome,
    /// Lists the other admin keys.
    #[error(
        "this request was sent with the key itself, which will stop working; {0}. If you have another one, send confirm=true (admin-client: --yes)"
    )]
    OwnKey(String),
}

/// Alternative reaches. A key is within the rights if it is within any reach.
#[derive(Debug)]
pub(crate) struct Rights(Vec<Reach>);

#[derive(Debug)]
struct Reach {
    /// Name patterns.
    models: Vec<String>,
    routes: Vec<String>,
    /// `None` means unlimited.
    limit: Option<Limit>,
    expires: Option<Time>,
}

impl Rights {
    /// The holder's current rights, or `None` if the holder's key is no longer valid. `default` is the limit of keys without their
    /// own.
    pub fn new(holder: &Holder, known: &[KeyRecord], now: Time, default: Limit) -> Option<Rights> {
        let reach = |models: &[String], routes: &[String], own: Option<Limit>, expires| {
            let (models, routes) = (all_if_none(models), all_if_none(routes));
            let is_unrestricted = has_all(&models) && has_all(&routes);
            Reach {
                limit: match own {
                    None if is_unrestricted => None,
                    own => Some(own.unwrap_or(default)),
                },
                models,
                routes,
                expires,
            }
        };
        match holder {
            Holder::Key(id) => {
                let is_it = |key: &&KeyRecord| {
                    key.id == *id && key.role == Role::Admin && key.is_valid(now)
                };
                let key = known.iter().find(is_it)?;
                let KeyUse {
                    models,
                    routes,
                    limits,
                    ..
                } = &key.allowed;
                Some(Rights(vec![reach(models, routes, *limits, key.expires)]))
            }
            Holder::Person(identity) => {
                let grants = identity.grants.iter();
                let grants = grants.filter(|grant| grant.role == GrantRole::Admin);
                let reaches = grants.map(|grant| reach(&grant.models, &grant.routes, None, None));
                Some(Rights(reaches.collect()))
            }
        }
    }

    /// Returns how a key with these permissions exceeds the rights, or `None` if it does not.
    pub(crate) fn beyond(
        &self,
        key: &KeyUse,
        expires: Option<Time>,
        default: Limit,
    ) -> Option<Beyond> {
        let mut beyond = None;
        for reach in &self.0 {
            match reach.beyond(key, expires, default) {
                None => return None,
                Some(words) => beyond = Some(words),
            }
        }
        Some(Beyond(beyond.unwrap_or_else(|| {
            "your groups may not create keys (auth.oidc.groups)".to_owned()
        })))
    }
}

/// A description of the exceeded right, with the allowed values.
#[derive(Debug, PartialEq, Eq)]
pub struct Beyond(pub String);

impl From<Beyond> for Failure {
    fn from(beyond: Beyond) -> Failure {
        Failure::forbidden("beyond_own_rights", beyond.0)
    }
}

impl Reach {
    fn beyond(&self, key: &KeyUse, expires: Option<Time>, default: Limit) -> Option<String> {
        for (field, wanted, own) in [
            ("routes", &key.routes, &self.routes),
            ("models", &key.models, &self.models),
        ] {
            let wanted = all_if_none(wanted);
            let outside = wanted
                .iter()
                .find(|wanted| !own.iter().any(|own| lies_within(wanted, own)));
            if let Some(outside) = outside {
                let outside = match outside.as_str() {
                    "*" => "all",
                    outside => outside,
                };
                return Some(format!(
                    "{field}: a key for {outside} would have more rights than you; your {field} are {}; choose from these",
                    own.join(", ")
                ));
            }
        }
        if let Some(own) = self.limit {
            let wanted = key.limits.unwrap_or(default);
            for (figure, wanted, own) in figures(wanted, own) {
                if let Some(own) = own
                    && wanted.is_none_or(|wanted| wanted > own)
                {
                    return Some(format!(
                        "limits: your own {figure} is {own}; a key that you create or change can have at most {own}"
                    ));
                }
            }
        }
        match (self.expires, expires) {
            (None, _) => None,
            (Some(own), Some(wanted)) if wanted <= own => None,
            _ => Some(
                "expires: a key that you create or change must not expire later than your own"
                    .to_owned(),
            ),
        }
    }
}

fn figures(wanted: Limit, own: Limit) -> [(&'static str, Option<u64>, Option<u64>); 4] {
    [
        (
            "requests_per_minute",
            wanted.requests_per_minute.map(u64::from),
            own.requests_per_minute.map(u64::from),
        ),
        (
            "tokens_per_minute",
            wanted.tokens_per_minute,
            own.tokens_per_minute,
        ),
        (
            "concurrent_requests",
            wanted.concurrent_requests.map(u64::from),
            own.concurrent_requests.map(u64::from),
        ),
        ("tokens_per_day", wanted.tokens_per_day, own.tokens_per_day),
    ]
}

fn all_if_none(patterns: &[String]) -> Vec<String> {
    match patterns {
        [] => vec!["*".to_owned()],
        some => some.to_vec(),
    }
}

fn has_all(patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| pattern == "*")
}

/// Returns true if `own` matches everything that `wanted` matches. Returns false if that cannot be determined easily.
fn lies_within(wanted: &str, own: &str) -> bool {
    let is_plain = |text: &str| !text.contains(['*', '?']);
    if own == "*" || wanted == own {
        return true;
    }
    if is_plain(wanted) {
        return wildmatch::WildMatch::new(own).matches(wanted);
    }
    let beginning = own
        .strip_suffix('*')
        .filter(|beginning| is_plain(beginning));
    beginning.is_some_and(|beginning| wanted.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::hash_key;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn may(models: &[&str], routes: &[&str], limits: Option<Limit>) -> KeyUse {
        KeyUse {
            models: texts(models),
            routes: texts(routes),
            limits,
            log_prompts: false,
        }
    }

    fn holder(allowed: KeyUse, expires: Option<Time>) -> KeyRecord {
        KeyRecord {
            id: KeyId(7),
            name: "holder".to_owned(),
            role: Role::Admin,
            allowed,
            prefix: "mp-".to_owned(),
            hash: hash_key("x"),
            created: Time(0),
            last_used: None,
            expires,
            revoked: false,
        }
    }

    fn per_minute(requests: u32) -> Limit {
        Limit {
            requests_per_minute: Some(requests),
            ..Limit::default()
        }
    }

    const DEFAULT: Limit = Limit {
        requests_per_minute: Some(60),
        tokens_per_minute: None,
        concurrent_requests: None,
        tokens_per_day: None,
    };

    /// The field that exceeds the holder's rights.
    fn beyond(
        own: (KeyUse, Option<Time>),
        wanted: &KeyUse,
        expires: Option<Time>,
    ) -> Option<String> {
        let known = [holder(own.0, own.1)];
        let rights = Rights::new(&Holder::Key(KeyId(7)), &known, Time(1), DEFAULT).unwrap();
        let beyond = rights.beyond(wanted, expires, DEFAULT)?;
        Some(beyond.0.split(':').next().unwrap().to_owned())
    }

    #[test]
    fn a_pattern_is_contained_in_another_if_that_is_decidable() {
        for (wanted, own, lies) in [
            ("/v1/models", "/v1/models", true),
            ("/v1/models", "/v1/*", true),
            ("/v1/chat/*", "/v1/*", true),
            ("/v1/*", "/v1/chat/*", false),
            ("/admin/keys", "/v1/*", false),
            ("*", "/v1/*", false),
            ("*", "*", true),
            ("/v1/m*", "*", true),
            ("tiny-?", "tiny-*", true),
            ("tiny-*", "tiny-?", false),
            ("*a*", "*a", false),
            ("/v1*", "/v1/*", false),
        ] {
            assert_eq!(lies_within(wanted, own), lies, "{wanted} in {own}");
        }
    }

    #[test]
    fn a_key_cannot_grant_more_rights_than_it_has() {
        let keys_only = || (may(&[], &["/admin/keys"], None), None);
        let course = || {
            (
                may(
                    &["tiny-*"],
                    &["/admin/keys", "/v1/*"],
                    Some(per_minute(100)),
                ),
                None,
            )
        };
        let free = || (may(&[], &[], None), None);
        let ends = || (may(&[], &[], None), Some(Time(100)));
        let (all, nothing_more) = (may(&[], &[], None), may(&[], &["/admin/keys"], None));
        let of = |field: &str| Some(field.to_owned());
        assert_eq!(beyond(keys_only(), &all, None), of("routes"));
        assert_eq!(beyond(keys_only(), &nothing_more, None), None);
        let looser = may(&[], &["/admin/keys"], Some(Limit::default()));
        assert_eq!(beyond(keys_only(), &looser, None), of("limits"));
        let chat = |models: &[&str], limit| may(models, &["/v1/chat/*"], Some(per_minute(limit)));
        assert_eq!(beyond(course(), &chat(&["tiny-chat"], 100), None), None);
        assert_eq!(beyond(course(), &chat(&[], 100), None), of("models"));
        assert_eq!(
            beyond(course(), &chat(&["tiny-chat", "big"], 1), None),
            of("models")
        );
        assert_eq!(
            beyond(course(), &chat(&["tiny-chat"], 101), None),
            of("limits")
        );
        assert_eq!(
            beyond(free(), &may(&[], &[], Some(Limit::default())), None),
            None
        );
        assert_eq!(beyond(ends(), &all, None), of("expires"));
        assert_eq!(beyond(ends(), &all, Some(Time(101))), of("expires"));
        assert_eq!(beyond(ends(), &all, Some(Time(100))), None);
    }

    #[test]
    fn a_revoked_or_expired_key_has_no_rights() {
        let of = |key: KeyRecord| {
            Rights::new(&Holder::Key(KeyId(7)), &[key], Time(10), DEFAULT).is_some()
        };
        let whole = || holder(may(&[], &[], None), None);
        assert!(of(whole()));
        assert!(!of(KeyRecord {
            revoked: true,
            ..whole()
        }));
        assert!(!of(KeyRecord {
            expires: Some(Time(10)),
            ..whole()
        }));
        assert!(!of(KeyRecord {
            role: Role::User,
            ..whole()
        }));
        assert!(!of(KeyRecord {
            id: KeyId(8),
            ..whole()
        }));
    }
}
