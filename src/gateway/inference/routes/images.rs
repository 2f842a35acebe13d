//! OpenAI's image routes, forwarded to engines that have them: `CommandEngine` and `RemoteEngine`, such as sd-server and vLLM-Omni.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Request, header};
use axum::response::Response;
use serde_json::value::RawValue;

use crate::auth::User;
use crate::deployments::Deployment;
use crate::inference::admission::RequestContext;
use crate::inference::in_flight::{InFlightRequest, JSON, engine_error, reach};
use crate::inference::request::engine_routes::check_has;
use crate::inference::request::failed::Failed;
use crate::inference::request::ignored::note;
use crate::inference::request::parts_form::PartsForm;
use crate::inference::request::receiving::{read, read_form};
use crate::inference::request::request_fields::names_a_file;
use crate::inference::request::sequences;
use crate::inference::routes::flowing::flowing;
use crate::inference::routes::unary_routes::{name_there, named, seated, taken};
use crate::inference::understood::{find, model};
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use api_types::error::Failure;
use api_types::schemas::images::{ImageEditRequest, ImageRequest, ImageVariationRequest, Images};
use catalog::{Ask, ExtraRoute};
use dialect::body::Fields;
use dialect::shape::may_be_a_tree;
use edge::record;

/// Create images
///
/// Needs a model whose engine makes images: a `CommandEngine` or a `RemoteEngine`. Other models get a 501. If the model is not
/// loaded, the pool loads it and the request waits. The engine's response is returned unchanged.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/images/generations", tag = "images", operation_id = "create_image",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = ImageRequest, example = json!({
        "model": "tiny-guide", "prompt": "A quiet lake", "size": "512x512", "response_format": "b64_json"
    })),
    responses(
        (status = 200, description = "The images", body = Images, example = json!({
            "created": 1764000000, "data": [{"b64_json": "iVBORw0KGgo="}]
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn generations(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(made(&app, &context, request));
    context.end(&app, work).await
}

/// Edit images
///
/// Needs a model whose engine makes images: a `CommandEngine` or a `RemoteEngine`. Other models get a 501. If the model is not
/// loaded, the pool loads it and the request waits. The engine's response is returned unchanged.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/images/edits", tag = "images", operation_id = "edit_image",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = ImageEditRequest, content_type = "multipart/form-data", example = json!({
        "model": "tiny-guide", "image": "(a picture)", "prompt": "Add a boat"
    })),
    responses(
        (status = 200, description = "The images", body = Images, example = json!({
            "created": 1764000000, "data": [{"b64_json": "iVBORw0KGgo="}]
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn edits(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(changed(&app, &context, request, ExtraRoute::ImageEdits));
    context.end(&app, work).await
}

/// Create image variations
///
/// Needs a model whose engine makes images: a `CommandEngine` or a `RemoteEngine`. Other models get a 501. If the model is not
/// loaded, the pool loads it and the request waits. The engine's response is returned unchanged.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/images/variations", tag = "images", operation_id = "vary_image",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = ImageVariationRequest, content_type = "multipart/form-data", example = json!({
        "model": "tiny-guide", "image": "(a picture)"
    })),
    responses(
        (status = 200, description = "The images", body = Images, example = json!({
            "created": 1764000000, "data": [{"b64_json": "iVBORw0KGgo="}]
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn variations(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(changed(
        &app,
        &context,
        request,
        ExtraRoute::ImageVariations
    ));
    context.end(&app, work).await
}

async fn made(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
) -> Result<Response, Failed> {
    let body = read(app, request.into_body()).await?;
    let (scanned, route) = find(app, context, body).await?;
    let name = route.entry.name.clone();
    let fail = |failure: Failure| (Some(name.clone()), failure);
    check_has(&route, ExtraRoute::Images).map_err(fail)?;
    let (bytes, share) = (scanned.body.len(), record::share());
    let (received, of_model) = (scanned.body, Arc::clone(&route));
    let most = app.config().server.sequences_max;
    let checked = move || {
        let fields = Fields::read(&received)?;
        let prompt = fields.get("prompt").map(RawValue::get);
        if !prompt.is_some_and(|text| text.starts_with('"') && text != "\"\"") {
            let message = "`prompt` must be a non-empty text";
            return Err(Failure::invalid("prompt".to_owned(), message));
        }
        sequences::check(&fields, ExtraRoute::Images.path(), most)?;
        for (name, value) in fields.all() {
            names_nothing(name, value)?;
        }
        taken(&of_model, Ask::Images, &received)
    };
    let (body, ignored) = app.reading.run(bytes, checked).await.map_err(fail)?;
    let body = share.charge(body);
    let served = seated(app, context, &route, bytes).await.map_err(fail)?;
    let there = name_there(&served, &route, &scanned.model);
    let body = named(app, body, there).await.map_err(fail)?;
    let response = pass(app, served, ExtraRoute::Images, (&JSON, body)).await;
    Ok(note(response.map_err(fail)?, &ignored))
}

async fn changed(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
    extra: ExtraRoute,
) -> Result<Response, Failed> {
    let (head, body) = request.into_parts();
    let body = read_form(app, body).await?;
    let kind = head.headers.get(header::CONTENT_TYPE).cloned();
    let (bytes, share) = (body.len(), record::share());
    let runtime = tokio::runtime::Handle::current();
    // Never waits, because the complete body is in memory.
    let form = move || runtime.block_on(PartsForm::read(kind.as_ref(), body));
    let form = app.reading.apart(bytes, form).await;
    let mut form = form.map_err(|failure| (None, failure))?;
    if let Some(Deployment(model)) = head.extensions.get() {
        form.model.clone_from(model);
    }
    form.keeps(|file| share.charge(file));
    let route = model(app, context, &form.model).await?;
    let name = route.entry.name.clone();
    let fail = |failure: Failure| (Some(name.clone()), failure);
    check_has(&route, extra).map_err(fail)?;
    let most = app.config().server.sequences_max;
    form.check(Ask::Images, &route.entry, most).map_err(fail)?;
    let served = seated(app, context, &route, 0).await.map_err(fail)?;
    let there = name_there(&served, &route, &form.model);
    let written = move || Ok(form.written(&there));
    let (kind, body) = app.reading.run(bytes, written).await.map_err(fail)?;
    let body = share.charge(body);
    pass(app, served, extra, (&kind, body)).await.map_err(fail)
}

async fn pass(
    app: &App,
    served: InFlightRequest,
    extra: ExtraRoute,
    body: (&HeaderValue, Bytes),
) -> Result<Response, Failure> {
    let (served, response) = reach(app, served, extra.engine_path(), body).await?;
    if !response.status().is_success() {
        served.responded(response.status().as_u16());
        return Ok(engine_error(response, &served).await);
    }
    Ok(flowing(served, response, None))
}

/// Refuses URLs, because the engine would fetch what a client names. The prompt may contain any text.
fn names_nothing(name: &str, value: &RawValue) -> Result<(), Failure> {
    if matches!(name, "prompt" | "negative_prompt" | "user" | "model") {
        return Ok(());
    }
    may_be_a_tree(value.get().as_bytes())?;
    let read: serde_json::Value = serde_json::from_str(value.get())
        .map_err(|error| Failure::invalid(name.to_owned(), error.to_string()))?;
    if !names_a_file(&read) {
        return Ok(());
    }
    let shown: String = name.chars().take(100).collect();
    let message = format!(
        "`{shown}` is a URL or a path, and the server fetches nothing for a request; send the data itself"
    );
    Err(Failure::invalid(shown, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_image_field_may_contain_a_url_or_a_path() {
        let check = |name: &str, text: &str| {
            names_nothing(name, &RawValue::from_string(text.to_owned()).unwrap())
        };
        for named in [
            r#""http://169.254.169.254/""#,
            r#""\u0068ttp://169.254.169.254/""#,
            r#"" https://example.org/a.png""#,
            r#"["data:image/png;base64,AA==", "http://example.org/"]"#,
            r#"{"url": "file:///etc/passwd"}"#,
            r#""/etc/passwd""#,
        ] {
            assert!(check("image", named).is_err(), "{named}");
            assert!(check("prompt", named).is_ok(), "{named}");
        }
        let jpeg = format!("\"/9j/4AAQ{}\"", "A".repeat(5000));
        for plain in ["\"512x512\"", "2", "null", jpeg.as_str()] {
            assert!(check("image", plain).is_ok(), "{plain}");
        }
    }
}
