//! The caller of the route, the tools that its role permits, and its rights on the routes that tools stand for.

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;

use api_types::error::Failure;
use gateway::auth::{Admin, Manager, Reader, User};
use gateway::state::App;
use pool::KeyId;

/// Roles, by their rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    User,
    GroupAdmin,
    Viewer,
    Admin,
}

/// Travels in the extensions of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub level: Level,
}

impl Caller {
    /// # Errors
    /// The request has no valid key, token or session, or the key is for other routes.
    pub async fn new(parts: &mut Parts, app: &App) -> Result<Caller, Failure> {
        let level = match Manager::from_request_parts(parts, app).await {
            Ok(Manager::Pool(_)) => Level::Admin,
            Ok(Manager::Group(_)) => Level::GroupAdmin,
            Err(_) if Reader::from_request_parts(parts, app).await.is_ok() => Level::Viewer,
            Err(_) => {
                let user = User::from_request_parts(parts, app).await?;
                if user.key == KeyId(0) {
                    return Err(Failure::unauthorized(
                        "MCP needs a key: send it as `Authorization: Bearer mp-…`; an administrator creates one with `admin-client keys create NAME`",
                    ));
                }
                Level::User
            }
        };
        Ok(Caller { level })
    }
}

/// The caller as an administrator of the pool or of a group, with the rights of its key on this route.
pub(crate) async fn manager_on(
    parts: &Parts,
    app: &App,
    path: &'static str,
) -> Result<Manager, Failure> {
    Manager::from_request_parts(&mut on_route(parts, path), app).await
}

/// The caller as an administrator of the pool, with the rights of its key on this route.
pub(crate) async fn admin_on(
    parts: &Parts,
    app: &App,
    path: &'static str,
) -> Result<Admin, Failure> {
    Admin::from_request_parts(&mut on_route(parts, path), app).await
}

fn on_route(parts: &Parts, path: &'static str) -> Parts {
    let mut parts = parts.clone();
    parts.uri = Uri::from_static(path);
    parts
}
