//! Effect of a request's `keep_alive`: any caller may shorten the time that their own request keeps the model loaded; only
//! administrators may exceed the model's keep-hot time.

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;

use controller::KeepHotOverride;
use dialect::ollama::KeepAlive;
use gateway::auth::Admin;
use gateway::auth::credential::bearer;
use gateway::state::App;
use pool::Span;

/// Longest keep-hot time that administrators may set.
const SPAN_MAX: Span = Span::from_secs(365 * 24 * 3600);

/// Callers with access to this route may change the keep-hot time with a request.
const ROUTE: &str = "/admin/models";

/// Returns the time that the request keeps the model loaded, and adds `keep_alive` to `ignored` if the requested time is not
/// granted.
pub(super) async fn allowed(
    app: &App,
    parts: &Parts,
    model: &str,
    wish: Option<KeepAlive>,
    ignored: &mut Vec<String>,
) -> Option<KeepHotOverride> {
    let span = match wish? {
        KeepAlive::Always => SPAN_MAX,
        KeepAlive::For(length) => {
            let milliseconds = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
            Span(milliseconds).min(SPAN_MAX)
        }
    };
    let may_extend = bearer(&parts.headers).is_some() && is_admin(app, parts).await;
    let entry = app.handle.route(model)?.entry.name.clone();
    let snapshot = app.handle.snapshot();
    let keep_hot = snapshot.model(&entry).map(|model| model.keep_hot);
    if !may_extend && keep_hot.is_some_and(|most| span > most) {
        ignored.push("keep_alive".to_owned());
    }
    Some(KeepHotOverride { span, may_extend })
}

async fn is_admin(app: &App, parts: &Parts) -> bool {
    let mut parts = parts.clone();
    parts.uri = Uri::from_static(ROUTE);
    Admin::from_request_parts(&mut parts, app).await.is_ok()
}
