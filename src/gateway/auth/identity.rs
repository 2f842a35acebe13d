//! The sender of a request and its role: users of models, administrators, and viewers, who may read what administrators read.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};

use crate::auth::account::{Account, Owner};
use crate::auth::actor::{self, Actor};
use crate::auth::credential::bearer;
use crate::auth::credential::{Credential, Sent, is_still_open};
use crate::auth::cross_site;
use crate::auth::sight::{Sight, matches_any};
use crate::auth::sign_on::Person;
use crate::batch_seat::BatchSeat;
use crate::caller_group::CallerGroup;
use crate::credentials::rights::Holder;
use crate::credentials::sessions::{Open, Stamp};
use crate::state::App;
use api_types::error::Failure;
use config::{GrantRole, InferenceAuth};
use edge::record;
use pool::{KeyId, Priority, ServiceClass, Time};
use store::{KeyRecord, Role};

const VOICES: &str = "/v1/audio/voices";

/// A person or program that may use models. `key` is 0 for people without a key.
#[derive(Clone, Debug)]
pub struct User {
    pub key: KeyId,
    /// The account, with its limits.
    pub account: Account,
    /// The models that the user may see.
    pub sight: Sight,
    pub group: Option<Arc<CallerGroup>>,
    /// The seat of a request from a batch, taken before the request is read.
    pub(crate) batch: Option<BatchSeat>,
}

impl User {
    pub(crate) fn of_key(key: KeyRecord, app: &App) -> User {
        let group = app.keys.groups().of_key(&key, &app.handle);
        User {
            key: key.id,
            account: Account {
                owner: Owner::Key {
                    id: key.id,
                    name: key.name.into(),
                },
                limit: key.allowed.limits.unwrap_or(app.limits.default_limit()),
            },
            sight: Sight::of_patterns(key.allowed.models).within(group.as_ref()),
            group,
            batch: None,
        }
    }

    pub(crate) fn of_signed_on(person: Person, reads: bool, app: &App) -> Result<User, Failure> {
        if reads {
            person.needs_one_of(GrantRole::User, GrantRole::Viewer)?
        } else {
            person.needs(GrantRole::User)?
        }
        let (key, name) = (person.identity.key, &person.identity.name);
        let group = app.keys.groups().of_person(&person.identity, &app.handle);
        Ok(User {
            key,
            account: Account {
                owner: Owner::Person {
                    id: key,
                    name: name.as_str().into(),
                },
                limit: app.limits.default_limit(),
            },
            sight: Sight::of_person(person).within(group.as_ref()),
            group,
            batch: None,
        })
    }

    /// A client without a key, unless it is a page of another origin in a browser.
    fn anonymous(parts: &Parts, app: &App) -> Result<User, Failure> {
        cross_site::check(parts, app)?;
        let address = record::client().map(|client| client.address);
        Ok(User::at(address, app))
    }

    /// A client without a key at this address.
    pub(crate) fn at(address: Option<IpAddr>, app: &App) -> User {
        User {
            key: KeyId(0),
            account: Account {
                owner: Owner::Address(address),
                limit: app.limits.anonymous_limit(),
            },
            sight: Sight::default(),
            group: None,
            batch: None,
        }
    }

    /// The class that a request gets if it wishes this one.
    pub(crate) fn class(&self, wished: ServiceClass) -> ServiceClass {
        if self.batch.is_some() {
            return ServiceClass::Flex;
        }
        match &self.group {
            Some(group) => group.class(wished),
            None => wished.min(ServiceClass::Default),
        }
    }
}

/// A person or program that may administer the pool.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The id of the key or person, for the history.
    pub by: KeyId,
    pub name: String,
    /// The holder whose rights limit the rights that can be granted to others.
    pub holder: Holder,
    pub group: Option<Arc<CallerGroup>>,
}

impl Admin {
    fn of_signed_on(person: Person, app: &App) -> Result<Admin, Failure> {
        person.needs(GrantRole::Admin)?;
        record::note(|facts| facts.is_admin = true);
        Ok(Admin {
            by: person.identity.key,
            name: person.identity.name.clone(),
            group: app.keys.groups().of_person(&person.identity, &app.handle),
            holder: Holder::Person(person.identity),
        })
    }

    /// Refuses a model priority that the administrator's group may not request.
    pub fn check_priority(&self, requested: Option<Priority>) -> Result<(), Failure> {
        match (&self.group, requested) {
            (Some(group), Some(requested)) => group.check_priority(requested),
            _ => Ok(()),
        }
    }
}

/// The route as named in keys, without the base path.
fn route_of<'a>(parts: &'a Parts, app: &App) -> &'a str {
    let path = parts.uri.path();
    let base = app.base();
    path.strip_prefix(base).unwrap_or(path)
}

/// Refuses a key that is restricted to other routes.
pub(super) fn on_its_routes(key: &KeyRecord, parts: &Parts, app: &App) -> Result<(), Failure> {
    let (routes, route) = (&key.allowed.routes, route_of(parts, app));
    if routes.is_empty() || matches_any(routes, route) {
        return Ok(());
    }
    Err(Failure::forbidden(
        "route_not_allowed",
        format!(
            "the key {}… is for {} and not for {route}",
            key.prefix,
            routes.join(", ")
        ),
    ))
}

/// Returns true for requests that change nothing. Listing voices does not count, because it loads the model.
fn reads(parts: &Parts) -> bool {
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    is_read && !parts.uri.path().ends_with(VOICES)
}

impl FromRequestParts<App> for User {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<User, Failure> {
        let sent = Sent::new(parts, app).await?;
        User::new(sent.credential, parts, app)
    }
}

impl User {
    /// The user with this credential.
    pub fn new(credential: Credential, parts: &Parts, app: &App) -> Result<User, Failure> {
        let anonymous = match app.config().auth.inference {
            InferenceAuth::Open => true,
            InferenceAuth::Loopback => record::from_loopback(),
            InferenceAuth::Key => false,
        };
        // A wrong key is an error even if no key is needed, because its owner expects it to count. OpenAI's clients always send
        // some key, so texts that do not look like our keys are accepted if no key is needed. An expired cookie is ignored, because
        // browsers send it automatically.
        match credential {
            Credential::Person(person) => User::of_signed_on(person, reads(parts), app),
            Credential::Key(key) => {
                if key.role == Role::Viewer && !reads(parts) {
                    return Err(Failure::viewer(&key));
                }
                on_its_routes(&key, parts, app)?;
                Ok(User::of_key(*key, app))
            }
            Credential::Unknown if anonymous && !is_ours(&parts.headers) => {
                User::anonymous(parts, app)
            }
            Credential::Unknown => Err(Failure::unauthorized_key()),
            Credential::Nothing | Credential::Ended if anonymous => User::anonymous(parts, app),
            Credential::Ended => Err(Failure::session_ended()),
            Credential::Nothing => Err(Failure::unauthorized(
                "an API key is required: send it as `Authorization: Bearer mp-…`; an administrator creates one with `admin-client keys create NAME --role user`",
            )),
        }
    }
}

/// Returns true if the bearer text looks like a key of this service.
fn is_ours(headers: &HeaderMap) -> bool {
    bearer(headers).is_some_and(|text| text.starts_with("mp-"))
}

/// A verified credential for admin routes.
pub(super) enum Known {
    Key(Box<KeyRecord>),
    Person(Person),
}

/// The caller of an admin route, recorded for the audit log.
pub(super) fn known(credential: Credential, parts: &Parts, app: &App) -> Result<Known, Failure> {
    let key = match credential {
        Credential::Person(person) => return Ok(Known::Person(person)),
        Credential::Key(key) => key,
        Credential::Ended => return Err(Failure::session_ended()),
        Credential::Nothing => {
            let file = app.config().admin_key_file();
            return Err(Failure::unauthorized(format!(
                "an admin key is required: send it as `Authorization: Bearer mp-…`; the first one was written to {} on the server",
                file.display()
            )));
        }
        Credential::Unknown => {
            return Err(Failure::forbidden(
                "invalid_api_key",
                "this key is unknown, expired or revoked",
            ));
        }
    };
    actor::tell(parts, || Actor {
        key: Some(key.id),
        caller: key.id,
        subject: None,
        name: key.name.clone(),
        is_admin: key.role == Role::Admin,
    });
    Ok(Known::Key(key))
}

/// Marks an administrator's request before its body is read, because administrators have reserved body memory.
pub async fn note_administrator(parts: &Parts, app: &App) {
    let is_admin = match Sent::new(parts, app).await.map(|sent| sent.credential) {
        Ok(Credential::Key(key)) => key.role == Role::Admin,
        Ok(Credential::Person(person)) => person.needs(GrantRole::Admin).is_ok(),
        _ => false,
    };
    record::note(|facts| facts.is_admin |= is_admin);
}

impl FromRequestParts<App> for Admin {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Admin, Failure> {
        let sent = Sent::new(parts, app).await?;
        Admin::new(sent.credential, parts, app)
    }
}

impl Admin {
    /// The administrator with this credential.
    pub(super) fn new(credential: Credential, parts: &Parts, app: &App) -> Result<Admin, Failure> {
        let key = match known(credential, parts, app)? {
            Known::Person(person) => return Admin::of_signed_on(person, app),
            Known::Key(key) => key,
        };
        match key.role {
            Role::Admin => {
                on_its_routes(&key, parts, app)?;
                record::note(|facts| facts.is_admin = true);
                Ok(Admin {
                    by: key.id,
                    group: app.keys.groups().of_key(&key, &app.handle),
                    name: key.name,
                    holder: Holder::Key(key.id),
                })
            }
            Role::Viewer => Err(Failure::viewer(&key)),
            Role::User => Err(Failure::not_an_admin(&key)),
            Role::GroupAdmin => Err(Failure::only_a_group_admin(&key.name, "admin")),
        }
    }
}

/// A person or program that may read what administrators read.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The models shown in the live view. A viewer's group may restrict them.
    pub sight: Sight,
    /// The session, if the request came with its cookie.
    pub session: Option<Open>,
    /// The key that must stay valid during a long-lived response.
    pub key: Option<Stamp>,
    /// The end of a person's token that was sent without a session.
    pub expires: Option<Time>,
}

impl Reader {
    /// Returns true if the session, key or token is still valid, for long-lived responses.
    pub fn still_counts(&self, app: &App) -> bool {
        let now = app.handle.clock().wall();
        match (&self.session, &self.key) {
            (Some(open), _) => is_still_open(open, app),
            (None, Some(stamp)) => stamp.counts(&app.keys.all(), now),
            (None, None) => self.expires.is_none_or(|expires| now < expires),
        }
    }
}

impl From<Admin> for Reader {
    fn from(_: Admin) -> Reader {
        Reader {
            sight: Sight::default(),
            session: None,
            key: None,
            expires: None,
        }
    }
}

impl FromRequestParts<App> for Reader {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Reader, Failure> {
        let sent = Sent::new(parts, app).await?;
        Reader::new(sent, parts, app)
    }
}

impl Reader {
    /// The reader with this credential.
    pub(super) fn new(sent: Sent, parts: &Parts, app: &App) -> Result<Reader, Failure> {
        let Sent {
            credential,
            session,
        } = sent;
        let groups = app.keys.groups();
        match known(credential, parts, app)? {
            Known::Person(person) => {
                person.needs(GrantRole::Viewer)?;
                let is_viewer = person.needs(GrantRole::Admin).is_err();
                let group = is_viewer.then(|| groups.of_person(&person.identity, &app.handle));
                Ok(Reader {
                    expires: Some(person.identity.expires),
                    sight: Sight::of_person(person).within(group.flatten().as_ref()),
                    session,
                    key: None,
                })
            }
            Known::Key(key) if key.role == Role::User => Err(Failure::not_an_admin(&key)),
            Known::Key(key) if key.role == Role::GroupAdmin => {
                Err(Failure::only_a_group_admin(&key.name, "admin or viewer"))
            }
            Known::Key(key) => {
                on_its_routes(&key, parts, app)?;
                let is_viewer = key.role == Role::Viewer;
                let group = is_viewer.then(|| groups.of_key(&key, &app.handle));
                let sight = Sight::of_patterns(key.allowed.models.clone());
                Ok(Reader {
                    key: Some(Stamp::from_record(&key)),
                    sight: sight.within(group.flatten().as_ref()),
                    session,
                    expires: None,
                })
            }
        }
    }
}
