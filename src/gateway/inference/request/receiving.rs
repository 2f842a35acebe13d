//! The first steps of every inference request: reads the body within its size limit and finds the model.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::auth::User;
use crate::inference::admission;
use crate::inference::request::failed::Failed;
use crate::inference::request::hub_registration;
use crate::inference::request::surrogates::{may_have_halves, without_halves};
use crate::state::App;
use api_types::error::Failure;
use controller::Route;
use dialect::body::Scanned;
use dialect::ollama::bare_name;
use edge::record;

/// Reads a JSON body within the size limit, and replaces unpaired surrogates.
pub async fn read(app: &App, body: Body) -> Result<Bytes, Failed> {
    let body = read_form(app, body).await?;
    mended(app, body).await
}

/// Replaces unpaired surrogates in a body that has been read.
pub(crate) async fn mended(app: &App, body: Bytes) -> Result<Bytes, Failed> {
    if !may_have_halves(&body) {
        return Ok(body);
    }
    let (bytes, share) = (body.len(), record::share());
    let mend = move || Ok(share.charge(without_halves(body)));
    // Boxed because it is rare, and large within each request's future.
    let mended = Box::pin(app.reading.run(bytes, mend)).await;
    mended.map_err(|failure| (None, failure))
}

/// Reads a body of any format within the size limit.
pub(crate) async fn read_form(app: &App, body: Body) -> Result<Bytes, Failed> {
    let limit = app.config().server.body_limit.0.0;
    let body = read_body(body, limit).await;
    body.map_err(|failure| (None, failure))
}

/// Scans the body for routing and finds its model.
pub async fn find(app: &App, user: &User, body: Bytes) -> Result<(Scanned, Arc<Route>), Failed> {
    let scanned = app.reading.run(body.len(), || Scanned::read(body)).await;
    let mut scanned = scanned.map_err(|failure| (None, failure))?;
    if let Some(real) = real_name(app, &scanned.model) {
        scanned.model = real.to_owned();
    }
    let route = model(app, user, &scanned.model).await?;
    Ok((scanned, route))
}

/// Resolves a name with Ollama's tag to the model's name: Ollama's clients use the names that its API lists on all routes.
pub(crate) fn real_name<'a>(app: &App, name: &'a str) -> Option<&'a str> {
    let bare = bare_name(name);
    let is_tagged = bare.len() < name.len() && app.config().compat.ollama;
    if !is_tagged || app.handle.route(name).is_some() {
        return None;
    }
    // Names on the hub have no tags.
    (app.handle.route(bare).is_some() || bare.contains('/')).then_some(bare)
}

/// The model with this name, if it is in the catalogue and the user may use it.
pub fn known(app: &App, user: &User, name: &str) -> Result<Arc<Route>, Failure> {
    let name = real_name(app, name).unwrap_or(name);
    let route = app.handle.route(name);
    let route = route.ok_or_else(|| admission::unknown(app, user, name))?;
    admission::allowed(app, user, name, &route.entry)?;
    Ok(route)
}

/// The model with this name, if the user may use it. Registers it from the hub if allowed.
pub async fn model(app: &App, user: &User, name: &str) -> Result<Arc<Route>, Failed> {
    let early = |failure: Failure| (None, failure);
    let name = real_name(app, name).unwrap_or(name);
    let route = match app.handle.route(name) {
        Some(route) => route,
        // Boxed because it is rare, and large within each request's future.
        None => Box::pin(hub_registration::of_user(app, user, name))
            .await
            .map_err(early)?,
    };
    admission::allowed(app, user, name, &route.entry).map_err(early)?;
    Ok(route)
}

async fn read_body(body: Body, limit: u64) -> Result<Bytes, Failure> {
    let limit_bytes = usize::try_from(limit).unwrap_or(usize::MAX);
    match Limited::new(body, limit_bytes).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(limit)),
        Err(error) => Err(Failure::invalid(
            None,
            format!("the body did not arrive completely: {error}"),
        )),
    }
}
