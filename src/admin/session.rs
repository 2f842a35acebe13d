//! Logging in from a browser: a key becomes a session, whose cookie represents the key until the session ends. Wrong keys are
//! delayed and limited, and pages of other origins cannot log in.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa::ToSchema;

use access::oidc::{Identity, Oidc};
use api_types::dto::{self, SessionView};
use api_types::error::{ErrorBody, ErrorKind, Failure};
use config::GrantRole;
use gateway::auth::User;
use gateway::auth::credential::{Credential, Sent, clear_cookie, set_cookie};
use gateway::auth::credential::{KEY_HEADERS, bearer, place};
use gateway::auth::cross_site;
use gateway::credentials::failures::WRONG_LOGINS;
use gateway::credentials::sessions::{Holder, Secret, Stamp};
use gateway::fields::{Fields, OrderFields, Strict, read_body};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::Time;
use store::{KeyRecord, Role};

/// `mp-` and 256 bits in base64.
const KEY_LENGTH: usize = 46;

/// Login request. Has no `Debug` because it contains a key.
#[derive(ToSchema)]
#[schema(example = json!({"key": "mp-…"}))]
pub(crate) struct LoginRequest {
    /// An API key (`mp-…`) or a single sign-on token.
    #[schema(min_length = 1, max_length = 16_384)]
    pub key: String,
}

impl Strict for LoginRequest {
    fn read(fields: &mut Fields) -> Result<LoginRequest, Failure> {
        Ok(LoginRequest {
            key: fields.needed_text("key", "\"mp-…\"")?,
        })
    }
}

/// Show the session
///
/// The caller, identified by the session cookie, a key or neither, and the caller's role. A page that calls this regularly receives
/// a new secret for its cookie, and learns when its session has ended (401 `session_ended`).
///
/// Everybody who may use models or the admin routes may call this.
#[utoipa::path(get, path = "/session", tag = "session", operation_id = "show_session", responses(
    (status = 200, description = "The caller", body = SessionView, example = json!({"name": "ann", "role": "admin", "expires_at": "2026-02-01T08:15:00.000Z", "restricted": false, "by": "cookie"})),
    AdminErrors))]
pub(crate) async fn show(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, _) = request.into_parts();
    let Sent {
        credential,
        session,
    } = Sent::new(&parts, &app).await?;
    let by = match (&session, bearer(&parts.headers)) {
        (Some(_), _) => "cookie",
        (None, Some(_)) => "key",
        (None, None) => "nothing",
    };
    let view = match credential {
        Credential::Key(key) => of_key(&key, key.expires, by),
        Credential::Person(person) => of_person(&person.identity, by),
        // A client with a cookie must learn of its end, even if no cookie is needed.
        Credential::Ended => return Err(Failure::session_ended()),
        other => {
            User::new(other, &parts, &app)?;
            SessionView {
                name: "anonymous".to_owned(),
                role: Role::User.name(),
                expires_at: None,
                restricted: false,
                by: "nothing",
            }
        }
    };
    let Some(open) = session else {
        return Ok(respond(view, None));
    };
    let view = SessionView {
        expires_at: Some(dto::at(open.expires)),
        ..view
    };
    let now = app.handle.clock().wall();
    let renewed = app.sessions.rotate(open.id, now);
    let line = renewed.and_then(|secret| cookie_of(&secret, open.expires, now, &parts, &app));
    Ok(respond(view, line))
}

/// Log in
///
/// Opens a session for a key, or for a token of the single sign-on. The cookie in the response represents the key on all routes
/// below the base path. Changes additionally need the header `x-model-pool-csrf: 1`. The session ends after 12 hours (30 days for
/// viewers), after 2 hours without a request, and when its key is changed, revoked or expires. A restart ends all sessions.
///
/// Everybody may call this. After 10 wrong keys from an address, further wrong keys get 429 for the rest of a minute; the right key
/// is accepted.
#[utoipa::path(post, path = "/session", tag = "session", operation_id = "open_session",
    request_body(content = LoginRequest, example = json!({"key": "mp-…"})), responses(
    (status = 200, description = "The session is open, and the cookie is in `Set-Cookie`", body = SessionView, example = json!({"name": "ann", "role": "admin", "expires_at": "2026-02-01T08:15:00.000Z", "restricted": false, "by": "cookie"})),
    (status = 415, description = "The body is not marked as JSON", body = ErrorBody, example = json!({"error": {"message": "without a key the body must be marked as JSON; send `Content-Type: application/json`", "type": "invalid_request_error", "param": null, "code": "unsupported_media_type"}})),
    AdminErrors))]
pub(crate) async fn open(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    cross_site::check_own(&parts, app.edge.has_tls(), "logs in here")?;
    cross_site::check_type(&parts)?;
    let body = read_body(Request::new(body), &app).await?;
    let mut fields = Fields::parse(&body)?;
    let login = LoginRequest::read(&mut fields)?;
    fields.finish()?;
    let text = login.key.trim();
    let is_token = app.oidc.is_some() && Oidc::is_token(text);
    let is_key = text.starts_with("mp-") && text.len() == KEY_LENGTH;
    if !is_token && !is_key {
        return Err(Failure::invalid(
            Some("key".to_owned()),
            format!(
                "this is not a key: keys begin with mp- and have {KEY_LENGTH} characters. Copy the complete key, or create a new one with admin-client keys create NAME --role admin"
            ),
        ));
    }
    let now = app.handle.clock().now();
    let (holder, view) = match of_text(text, is_token, &app).await {
        Ok(found) => found,
        Err(failure) => return Err(refused(failure, now, &app).await),
    };
    if let Ok(Sent {
        session: Some(before),
        ..
    }) = Sent::new(&without_bearer(&parts), &app).await
    {
        app.sessions.end(before.id);
    }
    let now = app.handle.clock().wall();
    let opened = app.sessions.open(holder, now);
    let (open, secret) = opened.map_err(|fault| Failure::internal(fault.to_string()))?;
    tracing::info!(name = view.name, role = view.role, "session opened");
    let view = SessionView {
        expires_at: Some(dto::at(open.expires)),
        ..view
    };
    let line = cookie_of(&secret, open.expires, now, &parts, &app);
    Ok(respond(view, line))
}

/// Counts a wrong key or token, and delays the refusal.
async fn refused(failure: Failure, now: Time, app: &App) -> Failure {
    let place = place();
    let failed = app.wrong_logins.count(&place, now);
    if let Some(left) = failed.over_for {
        return Failure::new(
            ErrorKind::TooMany,
            "too_many_wrong_keys",
            format!(
                "more than {} wrong keys came from {place} within {}; the right key is accepted, another wrong one in {left}",
                WRONG_LOGINS.count, WRONG_LOGINS.within
            ),
        )
        .again_in(left);
    }
    tracing::info!(%place, "a login with a wrong key was refused");
    tokio::time::sleep(failed.wait).await;
    failure
}

/// Log out
///
/// Ends the session of the cookie. Does nothing without a cookie.
///
/// Everybody may call this.
#[utoipa::path(delete, path = "/session", tag = "session", operation_id = "end_session", responses(
    (status = 204, description = "The session is over"), AdminErrors))]
pub(crate) async fn end(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, _) = request.into_parts();
    cross_site::check_own(&parts, app.edge.has_tls(), "logs out here")?;
    let sent = Sent::new(&without_bearer(&parts), &app).await?;
    if let Some(open) = sent.session {
        app.sessions.end(open.id);
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().extend(
        clear_cookie(&parts, &app)
            .into_iter()
            .map(|line| (header::SET_COOKIE, line)),
    );
    Ok(response)
}

/// The same head with the cookie as its only credential.
fn without_bearer(parts: &Parts) -> Parts {
    let mut parts = parts.clone();
    parts.headers.remove(header::AUTHORIZATION);
    for name in KEY_HEADERS {
        parts.headers.remove(name);
    }
    parts
}

/// The holder of a key or token.
async fn of_text(text: &str, is_token: bool, app: &App) -> Result<(Holder, SessionView), Failure> {
    if let (true, Some(oidc)) = (is_token, &app.oidc) {
        let identity = oidc.verify(text).await?;
        let view = of_person(&identity, "cookie");
        return Ok((Holder::Person(identity), view));
    }
    let key = app.keys.find(text).ok_or_else(Failure::unauthorized_key)?;
    let view = of_key(&key, None, "cookie");
    Ok((Holder::Key(Box::new(Stamp::from_record(&key))), view))
}

fn of_key(key: &KeyRecord, expires: Option<Time>, by: &'static str) -> SessionView {
    SessionView {
        name: key.name.clone(),
        role: key.role.name(),
        expires_at: expires.map(dto::at),
        restricted: !key.allowed.models.is_empty() || !key.allowed.routes.is_empty(),
        by,
    }
}

/// The highest role of a person.
pub(crate) fn role_of(identity: &Identity) -> (GrantRole, Role) {
    let has = |role: GrantRole| identity.grants.iter().any(|grant| grant.role == role);
    if has(GrantRole::Admin) {
        (GrantRole::Admin, Role::Admin)
    } else if has(GrantRole::Viewer) {
        (GrantRole::Viewer, Role::Viewer)
    } else if has(GrantRole::GroupAdmin) {
        (GrantRole::GroupAdmin, Role::GroupAdmin)
    } else {
        (GrantRole::User, Role::User)
    }
}

fn of_person(identity: &Arc<Identity>, by: &'static str) -> SessionView {
    let (grant, role) = role_of(identity);
    let all = |patterns: &[String]| patterns.iter().any(|pattern| pattern == "*");
    let mut grants = identity.grants.iter().filter(|one| one.role == grant);
    SessionView {
        name: identity.name.clone(),
        role: role.name(),
        expires_at: Some(dto::at(identity.expires)),
        restricted: !grants.any(|one| all(&one.models) && all(&one.routes)),
        by,
    }
}

fn cookie_of(
    secret: &Secret,
    expires: Time,
    now: Time,
    parts: &Parts,
    app: &App,
) -> Option<HeaderValue> {
    set_cookie(secret, expires.since(now).0 / 1000, parts, app)
}

fn respond(view: SessionView, cookie: Option<HeaderValue>) -> Response {
    let mut response = Json(view).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.extend(cookie.map(|line| (header::SET_COOKIE, line)));
    response
}
