//! The beginning of every request for a model: its body is read within its bound, and the model that it names is
//! found.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::auth::User;
use crate::dialect::ollama::bare_name;
use crate::edge::record;
use crate::error::Failure;
use crate::inference::admission;
use crate::inference::request::body::Scanned;
use crate::inference::request::failed::Failed;
use crate::inference::request::hub_registration;
use crate::inference::request::surrogates::{may_have_halves, without_halves};
use crate::state::App;
use controller::Route;

/// The request's body, bounded: JSON, without halves of surrogate pairs.
pub(crate) async fn read(app: &App, body: Body) -> Result<Bytes, Failed> {
    let body = read_form(app, body).await?;
    mended(app, body).await
}

/// A body that has been read, without halves of surrogate pairs.
pub(crate) async fn mended(app: &App, body: Bytes) -> Result<Bytes, Failed> {
    if !may_have_halves(&body) {
        return Ok(body);
    }
    let (bytes, share) = (body.len(), record::share());
    let mend = move || Ok(share.of(without_halves(body)));
    // Boxed, because it is rare, and large within each request's future.
    let mended = Box::pin(app.reading.run(bytes, mend)).await;
    mended.map_err(|failure| (None, failure))
}

/// The request's body, bounded, in whichever form.
pub(crate) async fn read_form(app: &App, body: Body) -> Result<Bytes, Failed> {
    let limit = app.config().server.body_limit.0.0;
    let body = read_body(body, limit).await;
    body.map_err(|failure| (None, failure))
}

/// What routing needs of the body, and the model that it names.
pub(crate) async fn find(
    app: &App,
    user: &User,
    body: Bytes,
) -> Result<(Scanned, Arc<Route>), Failed> {
    let scanned = app.reading.run(body.len(), || Scanned::read(body)).await;
    let mut scanned = scanned.map_err(|failure| (None, failure))?;
    if let Some(real) = real_name(app, &scanned.model) {
        scanned.model = real.to_owned();
    }
    let route = model(app, user, &scanned.model).await?;
    Ok((scanned, route))
}

/// The model's own name, for a name with Ollama's tag: Ollama's clients ask all routes for the names that its API lists.
pub(crate) fn real_name<'a>(app: &App, name: &'a str) -> Option<&'a str> {
    let bare = bare_name(name);
    let is_tagged = bare.len() < name.len() && app.config().compat.ollama;
    if !is_tagged || app.handle.route(name).is_some() {
        return None;
    }
    // A name of the hub has no tags.
    (app.handle.route(bare).is_some() || bare.contains('/')).then_some(bare)
}

/// The model of this name, if it is known and for this user.
pub(crate) fn known(app: &App, user: &User, name: &str) -> Result<Arc<Route>, Failure> {
    let name = real_name(app, name).unwrap_or(name);
    let route = app.handle.route(name);
    let route = route.ok_or_else(|| admission::unknown(app, user, name))?;
    admission::allowed(app, user, name, &route.entry)?;
    Ok(route)
}

/// The model of this name, if it is for this user; brought in if it may be.
pub(crate) async fn model(app: &App, user: &User, name: &str) -> Result<Arc<Route>, Failed> {
    let early = |failure: Failure| (None, failure);
    let name = real_name(app, name).unwrap_or(name);
    let route = match app.handle.route(name) {
        Some(route) => route,
        // Boxed, because it is rare, and large within each request's future.
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
            format!("the body did not arrive whole: {error}"),
        )),
    }
}
