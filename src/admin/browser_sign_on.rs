//! Single sign-on from the dashboard: the browser is redirected to the issuer and returns with a code that becomes a session. On
//! any error, the browser is redirected to the dashboard, which shows the reason. Only fixed words are put into the URL, so a
//! crafted link cannot place text on the page.

use axum::Json;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::session::role_of;
use access::oidc::{ATTEMPT_MAX, Oidc, OidcError, SignOnError};
use api_types::dto::SignInWays;
use api_types::error::Failure;
use config::oidc::SIGNED_ON;
use edge::forwarded_prefix;
use gateway::auth::credential::place;
use gateway::auth::credential::{Cookie, set_cookie_of};
use gateway::auth::cross_site::authority;
use gateway::credentials::sessions::Holder;
use gateway::openapi::AdminErrors;
use gateway::state::App;

/// The dashboard, relative to both routes.
const DASHBOARD: &str = "../dashboard";
/// Cookie of a sign-in in progress. Some characters of its state are appended, which allows sign-ins in several tabs.
const COOKIE: &str = "model-pool-sign-on-";
const STATE_IN_NAME: usize = 8;

/// Show the sign-in methods
///
/// Returns whether browsers may sign in at the issuer of the single sign-on, in addition to using keys.
///
/// Everybody may call this.
#[utoipa::path(get, path = "/session/ways", tag = "session", operation_id = "show_sign_in_ways", responses(
    (status = 200, description = "How to sign in", body = SignInWays, example = json!({"sign_on": "login.example.org"}))))]
pub(crate) async fn ways(State(app): State<App>) -> Response {
    let browsers = app.oidc.as_deref().and_then(Oidc::browsers);
    let sign_on = browsers.map(|(host, _)| host);
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    (no_store, Json(SignInWays { sign_on })).into_response()
}

/// Sign in at the issuer
///
/// For browsers only: redirects the browser to the issuer of `auth.oidc`, which sends it back to `/session/signed-on`. If the
/// issuer cannot be reached, the browser is redirected to the dashboard, which says so.
///
/// Everybody may call this.
#[utoipa::path(get, path = "/session/sign-on", tag = "session", operation_id = "begin_sign_on", responses(
    (status = 303, description = "To the issuer, or to the dashboard with the reason why not"),
    (status = 404, description = "Browsers cannot sign in at an issuer here (`auth.oidc.browser`)", body = api_types::error::ErrorBody,
        example = json!({"error": {"message": "single sign-on from a browser is not configured here; an administrator can set auth.oidc.browser", "type": "invalid_request_error", "param": null, "code": "not_found"}}))))]
pub(crate) async fn begin(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, _) = request.into_parts();
    let oidc = issuer_of(&app)?;
    let redirect = redirect_uri(oidc, &parts, &app);
    let begun = match oidc.begin(&redirect).await {
        Ok(begun) => begun,
        Err(error) => return Ok(failed(&error)),
    };
    let cookie = Cookie {
        name: &cookie_name(&begun.state),
        value: &begun.cookie,
        // The issuer's page redirects the browser back, for which a strict cookie would not be sent.
        same_site: "Lax",
        seconds: ATTEMPT_MAX.0 / 1000,
    };
    let line = set_cookie_of(&cookie, is_secure(&redirect), path_of(&redirect), &app);
    Ok(see(begun.address.as_str(), line))
}

/// The issuer's response parameters; there may be others.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SignedOn {
    /// The state sent to the issuer.
    state: Option<String>,
    /// Can be exchanged for tokens once.
    code: Option<String>,
    /// The error, sent in place of a code.
    error: Option<String>,
    /// The issuer (RFC 9207).
    iss: Option<String>,
}

/// Complete the sign-in at the issuer
///
/// For browsers only: exchanges the issuer's code for a session, whose cookie is in `Set-Cookie`, and redirects the browser to the
/// dashboard. The lifetime of the session is set by `auth.oidc.browser.session`.
///
/// Everybody may call this, with the cookie of `/session/sign-on`.
#[utoipa::path(get, path = "/session/signed-on", tag = "session", operation_id = "end_sign_on", params(SignedOn), responses(
    (status = 303, description = "To the dashboard, signed in or with the reason why not"), AdminErrors))]
pub(crate) async fn end(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (parts, _) = request.into_parts();
    let oidc = issuer_of(&app)?;
    let query = Query::<SignedOn>::try_from_uri(&parts.uri);
    let (Ok(Query(query)), true) = (query, is_navigation(&parts.headers)) else {
        return Ok(failed(&SignOnError::Unknown));
    };
    let redirect = redirect_uri(oidc, &parts, &app);
    let place = place();
    let now = app.handle.clock().now();
    if app.wrong_sign_ons.over_for(&place, now).is_some() {
        return Ok(to_dashboard("too_many", []));
    }
    let state = query.state.as_deref().unwrap_or_default();
    let name = cookie_name(state);
    let forget = set_cookie_of(
        &Cookie {
            name: &name,
            value: "",
            same_site: "Lax",
            seconds: 0,
        },
        is_secure(&redirect),
        path_of(&redirect),
        &app,
    );
    if let Some(error) = &query.error {
        let error: String = error
            .chars()
            .filter(|letter| !letter.is_control())
            .take(100)
            .collect();
        tracing::info!(error, "the issuer did not sign a person in");
        return Ok(to_dashboard("denied", forget));
    }
    let cookie = cookie_of(&parts.headers, &name).unwrap_or_default();
    let code = query.code.as_deref().unwrap_or_default();
    let is_other = query
        .iss
        .as_deref()
        .is_some_and(|issuer| issuer != oidc.issuer());
    let completed = if is_other {
        Err(SignOnError::Token(OidcError::Issuer))
    } else {
        oidc.complete(state, code, cookie, &redirect).await
    };
    let identity = match completed {
        Ok(identity) => identity,
        Err(error) => {
            // Any page can send a browser here, so only the issuer's response to a sign-in begun by this browser counts as a
            // failure.
            if !is_other && matches!(word(&error), "refused" | "no_group") {
                tokio::time::sleep(app.wrong_sign_ons.count(&place, now).wait).await;
            }
            let mut response = failed(&error);
            response
                .headers_mut()
                .extend(forget.map(|line| (header::SET_COOKIE, line)));
            return Ok(response);
        }
    };
    let role = role_of(&identity).1.name();
    tracing::info!(
        name = identity.name,
        role,
        "session opened by single sign-on"
    );
    let now = app.handle.clock().wall();
    let opened = app.sessions.open(Holder::Person(identity), now);
    let (open, secret) = opened.map_err(|fault| Failure::internal(fault.to_string()))?;
    let seconds = open.expires.since(now).0.div_ceil(1000);
    let line = set_cookie_of(
        &Cookie::of_session(secret.reveal(), seconds),
        is_secure(&redirect),
        path_of(&redirect),
        &app,
    );
    Ok(see(DASHBOARD, forget.into_iter().chain(line)))
}

fn issuer_of(app: &App) -> Result<&Oidc, Failure> {
    let oidc = app.oidc.as_deref().filter(|oidc| oidc.browsers().is_some());
    oidc.ok_or_else(|| {
        Failure::not_found(
            "single sign-on from a browser is not configured here; an administrator can set auth.oidc.browser",
        )
    })
}

/// The URL to which the issuer redirects the browser. The issuer accepts only registered URLs, so a forged host name in the request
/// cannot leak a code.
fn redirect_uri(oidc: &Oidc, parts: &Parts, app: &App) -> String {
    if let Some((_, Some(address))) = oidc.browsers() {
        return address.to_owned();
    }
    let scheme = if app.edge.has_tls() { "https" } else { "http" };
    let host = authority(parts).unwrap_or("localhost");
    let prefix = forwarded_prefix(parts);
    format!("{scheme}://{host}{prefix}{}{SIGNED_ON}", app.base())
}

/// The base path as browsers see it, possibly with a proxy's prefix.
fn path_of(redirect: &str) -> Option<&str> {
    let (_, rest) = redirect.split_once("://")?;
    let path = &rest[rest.find('/')?..];
    let base = path.strip_suffix(SIGNED_ON)?;
    Some(if base.is_empty() { "/" } else { base })
}

fn is_secure(redirect: &str) -> bool {
    redirect.starts_with("https://")
}

fn cookie_name(state: &str) -> String {
    let letters = state.chars().take(STATE_IN_NAME);
    let letters = letters.filter(|letter| letter.is_ascii_alphanumeric() || "-_".contains(*letter));
    format!("{COOKIE}{}", letters.collect::<String>())
}

fn cookie_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    gateway::auth::credential::cookie(headers, name)
}

/// Returns true for navigations, which is how the issuer sends the browser back; images, frames and scripts of other pages are
/// excluded.
fn is_navigation(headers: &HeaderMap) -> bool {
    let mode = headers.get("sec-fetch-mode");
    let target = headers.get("sec-fetch-dest");
    mode.is_none_or(|mode| mode == "navigate") && target.is_none_or(|target| target == "document")
}

/// The reason as a single word, for the page.
fn word(error: &SignOnError) -> &'static str {
    match error {
        SignOnError::Unknown => "unknown",
        SignOnError::Token(OidcError::NoGroup { .. }) => "no_group",
        SignOnError::Unavailable { .. }
        | SignOnError::Issuer(_)
        | SignOnError::Token(OidcError::Unavailable { .. }) => "unavailable",
        _ => "refused",
    }
}

/// Redirects to the dashboard with the reason. The log has the details.
fn failed(error: &SignOnError) -> Response {
    let word = word(error);
    tracing::info!(%error, word, "a sign-in from a browser failed");
    to_dashboard(word, [])
}

fn to_dashboard(word: &str, cookies: impl IntoIterator<Item = HeaderValue>) -> Response {
    see(&format!("{DASHBOARD}#/sign-on?failed={word}"), cookies)
}

fn see(address: &str, cookies: impl IntoIterator<Item = HeaderValue>) -> Response {
    let mut headers = HeaderMap::new();
    let address = HeaderValue::from_str(address);
    headers.insert(
        header::LOCATION,
        address.unwrap_or(HeaderValue::from_static(DASHBOARD)),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The URL contains the state and the code.
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    headers.extend(cookies.into_iter().map(|line| (header::SET_COOKIE, line)));
    (StatusCode::SEE_OTHER, headers).into_response()
}
