//! Reads the JSON files of a model.

use crate::error::EngineError;
use model_files::without_bare_words;
use serde_json::Value;
use std::path::Path;

/// Reads a JSON file; returns `None` if it does not exist. Python's `Infinity` and `NaN` are read as null.
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
    let read = match std::str::from_utf8(&bytes) {
        Ok(text) => serde_json::from_str(&without_bare_words(text)),
        Err(_) => serde_json::from_slice(&bytes),
    };
    read.map(Some).map_err(|error| {
        EngineError::model(
            file,
            format!("it is not valid JSON ({error})"),
            "download it again or repair it",
        )
    })
}
