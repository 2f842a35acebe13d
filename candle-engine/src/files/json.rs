//! Reads the JSON files of a model.

use crate::error::EngineError;
use serde_json::Value;
use std::path::Path;

/// Reads a JSON file; returns `None` if it does not exist.
///
/// # Errors
/// If the file cannot be read or is not JSON.
pub(crate) fn read_json(file: &Path) -> Result<Option<Value>, EngineError> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(EngineError::model(
                file,
                error,
                "make the file readable for this user",
            ));
        }
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        EngineError::model(
            file,
            format!("it is not valid JSON ({error})"),
            "download it again or repair it",
        )
    })
}
