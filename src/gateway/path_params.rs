//! Path parameters. Values that cannot be read are refused in OpenAI's form, like any other wrong request.

use axum::extract::{self, FromRequestParts};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use api_types::error::Failure;

pub struct Path<T>(pub T);

impl<S, T> FromRequestParts<S> for Path<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Failure> {
        match extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(extract::Path(value)) => Ok(Path(value)),
            Err(rejection) => Err(Failure::invalid(
                None,
                format!(
                    "the path cannot be read: {rejection}; write it as UTF-8, in percent codes"
                ),
            )),
        }
    }
}
