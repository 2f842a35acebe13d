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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_of_python_without_a_form_in_json_are_read_as_null() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.json");
        assert_eq!(read_json(&file).expect("no error"), None);
        std::fs::write(&file, r#"{"time_step_limit": [0.0, Infinity]}"#).expect("is written");
        let read = read_json(&file).expect("reads");
        assert_eq!(read, Some(json!({"time_step_limit": [0.0, null]})));
        std::fs::write(&file, b"{\"a\": \"\xff\"}").expect("is written");
        let error = read_json(&file).expect_err("it is not UTF-8");
        assert!(error.to_string().contains("not valid JSON"), "{error}");
    }
}
