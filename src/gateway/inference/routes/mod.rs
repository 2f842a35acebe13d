//! The routes for users, one file for each kind of request.

pub(crate) mod audio;
pub mod completions;
pub(crate) mod conversations;
pub mod embeddings;
mod flowing;
pub mod hot_models;
pub(crate) mod images;
pub mod listing;
pub(crate) mod llama;
pub mod messages;
mod model_objects;
pub(crate) mod responses;
pub(crate) mod stored_responses;
pub(crate) mod tokens;
pub mod unary_routes;

use axum::routing::{any, get};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::App;

/// The inference routes and the lists of models. All exist below the base path; routes below `/v1` also at the root.
pub fn inference_routes() -> OpenApiRouter<App> {
    let router = OpenApiRouter::new()
        .routes(routes!(completions::chat_completions))
        .routes(routes!(completions::completions))
        .routes(routes!(messages::create))
        .routes(routes!(responses::create))
        .routes(routes!(responses::input_tokens))
        .routes(routes!(responses::compact))
        .routes(routes!(stored_responses::get, stored_responses::delete))
        .routes(routes!(stored_responses::items))
        .routes(routes!(stored_responses::cancel))
        .routes(routes!(conversations::create))
        .routes(routes!(
            conversations::get,
            conversations::update,
            conversations::delete
        ))
        .routes(routes!(conversations::items, conversations::add_items))
        .routes(routes!(conversations::item, conversations::delete_item))
        .routes(routes!(messages::count_tokens))
        .routes(routes!(tokens::tokenize))
        .routes(routes!(tokens::detokenize))
        .routes(routes!(audio::transcriptions))
        .routes(routes!(audio::translations))
        .routes(routes!(audio::speech))
        .routes(routes!(llama::voices))
        .routes(routes!(images::generations))
        .routes(routes!(images::edits))
        .routes(routes!(images::variations))
        .routes(routes!(llama::infill))
        .routes(routes!(llama::completion))
        .routes(routes!(llama::props))
        .routes(routes!(embeddings::embeddings))
        .routes(routes!(unary_routes::rerank))
        .routes(routes!(unary_routes::score))
        .routes(routes!(listing::models))
        // `{*model}` accepts ids with slashes; the document has the plain `{model}`.
        .route("/v1/models/{*model}", get(listing::model))
        .route("/v1/{*rest}", any(listing::not_served));
    let mut router = router;
    router.get_openapi_mut().merge(OneModel::openapi());
    router
}

/// The wildcard route, which the router cannot describe on its own.
#[derive(OpenApi)]
#[openapi(paths(listing::model))]
struct OneModel;
