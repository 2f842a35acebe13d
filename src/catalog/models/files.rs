//! Finds the model files of a folder and reads the models in each: one, or several in a Ray Serve file. Errors carry file, line and
//! key.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use config::positions::Positions;
use config::{Config, ParseError};
use reading::{Format, SkippedPaths, WrongValue};

use super::adapter_file;
use super::adapter_file::AdapterFile;
use super::broken_models::{UnusableItem, name_in, name_in_text};
use super::weight_descriptions::is_part_of_weights;
use crate::documents::every_error::{every_error, with_section};
use crate::documents::{CatalogError, Diagnostics, ModelDocument, Source, Warning};
use crate::entries::{Entry, Reference};
use crate::forms;
use crate::forms::document::typed;

/// A model's description takes a few kilobytes.
const BYTES_MAX: u64 = 1 << 20;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// A larger number in one file is a mistake.
const MODELS_MAX: usize = 1000;
/// Deeper nesting is a mistake or a cycle.
const DEPTH_MAX: usize = 8;

/// The content of a file or of a part of a file.
pub(crate) enum Item {
    Model(Box<Entry>),
    Adapter(AdapterFile),
}

/// The item, or `None` if the file asks to be skipped, or the error; and the warnings.
pub(crate) type ItemResult = (Result<Option<Item>, UnusableItem>, Vec<Warning>);

/// Lists the model files of a folder and its subfolders, sorted by name. A missing folder is only a warning, since models can also
/// be registered. Files and folders that cannot be used are skipped and added to `failed`.
pub(crate) fn find(
    folder: &Path,
    warnings: &mut Vec<Warning>,
    failed: &mut Vec<UnusableItem>,
) -> Result<Vec<PathBuf>, CatalogError> {
    let root = match folder.canonicalize() {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = "the folder does not exist, so there are no model files; set catalog.models_dir, or register models";
            warnings.push(Warning::of_file(folder.display(), message));
            return Ok(Vec::new());
        }
        Err(source) => return Err(unreadable(folder, source)),
    };
    let mut search = Search {
        root,
        files: Vec::new(),
        warnings,
        failed,
    };
    search.look_into(folder, DEPTH_MAX)?;
    let mut files = search.files;
    files.sort();
    Ok(files)
}

/// A search for model files and its results so far.
struct Search<'a> {
    root: PathBuf,
    files: Vec<PathBuf>,
    warnings: &'a mut Vec<Warning>,
    failed: &'a mut Vec<UnusableItem>,
}

impl Search<'_> {
    /// Fails if the folder itself cannot be read.
    fn look_into(&mut self, folder: &Path, depth_left: usize) -> Result<(), CatalogError> {
        let listing = std::fs::read_dir(folder).map_err(|source| unreadable(folder, source))?;
        for item in listing {
            let path = item.map_err(|source| unreadable(folder, source))?.path();
            if let Err(error) = self.look_at(&path, depth_left) {
                self.failed.push(UnusableItem::of_file(&path, None, error));
            }
        }
        Ok(())
    }

    fn look_at(&mut self, path: &Path, depth_left: usize) -> Result<(), CatalogError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // This also skips `..data`, which Kubernetes mounts contain.
        if name.starts_with('.') {
            return Ok(());
        }
        let is_folder = path.is_dir();
        let is_model = path
            .extension()
            .is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known));
        if !is_folder && !is_model {
            if name.contains(".yaml") || name.contains(".yml") {
                let message = "the file is skipped: its name does not end in .yaml, .yml or .json; rename it if it is a model";
                self.warnings
                    .push(Warning::of_file(path.display(), message));
            }
            return Ok(());
        }
        let real = path
            .canonicalize()
            .map_err(|source| unreadable(path, source))?;
        if !real.starts_with(&self.root) {
            return Err(of_file(
                path,
                format!(
                    "is a link to {}, outside of the models folder; copy it there, or set catalog.models_dir to that folder",
                    real.display()
                ),
            ));
        }
        if is_folder && depth_left == 0 {
            Err(of_file(
                path,
                format!("is nested more than {DEPTH_MAX} folders deep"),
            ))
        } else if is_folder {
            self.look_into(path, depth_left - 1)
        } else {
            self.files.push(path.to_owned());
            Ok(())
        }
    }
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

fn no_document(path: &Path, problem: &str) -> CatalogError {
    const LIKE: &str = "a model's file begins with `engine_config:`, and has model_id and type below it; docs/examples has files to copy";
    of_file(path, format!("{problem}; {LIKE}"))
}

/// Reads the models of one file. Fails if no part of the file can be used.
pub(crate) fn read(
    path: &Path,
    config: &Config,
    reference: &Reference,
) -> Result<Vec<ItemResult>, UnusableItem> {
    if is_part_of_weights(path, || text_of(path).unwrap_or_default()) {
        return Ok(Vec::new());
    }
    let text = text_of(path).map_err(|error| UnusableItem::of_file(path, None, error))?;
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        return Err(UnusableItem::of_file(
            path,
            None,
            no_document(path, "is empty"),
        ));
    }
    let origin = path.display().to_string();
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let parse = |wrong: WrongValue| CatalogError::Parse {
        origin: origin.clone(),
        path: wrong.path,
        flaw: wrong.error,
    };
    let format = if is_json {
        Format::Json
    } else {
        Format::YamlLastWins
    };
    let value: Result<Value, ParseError> = if is_json {
        reading::json(&text)
    } else {
        reading::yaml_last_wins(&text)
    };
    let no_path = |error| WrongValue {
        path: String::new(),
        error,
    };
    let value = value
        .map_err(|flaw| UnusableItem::of_file(path, name_in_text(&text), parse(no_path(flaw))))?;
    let instead = match &value {
        Value::Object(_) => None,
        Value::Array(_) => Some("holds a list"),
        _ => Some("holds a text"),
    };
    if let Some(instead) = instead {
        return Err(UnusableItem::of_file(
            path,
            None,
            no_document(path, instead),
        ));
    }
    let positions = Arc::new(Positions::parse(&text));
    let new_notes = || {
        let mut notes = Diagnostics::of_file(path, Arc::clone(&positions));
        notes.is_strict = config.catalog.strict;
        for twice in &positions.twice {
            notes.warn(
                &twice.path,
                format!(
                    "is given twice, in line {} and line {}; the last one wins",
                    twice.first_line, twice.last_line
                ),
            );
        }
        notes
    };
    let mut notes = new_notes();
    if let Some(key) = forms::key_of_an_attempt(&value) {
        let problem = format!("has the key `{key}` and no `engine_config`");
        return Err(UnusableItem::of_file(
            path,
            name_in(&value),
            no_document(path, &problem),
        ));
    }
    if forms::is_something_else(&value) {
        let message = "the file is skipped: it has no key of a model file, such as engine_config";
        return Ok(vec![(Ok(None), vec![Warning::of_file(origin, message)])]);
    }
    let source = || Source::File(path.to_owned());
    let model = |entry: Entry| Some(Item::Model(Box::new(entry)));
    let is_adapter = |value: &Value| value.get("base_model_id").is_some();
    if let Some(parts) = forms::parts(&value) {
        let read = |value: Value, notes: &mut Diagnostics| {
            if is_adapter(&value) {
                return Ok(adapter_file::read(&value, path, notes)?.map(Item::Adapter));
            }
            match typed(value, None, notes)? {
                Some(document) => {
                    Entry::from_read(document, source(), notes, config, reference).map(model)
                }
                None => {
                    notes.warn("enabled", "is false, so the model is skipped");
                    Ok(None)
                }
            }
        };
        if parts.is_empty() {
            let message = "the file contains no model: llm_configs and the args of the applications are empty";
            notes.warnings.push(Warning::of_file(&origin, message));
        }
        if parts.len() > MODELS_MAX {
            let problem = format!("holds {} models; allowed: {MODELS_MAX}", parts.len());
            return Err(UnusableItem::of_file(path, None, of_file(path, problem)));
        }
        forms::tell_of_the_rest(&value, &mut notes);
        notes
            .refuse_unknown()
            .map_err(|error| UnusableItem::of_file(path, None, error))?;
        return Ok(several(parts, path, &positions, notes, read));
    }
    let name = name_in(&value);
    let failed = |error| UnusableItem::of_file(path, name, error);
    if is_adapter(&value) {
        let adapter = adapter_file::read(&value, path, &mut notes);
        let item = adapter
            .map(|adapter| adapter.map(Item::Adapter))
            .map_err(failed);
        return Ok(vec![(item, notes.warnings)]);
    }
    // JSON readers refuse duplicate keys; the parsed value has the last one.
    let is_read_as_text = !is_json || positions.twice.is_empty();
    let read_without = |left_out: &SkippedPaths, notes: &mut Diagnostics| {
        let direct = || {
            reading::parse_skipping(&text, format, left_out)
                .map_err(|wrong| parse(with_section(&wrong)))
        };
        let as_text: &dyn Fn() -> Result<ModelDocument, CatalogError> = &direct;
        let as_text = Some(as_text).filter(|_| is_read_as_text);
        match typed(value.clone(), as_text, notes)? {
            Some(document) => {
                Entry::from_read(document, source(), notes, config, reference).map(model)
            }
            None => {
                notes.warn("enabled", "is false, so the model is skipped");
                Ok(None)
            }
        }
    };
    let entry = read_without(&SkippedPaths::default(), &mut notes)
        .map_err(|first| every_error(first, |left_out| read_without(left_out, &mut new_notes())));
    Ok(vec![(entry.map_err(failed), notes.warnings)])
}

fn text_of(path: &Path) -> Result<String, CatalogError> {
    let metadata = std::fs::metadata(path).map_err(|source| unreadable(path, source))?;
    if !metadata.is_file() {
        return Err(of_file(path, "is not an ordinary file".to_owned()));
    }
    let length = metadata.len();
    if length > BYTES_MAX {
        let problem = format!("is {length} bytes long; allowed: {BYTES_MAX}");
        return Err(of_file(path, problem));
    }
    let bytes = std::fs::read(path).map_err(|source| unreadable(path, source))?;
    reading::utf8(bytes).map_err(|flaw| CatalogError::Parse {
        origin: path.display().to_string(),
        path: String::new(),
        flaw,
    })
}

/// Each part of a file with several models, with its position in the file.
fn several(
    parts: Vec<(String, Value)>,
    path: &Path,
    positions: &Arc<Positions>,
    notes_of_file: Diagnostics,
    mut read: impl FnMut(Value, &mut Diagnostics) -> Result<Option<Item>, CatalogError>,
) -> Vec<ItemResult> {
    let is_strict = notes_of_file.is_strict;
    let mut all = vec![(Ok(None), notes_of_file.warnings)];
    for (place, value) in parts {
        let mut notes = Diagnostics::of_file(path, Arc::clone(positions));
        notes.is_strict = is_strict;
        let name = name_in(&value);
        let item = if value.is_string() {
            let message = "refers to another file; it is only read if it is in catalog.models_dir";
            notes.warn(&place, message);
            Ok(None)
        } else {
            notes.lies_below(&place);
            read(value, &mut notes)
        };
        let item = item.map_err(|error| UnusableItem {
            is_part: true,
            ..UnusableItem::of_file(path, name, error)
        });
        all.push((item, notes.warnings));
    }
    all
}
