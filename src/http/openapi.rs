//! x
pub(super) fn document(api: utoipa::openapi::OpenApi, _base: &str) -> utoipa::openapi::OpenApi {
    api
}
