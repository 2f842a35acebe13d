//! Parses a model's document, in any known form, into a typed document.

use serde_json::Value;

use crate::documents::{CatalogError, Diagnostics, ModelDocument};
use crate::forms;

/// Reads a document of any known form. Returns `None` if the document asks to be skipped. `direct` reads the current form from the
/// text itself, to report the column of an error.
pub(crate) fn typed(
    mut value: Value,
    direct: Option<&dyn Fn() -> Result<ModelDocument, CatalogError>>,
    notes: &mut Diagnostics,
) -> Result<Option<ModelDocument>, CatalogError> {
    if value.get("enabled") == Some(&Value::Bool(false)) {
        return Ok(None);
    }
    if !value.is_object() {
        let problem = "is not an object of keys; it needs `engine_config`, with model_id and type";
        return Err(notes.refuse("the document", problem));
    }
    let is_translated = forms::translate(&mut value, notes)?;
    if let Some(direct) = direct.filter(|_| !is_translated) {
        return direct().map(Some);
    }
    reading::value_at(value)
        .map(Some)
        .map_err(|(path, problem)| match path.as_str() {
            "." => notes.refuse("the document", problem),
            path => notes.refuse(path, problem),
        })
}
