//! Checks a key against an administrator's own rights: administrators cannot create, change or revoke a key with more rights than
//! they have.

use std::sync::Arc;

use crate::caller_group::CallerGroup;
use crate::group_scope::GroupScope;
use crate::groups::CallerGroups;
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
    /// The role in which the holder acts: [`Role::Admin`] or [`Role::GroupAdmin`].
    pub role: Role,
    pub default: Limit,
}

impl By<'_> {
    pub(crate) fn rights(
        &self,
        known: &[KeyRecord],
        now: Time,
        groups: &CallerGroups,
    ) -> Result<Rights, KeyRefusal> {
        // Uses the current keys and groups, because the credential may have been revoked, or its group removed, since the request was
        // authenticated.
        let rights = Rights::new(self, known, now, groups);
        rights.ok_or(KeyRefusal::HolderGone)
    }

    /// Checks a key that exists.
    pub(crate) fn check(&self, rights: &Rights, key: &Subject) -> Result<(), KeyRefusal> {
        match rights.beyond(key, self.default) {
            None => Ok(()),
            Some(beyond) => Err(KeyRefusal::Beyond(beyond)),
        }
    }

    /// Checks a key as it will be.
    pub(crate) fn check_new(&self, rights: &Rights, key: &Subject) -> Result<(), KeyRefusal> {
        self.check(rights, key)?;
        match rights.beyond_group(key) {
            None => Ok(()),
            Some(words) => Err(KeyRefusal::Beyond(Beyond(words))),
        }
    }
}

/// A key to compare with rights.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub role: Role,
    pub allowed: &'a KeyUse,
    pub expires: Option<Time>,
    pub group: Option<Arc<CallerGroup>>,
}

/// A refused change of keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyRefusal {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}", .0.0)]
    Beyond(Beyond),
    #[error("this key is unknown, expired or revoked, or its group is gone")]
    HolderGone,
    #[error("group: there is no group {0:?}; GET /admin/groups lists them")]
    NoSuchGroup(String),
    #[error(
        "{keys} keys have been created for {group} and the groups below it, and its administrators can create at most {KEYS_OF_GROUP_MAX}, revoked ones included; request the key from an administrator of the pool"
    )]
    TooManyKeys { group: Arc<str>, keys: usize },
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

/// The maximum number of keys set for a group and those below it, revoked ones included, up to which its administrators create keys.
const KEYS_OF_GROUP_MAX: usize = 10_000;

/// Alternative reaches. A key is within the rights if it is within any reach, and in the scope.
#[derive(Debug)]
pub(crate) struct Rights {
    reaches: Vec<Reach>,
    /// The groups that the holder administers; `None` for administrators of the pool.
    scope: Option<GroupScope>,
}

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
    /// The holder's current rights, or `None` if the holder's key is no longer valid, or the group of its administrator is gone.
    pub fn new(by: &By, known: &[KeyRecord], now: Time, groups: &CallerGroups) -> Option<Rights> {
        let By {
            holder,
            role,
            default,
        } = *by;
        let is_of_group = role == Role::GroupAdmin;
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
                let is_it =
                    |key: &&KeyRecord| key.id == *id && key.role == role && key.is_valid(now);
                let key = known.iter().find(is_it)?;
                let KeyUse {
                    models,
                    routes,
                    limits,
                    ..
                } = &key.allowed;
                let scope = if is_of_group {
                    Some(groups.scope_of_key(key)?)
                } else {
                    None
                };
                let reaches = vec![reach(models, routes, *limits, key.expires)];
                Some(Rights { reaches, scope })
            }
            Holder::Person(identity) => {
                let (wanted, scope) = if is_of_group {
                    let scope = groups.scope_of_person(identity)?;
                    (GrantRole::GroupAdmin, Some(scope))
                } else {
                    (GrantRole::Admin, None)
                };
                let grants = identity.grants.iter();
                let grants = grants.filter(|grant| grant.role == wanted);
                let reaches = grants.map(|grant| reach(&grant.models, &grant.routes, None, None));
                Some(Rights {
                    reaches: reaches.collect(),
                    scope,
                })
            }
        }
    }

    /// Returns how a key with these permissions exceeds the rights, or `None` if it does not.
    pub(crate) fn beyond(&self, key: &Subject, default: Limit) -> Option<Beyond> {
        if let Some(words) = self.outside(key) {
            return Some(Beyond(words));
        }
        let mut beyond = None;
        for reach in &self.reaches {
            match reach.beyond(key.allowed, key.expires, default) {
                None => return None,
                Some(words) => beyond = Some(words),
            }
        }
        Some(Beyond(beyond.unwrap_or_else(|| {
            "your groups may not create keys (auth.oidc.groups)".to_owned()
        })))
    }

    /// Returns the reason why a group's administrator has no rights over the key, whatever its permissions.
    fn outside(&self, key: &Subject) -> Option<String> {
        let scope = self.scope.as_ref()?;
        let own = &scope.group.name;
        let Some(group) = key.group.as_ref().filter(|of| scope.covers(&of.name)) else {
            return Some(format!(
                "group: the key is not in {own} or a group below it, which are the groups that you administer"
            ));
        };
        match key.role {
            Role::User => None,
            Role::GroupAdmin if scope.is_above(&group.name) => None,
            role => Some(format!(
                "role: the key has the role {} in {}, and an administrator of {own} can only create, change and revoke keys with the role user, and group-admin in groups below {own}",
                role.name(),
                group.name
            )),
        }
    }

    /// Returns how a key exceeds the models or limits of its group. The group applies anyway, so values that the key does not set
    /// are fine.
    fn beyond_group(&self, key: &Subject) -> Option<String> {
        let (scope, group) = (self.scope.as_ref()?, key.group.as_ref()?);
        let KeyUse { models, limits, .. } = key.allowed;
        for (name, level) in scope.lineage(&group.name) {
            let has = |wanted: &&String| level.models.iter().any(|own| lies_within(wanted, own));
            if let Some(outside) = models.iter().find(|wanted| !has(wanted)) {
                return Some(format!(
                    "models: {outside} is not among the models of the group {name}, which are {}; choose from these, or omit models",
                    level.models.join(", ")
                ));
            }
            for (figure, wanted, own) in figures(limits.unwrap_or_default(), level.limits) {
                if let (Some(wanted), Some(own)) = (wanted, own)
                    && wanted > own
                {
                    return Some(format!(
                        "limits: {figure} is {wanted}, and the group {name} has {own} for all members together; choose at most {own}"
                    ));
                }
            }
        }
        None
    }

    /// Refuses a further key if the holder's group has too many.
    pub(crate) fn check_room(&self, known: &[KeyRecord]) -> Result<(), KeyRefusal> {
        let Some(scope) = &self.scope else {
            return Ok(());
        };
        let groups = known.iter().filter_map(|key| key.allowed.group.as_deref());
        let keys = groups.filter(|group| scope.covers(group)).count();
        if keys < KEYS_OF_GROUP_MAX {
            return Ok(());
        }
        let group = Arc::clone(&scope.group.name);
        Err(KeyRefusal::TooManyKeys { group, keys })
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
mod tests;
