//! Requests whose URL names the model, as Azure's do: the name is written into the body before the route reads it.

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::{HeaderMap, Request, header};
use futures_util::{StreamExt, stream};

use crate::auth::User;
use crate::inference::request::outgoing::renamed;
use crate::inference::request::parts_form::write_part;
use crate::inference::request::receiving::read;
use crate::inference::request::request_fields::Fate;
use crate::state::App;
use api_types::error::Failure;
use dialect::body::Scanned;
use edge::record;

/// The model named in a request's URL. It takes precedence over the model of a form.
#[derive(Clone, Debug)]
pub(crate) struct Deployment(pub String);

/// Writes the model into the request's body. Callers who may not use the route are refused before their body is read.
pub async fn named(
    app: &App,
    request: Request<Body>,
    model: String,
) -> Result<Request<Body>, Failure> {
    let (mut parts, body) = request.into_parts();
    User::from_request_parts(&mut parts, app).await?;
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = match boundary(&parts.headers) {
        Some(boundary) => {
            let mut part = Vec::new();
            write_part(&mut part, &boundary, "model", None, model.as_bytes());
            let first = stream::iter([Ok::<_, axum::Error>(Bytes::from(part))]);
            Body::from_stream(first.chain(body.into_data_stream()))
        }
        None => {
            let body = read(app, body).await.map_err(|(_, failure)| failure)?;
            let (bytes, share, name) = (body.len(), record::share(), model.clone());
            let rename = move || {
                Scanned::fields(&body)?;
                renamed(&body, &name, |_, _| Ok(Fate::Goes))
            };
            Body::from(share.charge(app.reading.run(bytes, rename).await?))
        }
    };
    parts.extensions.insert(Deployment(model));
    Ok(Request::from_parts(parts, body))
}

/// The boundary of a multipart form.
fn boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let (essence, parameters) = kind.split_once(';')?;
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_boundary = name.trim().eq_ignore_ascii_case("boundary");
        is_boundary.then(|| value.trim().trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_multipart_forms_have_a_boundary() {
        for (kind, expected) in [
            ("multipart/form-data; boundary=x", Some("x")),
            (
                "Multipart/Form-Data; charset=utf-8; Boundary=\"a b\"",
                Some("a b"),
            ),
            ("application/json; boundary=x", None),
            ("multipart/form-data", None),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(boundary(&headers).as_deref(), expected, "{kind}");
        }
    }
}
