//! RayLLM's files that describe a LoRA adapter of another model, and how an adapter joins its base model.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::documents::fields::fields_of;
use crate::documents::{CatalogError, Diagnostics, LoraAdapter};

/// A file that describes an adapter of another model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdapterFile {
    pub path: PathBuf,
    pub base: String,
    pub adapter: LoraAdapter,
}

/// Field names as RayLLM defined them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    base_model_id: String,
    model_id: String,
    #[serde(default)]
    lora_mirror_config: Option<Mirror>,
    /// A local folder.
    #[serde(default)]
    lora_path: Option<String>,
    #[serde(default)]
    generation: Option<Value>,
    #[serde(default)]
    enabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mirror {
    bucket_uri: String,
}

/// Keys that no release had. The form is old, so they only warn unless the configuration is strict.
fn take_unknown(value: &mut Value, notes: &mut Diagnostics) -> Result<(), CatalogError> {
    let mirror = "lora_mirror_config";
    for (section, known) in [("", fields_of::<Form>()), (mirror, fields_of::<Mirror>())] {
        let keys = match section {
            "" => value.as_object_mut(),
            section => value.get_mut(section).and_then(Value::as_object_mut),
        };
        let Some(keys) = keys else { continue };
        let unknown = keys.keys().filter(|key| !known.contains(&key.as_str()));
        for key in unknown.cloned().collect::<Vec<_>>() {
            keys.shift_remove(&key);
            let path = match section {
                "" => key,
                section => format!("{section}.{key}"),
            };
            notes.unknown_key(&path, known.iter().copied());
        }
    }
    notes.refuse_unknown()
}

pub(crate) fn read(
    value: &Value,
    path: &Path,
    notes: &mut Diagnostics,
) -> Result<Option<AdapterFile>, CatalogError> {
    let mut value = value.clone();
    take_unknown(&mut value, notes)?;
    let form: Form = reading::value_at(value).map_err(|(path, problem)| match path.as_str() {
        "." => notes.refuse("the document", problem),
        key => notes.refuse(key, problem),
    })?;
    if form.enabled == Some(false) {
        notes.warn("enabled", "is false, so the adapter is skipped");
        return Ok(None);
    }
    // The path is relative to this file, and the base model's file may be in another folder.
    let lora_path = form
        .lora_path
        .map(|folder| notes.path("lora_path", &folder))
        .transpose()?
        .map(|folder| folder.display().to_string());
    Ok(Some(AdapterFile {
        path: path.to_owned(),
        base: form.base_model_id,
        adapter: LoraAdapter {
            name: form.model_id,
            path: lora_path,
            bucket_uri: form.lora_mirror_config.map(|mirror| mirror.bucket_uri),
            generation: form.generation,
        },
    }))
}
