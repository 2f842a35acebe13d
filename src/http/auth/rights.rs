//! Checks whether a key lies within an administrator's own rights: an administrator cannot make, change or revoke a key
//! that may do more than they may themselves.

use std::sync::Arc;

use crate::error::Failure;
use access::oidc::Identity;
use config::{GrantRole, Limit};
use pool::{KeyId, Time};
use store::{KeyRecord, KeyUse, Role, StoreFault};

/// Whose rights they are.
#[derive(Clone, Debug)]
pub enum Holder {
    Key(KeyId),
    /// Of the single sign-on.
    Person(Arc<Identity>),
}

/// Who makes, changes or revokes a key, and what keys without limits of their own have.
#[derive(Clone, Copy, Debug)]
pub struct By<'a> {
    pub holder: &'a Holder,
    pub default: Limit,
}

impl By<'_> {
    pub(crate) fn rights(&self, known: &[KeyRecord], now: Time) -> Result<Rights, KeyRefusal> {
        // The list is the one that is changed: what was read at the door may be over by now.
        let rights = Rights::of(self.holder, known, now, self.default);
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

/// Why a key is not made or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyRefusal {
    #[error(transparent)]
    Store(#[from] StoreFault),
    #[error("{}", .0.0)]
    Beyond(Beyond),
    #[error("this key is unknown, expired or revoked")]
    HolderGone,
    #[error(
        "it is the last valid admin key for all routes; make another one first: `admin-client keys create NAME --role admin`, or `model-pool admin-key new` on the server"
    )]
    LastAdmin,
    #[error(
        "models: a viewer sees all models; leave models out, or bound the key by routes such as /admin/live"
    )]
    ViewerOfSome,
    /// With the other keys, for people.
    #[error(
        "it is the key of this request, which is refused from then on; {0}. If you have another one, send confirm=true (admin-client: --yes)"
    )]
    OwnKey(String),
}

/// One or more reaches: what lies within one of them lies within the rights.
#[derive(Debug)]
pub struct Rights(Vec<Reach>);

#[derive(Debug)]
struct Reach {
    /// Patterns.
    models: Vec<String>,
    routes: Vec<String>,
    /// `None`: whatever they like.
    limit: Option<Limit>,
    expires: Option<Time>,
}

impl Rights {
    /// As they are now; none if the holder's key counts no more. `default` is the limit of keys without their
    /// own.
    pub fn of(holder: &Holder, known: &[KeyRecord], now: Time, default: Limit) -> Option<Rights> {
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
                let grants = grants.filter(|it| it.role == GrantRole::Admin);
                let reaches = grants.map(|it| reach(&it.models, &it.routes, None, None));
                Some(Rights(reaches.collect()))
            }
        }
    }

    /// Why a key that may do this does not lie within them, if it does not.
    pub fn beyond(&self, key: &KeyUse, expires: Option<Time>, default: Limit) -> Option<Beyond> {
        let mut beyond = None;
        for reach in &self.0 {
            match reach.beyond(key, expires, default) {
                None => return None,
                Some(words) => beyond = Some(words),
            }
        }
        Some(Beyond(beyond.unwrap_or_else(|| {
            "your groups may make no keys (auth.oidc.groups)".to_owned()
        })))
    }
}

/// In words, with what would be allowed.
#[derive(Debug, PartialEq, Eq)]
pub struct Beyond(pub(crate) String);

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
                .find(|it| !own.iter().any(|own| lies_within(it, own)));
            if let Some(outside) = outside {
                let outside = match outside.as_str() {
                    "*" => "all",
                    outside => outside,
                };
                return Some(format!(
                    "{field}: a key for {outside} may do more than you, whose {field} are {}; name some of these",
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
                        "limits: {figure} is {own} for you, so that it can be at most {own} for a key that you make or change"
                    ));
                }
            }
        }
        match (self.expires, expires) {
            (None, _) => None,
            (Some(own), Some(wanted)) if wanted <= own => None,
            _ => Some(
                "expires: your own key ends, and a key that you make or change has to end no later"
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
    patterns.iter().any(|it| it == "*")
}

/// Whether everything that one pattern is for the other one is for too. Where that is not plain to see it is
/// taken not to be.
fn lies_within(wanted: &str, own: &str) -> bool {
    let is_plain = |text: &str| !text.contains(['*', '?']);
    if own == "*" || wanted == own {
        return true;
    }
    if is_plain(wanted) {
        return wildmatch::WildMatch::new(own).matches(wanted);
    }
    let beginning = own.strip_suffix('*').filter(|it| is_plain(it));
    beginning.is_some_and(|beginning| wanted.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::hash_key;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|it| (*it).to_owned()).collect()
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

    /// The field that is beyond what the holder may.
    fn beyond(
        own: (KeyUse, Option<Time>),
        wanted: &KeyUse,
        expires: Option<Time>,
    ) -> Option<String> {
        let known = [holder(own.0, own.1)];
        let rights = Rights::of(&Holder::Key(KeyId(7)), &known, Time(1), DEFAULT).unwrap();
        let beyond = rights.beyond(wanted, expires, DEFAULT)?;
        Some(beyond.0.split(':').next().unwrap().to_owned())
    }

    #[test]
    fn a_pattern_lies_within_another_where_that_is_plain_to_see() {
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
    fn nobody_gives_more_than_they_have() {
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
    fn a_key_that_counts_no_more_has_no_rights() {
        let of = |key: KeyRecord| {
            Rights::of(&Holder::Key(KeyId(7)), &[key], Time(10), DEFAULT).is_some()
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
