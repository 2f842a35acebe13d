//! The routes for users: inference, the lists of models, files and batches.

use utoipa_axum::router::OpenApiRouter;

use crate::batches::batch_routes;
use crate::inference::routes::inference_routes;
use crate::state::App;

/// All routes for users. They exist below the base path; routes below `/v1` also at the root.
pub fn user_routes() -> OpenApiRouter<App> {
    inference_routes().merge(batch_routes())
}
