//! Finds the model files of a folder and reads each into the models it holds: one, or several in a file of
//! Ray Serve. What is wrong is told with file, line and key; nothing is decided of a model here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use config::positions::Positions;
use config::{Config, ParseError};

use super::adapter_file::{self, AdapterFile};
use super::diagnostics::Diagnostics;
use super::document::typed;
use super::entry::Entry;
use super::entry_source::Source;
use super::model_file::ModelDocument;
use super::reference::Reference;
use super::{CatalogError, Warning, forms};

/// A model's description is some kilobytes.
const BYTES_MAX: u64 = 1 << 20;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// More in one file are a mistake.
const MODELS_MAX: usize = 1000;
/// Deeper folders are a mistake, or a circle.
const DEPTH_MAX: usize = 8;

/// What a file, or a part of one, describes.
pub(super) enum Item {
    Model(Box<Entry>),
    Adapter(AdapterFile),
}

/// An item, none where it says that it is left out, or why it is none; and what is said of it.
pub(super) type Read = (Result<Option<Item>, CatalogError>, Vec<Warning>);

/// The model files of a folder and of those below it, by name. A missing folder is a warning: models can
/// be registered.
pub(super) fn find(
    folder: &Path,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<PathBuf>, CatalogError> {
    let root = match folder.canonicalize() {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = "there is no such folder, so no model comes from a file; set catalog.models_dir, or register models";
            warnings.push(Warning::of_file(folder.display(), message));
            return Ok(Vec::new());
        }
        Err(source) => return Err(unreadable(folder, source)),
    };
    let mut files = Vec::new();
    look_into(folder, &root, DEPTH_MAX, &mut files, warnings)?;
    files.sort();
    Ok(files)
}

fn look_into(
    folder: &Path,
    root: &Path,
    depth_left: usize,
    files: &mut Vec<PathBuf>,
    warnings: &mut Vec<Warning>,
) -> Result<(), CatalogError> {
    let listing = std::fs::read_dir(folder).map_err(|source| unreadable(folder, source))?;
    for item in listing {
        let path = item.map_err(|source| unreadable(folder, source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Also what mounts of Kubernetes keep beside the files: `..data`.
        if name.starts_with('.') {
            continue;
        }
        let is_folder = path.is_dir();
        let is_model = path
            .extension()
            .is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known));
        if !is_folder && !is_model {
            if name.contains(".yaml") || name.contains(".yml") {
                let message = "the file is left out: its name does not end in .yaml, .yml or .json; rename it if it is a model";
                warnings.push(Warning::of_file(path.display(), message));
            }
            continue;
        }
        let real = path
            .canonicalize()
            .map_err(|source| unreadable(&path, source))?;
        if !real.starts_with(root) {
            return Err(of_file(
                &path,
                format!(
                    "is a link to {}, outside of the folder of models; copy it there, or set catalog.models_dir to that folder",
                    real.display()
                ),
            ));
        }
        match is_folder {
            true if depth_left == 0 => {
                return Err(of_file(
                    &path,
                    format!("lies more than {DEPTH_MAX} folders deep"),
                ));
            }
            true => look_into(&path, root, depth_left - 1, files, warnings)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn unreadable(path: &Path, source: io::Error) -> CatalogError {
    CatalogError::Read {
        path: path.to_owned(),
        source,
    }
}

fn of_file(path: &Path, problem: String) -> CatalogError {
    CatalogError::Field {
        origin: path.display().to_string(),
        line: None,
        field: "the file".to_owned(),
        problem,
    }
}

/// The models of one file. Errors when the file as a whole cannot be read.
pub(super) fn read(
    path: &Path,
    config: &Config,
    reference: &Reference,
) -> Result<Vec<Read>, CatalogError> {
    let length = std::fs::metadata(path)
        .map_err(|source| unreadable(path, source))?
        .len();
    if length > BYTES_MAX {
        let problem = format!("is {length} bytes long; allowed: {BYTES_MAX}");
        return Err(of_file(path, problem));
    }
    let text = std::fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
    let origin = path.display().to_string();
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let parse = |flaw: ParseError| CatalogError::Parse {
        origin: origin.clone(),
        flaw,
    };
    let value: Value = match is_json {
        true => reading::json(&text),
        false => reading::yaml_last_wins(&text),
    }
    .map_err(parse)?;
    let positions = Arc::new(Positions::of(&text));
    let mut notes = Diagnostics::of_text(&origin, Arc::clone(&positions));
    for twice in &positions.twice {
        notes.warn(
            &twice.path,
            format!(
                "is given twice, in line {} and line {}; the last one counts",
                twice.first_line, twice.last_line
            ),
        );
    }
    if forms::is_something_else(&value) {
        let message =
            "the file is left out: it has no key of a model's file, such as engine_config";
        return Ok(vec![(Ok(None), vec![Warning::of_file(origin, message)])]);
    }
    let source = || Source::File(path.to_owned());
    let model = |entry: Entry| Some(Item::Model(Box::new(entry)));
    let is_adapter = |value: &Value| value.get("base_model_id").is_some();
    if let Some(parts) = forms::parts(&value) {
        let read = |value: Value, notes: &mut Diagnostics| {
            if is_adapter(&value) {
                return Ok(adapter_file::read(&value, &origin, notes)?.map(Item::Adapter));
            }
            match typed(value, None, notes)? {
                Some(document) => {
                    Entry::from_read(document, source(), notes, config, reference).map(model)
                }
                None => {
                    notes.warn("enabled", "is false, so the model is left out");
                    Ok(None)
                }
            }
        };
        if parts.is_empty() {
            let message = "the file holds no model: there is nothing in llm_configs, or in the args of an application";
            notes.warnings.push(Warning::of_file(&origin, message));
        }
        if parts.len() > MODELS_MAX {
            let problem = format!("holds {} models; allowed: {MODELS_MAX}", parts.len());
            return Err(of_file(path, problem));
        }
        return Ok(several(parts, &origin, &positions, notes, read));
    }
    if is_adapter(&value) {
        let adapter = adapter_file::read(&value, &origin, &mut notes);
        return Ok(vec![(
            adapter.map(|it| it.map(Item::Adapter)),
            notes.warnings,
        )]);
    }
    let direct = || match is_json {
        true => reading::json(&text),
        false => reading::yaml_last_wins(&text),
    };
    let direct = || direct().map_err(parse);
    // Readers of JSON refuse a key given twice; the value that was read has the last one.
    let as_text: &dyn Fn() -> Result<ModelDocument, CatalogError> = &direct;
    let as_text = Some(as_text).filter(|_| !is_json || positions.twice.is_empty());
    let document = typed(value, as_text, &mut notes);
    let entry = document.and_then(|document| match document {
        Some(document) => {
            Entry::from_read(document, source(), &mut notes, config, reference).map(model)
        }
        None => {
            notes.warn("enabled", "is false, so the model is left out");
            Ok(None)
        }
    });
    Ok(vec![(entry, notes.warnings)])
}

/// Each part of a file with several models, with its own place in it.
fn several(
    parts: Vec<(String, Value)>,
    origin: &str,
    positions: &Arc<Positions>,
    whole: Diagnostics,
    mut read: impl FnMut(Value, &mut Diagnostics) -> Result<Option<Item>, CatalogError>,
) -> Vec<Read> {
    let mut all = vec![(Ok(None), whole.warnings)];
    for (path, value) in parts {
        let mut notes = Diagnostics::of_text(origin, Arc::clone(positions));
        let entry = if value.is_string() {
            let message = "names another file; it is read when it lies in catalog.models_dir";
            notes.warn(&path, message);
            Ok(None)
        } else {
            notes.lies_below(&path);
            read(value, &mut notes)
        };
        all.push((entry, notes.warnings));
    }
    all
}
