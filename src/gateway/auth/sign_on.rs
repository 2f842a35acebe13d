//! Single sign-on at authentication: recognizes a person's token, and checks the grants of the person's groups. Does not handle API
//! keys.

use std::sync::Arc;

use axum::http::request::Parts;

use crate::auth::actor::{self, Actor};
use crate::state::App;
use access::oidc::{Identity, Oidc};
use api_types::error::Failure;
use config::GrantRole;
use edge::record;

/// A person authenticated by the issuer, and the route of the request.
#[derive(Clone, Debug)]
pub struct Person {
    pub identity: Arc<Identity>,
    /// The path below the base path.
    route: String,
}

/// The roles that a route for this role requires.
pub(crate) fn required(role: GrantRole) -> &'static str {
    match role {
        GrantRole::Viewer => "admin or viewer",
        _ => "admin",
    }
}

impl Person {
    /// The person with this token. `None` if the text cannot be a token, or no issuer is configured.
    pub async fn new(
        text: Option<&str>,
        parts: &Parts,
        app: &App,
    ) -> Result<Option<Person>, Failure> {
        let (Some(oidc), Some(token)) = (&app.oidc, text.filter(|text| Oidc::is_token(text)))
        else {
            return Ok(None);
        };
        let identity = oidc.verify(token).await?;
        Ok(Some(Person::by_session(identity, parts)))
    }

    /// A person whose token was verified when the session began.
    pub(crate) fn by_session(identity: Arc<Identity>, parts: &Parts) -> Person {
        record::note_key(identity.key, &identity.name, false);
        actor::tell(parts, || Actor {
            key: None,
            caller: identity.key,
            subject: Some(identity.subject.clone()),
            name: identity.name.clone(),
            is_admin: identity.may(GrantRole::Admin, parts.uri.path()),
        });
        Person {
            identity,
            route: parts.uri.path().to_owned(),
        }
    }

    /// A person whose work sends requests to this route after the person has left.
    pub(crate) fn remembered(identity: Identity, route: &str) -> Person {
        Person {
            identity: Arc::new(identity),
            route: route.to_owned(),
        }
    }

    pub fn needs(&self, role: GrantRole) -> Result<(), Failure> {
        if self.identity.may(role, &self.route) {
            return Ok(());
        }
        let (name, route) = (&self.identity.name, &self.route);
        let grants = &self.identity.grants;
        let has_role = grants.iter().any(|grant| grant.role.covers(role));
        Err(match (has_role, role) {
            (true, _) => Failure::forbidden(
                "route_not_allowed",
                format!("the groups of {name} may not use {route} (auth.oidc.groups, routes)"),
            ),
            (false, GrantRole::User) => Failure::forbidden(
                "only_a_viewer",
                format!(
                    "the groups of {name} may view the pool, but not use models; an administrator can list one of them with the role user (auth.oidc.groups)"
                ),
            ),
            (false, _) if grants.iter().any(|grant| grant.role == GrantRole::Viewer) => {
                Failure::forbidden(
                    "only_a_viewer",
                    format!("the groups of {name} may view the pool, but not administer it"),
                )
            }
            (false, _)
                if grants
                    .iter()
                    .any(|grant| grant.role == GrantRole::GroupAdmin) =>
            {
                Failure::only_a_group_admin(name, required(role))
            }
            (false, _) => Failure::forbidden(
                "not_an_admin",
                format!("{name} may use models, but not administer the pool"),
            ),
        })
    }

    /// Requires either role for the route.
    pub(crate) fn needs_one_of(&self, first: GrantRole, second: GrantRole) -> Result<(), Failure> {
        if self.identity.may(second, &self.route) {
            Ok(())
        } else {
            self.needs(first)
        }
    }

    /// Returns true if the model may be used on this route.
    pub fn may_use(&self, model: &str) -> bool {
        self.identity.may_use(model, &self.route)
    }
}
