//! x
pub(super) fn routes() -> utoipa_axum::router::OpenApiRouter<super::state::App> {
    utoipa_axum::router::OpenApiRouter::new()
}
