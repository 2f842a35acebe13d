//! Callers of the routes that a group's administrators may use, too: keys, groups, usage, load and unload.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::auth::actor;
use crate::auth::credential::{Credential, Sent};
use crate::auth::identity::{known, on_its_routes};
use crate::auth::{Admin, Reader, User};
use crate::caller_group::{AUTHORITY_DEFAULT, CallerGroup};
use crate::credentials::rights::{By, Holder};
use crate::group_scope::GroupScope;
use crate::state::App;
use api_types::error::Failure;
use config::GrantRole;
use pool::{KeyId, Priority};
use store::Role;

/// A person or program that may administer the pool, or a group.
#[derive(Clone, Debug)]
pub enum Manager {
    Pool(Admin),
    Group(GroupAdmin),
}

/// A person or program that may administer a group and the groups below it.
#[derive(Clone, Debug)]
pub struct GroupAdmin {
    /// The same caller as a user of models.
    pub user: User,
    pub name: String,
    pub holder: Holder,
    pub scope: GroupScope,
}

impl GroupAdmin {
    /// The caller with this credential; `None` if it does not have the role for the route, or has the role admin as well.
    ///
    /// # Errors
    /// The key is for other routes, or the caller belongs to no group in force.
    fn new(
        credential: &Credential,
        parts: &Parts,
        app: &App,
    ) -> Result<Option<GroupAdmin>, Failure> {
        let groups = app.keys.groups();
        let (name, holder, scope) = match credential {
            Credential::Key(key) if key.role == Role::GroupAdmin => {
                known(Credential::Key(key.clone()), parts, app)?;
                on_its_routes(key, parts, app)?;
                let scope = groups.scope_of_key(key);
                (key.name.clone(), Holder::Key(key.id), scope)
            }
            Credential::Person(person)
                if person.needs(GrantRole::Admin).is_err()
                    && person.needs(GrantRole::GroupAdmin).is_ok() =>
            {
                let identity = &person.identity;
                let scope = groups.scope_of_person(identity);
                let holder = Holder::Person(Arc::clone(identity));
                (identity.name.clone(), holder, scope)
            }
            _ => return Ok(None),
        };
        let scope = scope.ok_or_else(|| Failure::group_admin_without_group(&name))?;
        let user = match credential {
            Credential::Key(key) => User::of_key((**key).clone(), app),
            Credential::Person(person) => User::of_signed_on(person.clone(), false, app)?,
            _ => return Ok(None),
        };
        actor::administers(parts);
        Ok(Some(GroupAdmin {
            user,
            name,
            holder,
            scope,
        }))
    }
}

impl FromRequestParts<App> for Manager {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Manager, Failure> {
        let sent = Sent::new(parts, app).await?;
        match GroupAdmin::new(&sent.credential, parts, app)? {
            Some(admin) => Ok(Manager::Group(admin)),
            None => Admin::new(sent.credential, parts, app).map(Manager::Pool),
        }
    }
}

impl From<Admin> for Manager {
    fn from(admin: Admin) -> Manager {
        Manager::Pool(admin)
    }
}

impl Manager {
    /// The id of the key or person, for the history.
    pub fn id(&self) -> KeyId {
        match self {
            Manager::Pool(admin) => admin.by,
            Manager::Group(admin) => admin.user.key,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Manager::Pool(admin) => &admin.name,
            Manager::Group(admin) => &admin.name,
        }
    }

    /// The administrator of a group; `None` for an administrator of the pool.
    pub fn of_group(&self) -> Option<&GroupAdmin> {
        match self {
            Manager::Pool(_) => None,
            Manager::Group(admin) => Some(admin),
        }
    }

    /// The rights with which this caller changes keys.
    pub fn by(&self, app: &App) -> By<'_> {
        let (holder, role) = match self {
            Manager::Pool(admin) => (&admin.holder, Role::Admin),
            Manager::Group(admin) => (&admin.holder, Role::GroupAdmin),
        };
        By {
            holder,
            role,
            default: app.limits.default_limit(),
        }
    }

    /// The highest priority of models that the caller may load and unload; `None` for administrators of the pool.
    pub fn priority_max(&self) -> Option<Priority> {
        let admin = self.of_group()?;
        let most = admin.group().priority_max();
        Some(most.unwrap_or(AUTHORITY_DEFAULT))
    }

    /// Refuses a model priority that the caller may not request.
    pub fn check_priority(&self, requested: Option<Priority>) -> Result<(), Failure> {
        match (self, requested) {
            (Manager::Pool(admin), requested) => admin.check_priority(requested),
            (Manager::Group(admin), Some(requested)) => {
                admin.group().check_priority_of_admin(requested)
            }
            (Manager::Group(_), None) => Ok(()),
        }
    }

    /// Refuses a field that only administrators of the pool may set.
    pub fn only_pool(&self, field: &'static str, is_set: bool) -> Result<(), Failure> {
        match self {
            Manager::Group(admin) if is_set => {
                Err(Failure::field_of_admins(field, &admin.group().name))
            }
            _ => Ok(()),
        }
    }
}

impl GroupAdmin {
    fn group(&self) -> &CallerGroup {
        &self.scope.group
    }
}

/// A person or program that may read what administrators read, or the part of it that concerns a group.
#[derive(Clone, Debug)]
pub struct Overseer {
    /// The groups whose data the caller may read; `None` for all.
    pub scope: Option<GroupScope>,
}

impl FromRequestParts<App> for Overseer {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Overseer, Failure> {
        let sent = Sent::new(parts, app).await?;
        let may_read_all = match &sent.credential {
            Credential::Person(person) => person.needs(GrantRole::Viewer).is_ok(),
            _ => false,
        };
        if !may_read_all && let Some(admin) = GroupAdmin::new(&sent.credential, parts, app)? {
            return Ok(Overseer {
                scope: Some(admin.scope),
            });
        }
        Reader::new(sent, parts, app)?;
        Ok(Overseer { scope: None })
    }
}
