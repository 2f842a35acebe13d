//! Requests of old clients that carry the key in the body. The key is checked like a key in the header, and never shown.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};

use api_types::error::Failure;
use gateway::auth::Admin;
use gateway::fields::{Fields, Strict, read_body};
use gateway::state::App;

/// An administrator, authenticated by the body's `key` or a bearer, and the parsed request.
pub(super) struct Keyed<T> {
    pub admin: Admin,
    pub body: T,
}

impl<T: Strict> FromRequest<App> for Keyed<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Keyed<T>, Failure> {
        let (mut parts, body) = request.into_parts();
        let body = read_body(Request::new(body), app).await?;
        Keyed::read(&mut parts, &body, app).await
    }
}

impl<T: Strict> Keyed<T> {
    /// Checks the key before anything else in the body.
    pub async fn read(parts: &mut Parts, body: &Bytes, app: &App) -> Result<Keyed<T>, Failure> {
        let bytes = body.clone();
        let fields = move || {
            if bytes.trim_ascii().is_empty() {
                Fields::parse(b"{}")
            } else {
                Fields::parse(&bytes)
            }
        };
        let mut fields = app.reading.run(body.len(), fields).await?;
        let key = fields.text("key")?;
        if let Some(key) = key.filter(|_| !parts.headers.contains_key(header::AUTHORIZATION)) {
            // A text that is not a valid header value cannot be a key; it is refused as a wrong key.
            let bearer = HeaderValue::from_str(&format!("Bearer {key}"));
            let mut bearer = bearer.unwrap_or(HeaderValue::from_static("Bearer -"));
            bearer.set_sensitive(true);
            parts.headers.insert(header::AUTHORIZATION, bearer);
        }
        let admin = Admin::from_request_parts(parts, app).await?;
        let parsed = T::read(&mut fields)?;
        fields.finish()?;
        Ok(Keyed {
            admin,
            body: parsed,
        })
    }
}
