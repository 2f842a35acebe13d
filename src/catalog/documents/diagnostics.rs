//! Warnings and the final error of one document, each with the key as written in the file and its line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::positions::Positions;

use super::error::{CatalogError, Warning};
use super::relative_paths;
use super::source::Source;

/// Collects warnings and creates errors for one document.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    origin: String,
    positions: Arc<Positions>,
    /// Maps a key of the current form to the key it was read from.
    moved: BTreeMap<String, String>,
    /// The document's position in the file, if it is only a part of the file.
    below: Option<String>,
    /// The base folder of relative paths; `None` means the working directory of model-pool.
    folder: Option<PathBuf>,
    /// Refuse keys that no release of an older form had, instead of warning.
    pub is_strict: bool,
    /// The first unknown key.
    unknown: Option<CatalogError>,
    pub warnings: Vec<Warning>,
}

impl Diagnostics {
    pub fn new(origin: impl Into<String>) -> Diagnostics {
        Diagnostics {
            origin: origin.into(),
            ..Diagnostics::default()
        }
    }

    /// Diagnostics for a file whose keys have line numbers.
    pub fn of_file(path: &Path, positions: Arc<Positions>) -> Diagnostics {
        Diagnostics {
            positions,
            ..Diagnostics::for_source(&Source::File(path.to_owned()))
        }
    }

    /// Diagnostics for a document without line numbers, such as a document from the API.
    pub fn for_source(source: &Source) -> Diagnostics {
        match source {
            Source::File(path) => Diagnostics {
                folder: path.parent().map(Path::to_owned),
                ..Diagnostics::new(path.display().to_string())
            },
            Source::Registered => Diagnostics::new("the model document"),
        }
    }

    /// Makes a path of the document absolute. A relative path is based on the file's folder; a path that exists only relative to
    /// the working directory of model-pool is accepted with a warning. `~` and variables are expanded.
    pub fn path(&mut self, field: &str, path: &str) -> Result<PathBuf, CatalogError> {
        let expanded =
            config::expanded_here(path).map_err(|error| self.refuse(field, error.to_string()))?;
        let expanded = expanded.to_string_lossy();
        let resolved =
            relative_paths::resolve(&expanded, self.folder.as_deref()).map_err(|error| {
                self.refuse(field, format!("`{path}` is not a usable path: {error}"))
            })?;
        if let Some(better) = resolved.write_instead {
            self.warn(
                field,
                format!(
                    "`{path}` is relative to the folder of this file, where it does not exist; {} is used instead, relative to the working directory of model-pool: write {better}",
                    resolved.path.display()
                ),
            );
        }
        Ok(resolved.path)
    }

    /// Returns true if `text` is a local folder or file, and not a model on the hub.
    pub fn is_local(&self, text: &str) -> bool {
        // Names on the hub never contain these characters.
        text.starts_with(['~', '$']) || relative_paths::is_local(text, self.folder.as_deref())
    }

    pub fn refuse(&self, field: &str, problem: impl Into<String>) -> CatalogError {
        let field = self.as_written(field);
        CatalogError::Field {
            origin: self.origin.clone(),
            line: self.positions.line(&field),
            field,
            problem: problem.into(),
        }
    }

    pub fn warn(&mut self, key: &str, message: impl Into<String>) {
        let key = self.as_written(key);
        self.warnings.push(Warning {
            origin: self.origin.clone(),
            line: self.positions.line(&key),
            key: Some(key),
            message: message.into(),
        });
    }

    /// Records a key of an older form that no release had: a warning, or an error where the configuration is strict.
    pub fn unknown_key<'a>(&mut self, key: &str, known: impl Iterator<Item = &'a str>) {
        let name = key.rsplit('.').next().unwrap_or(key);
        let hint = match reading::nearest(name, known) {
            Some(near) => format!("; did you mean `{near}`?"),
            None => String::new(),
        };
        if self.is_strict {
            let problem = format!(
                "does not exist in any release with this form, and catalog.strict is true{hint}"
            );
            let refusal = self.refuse(key, problem);
            self.unknown.get_or_insert(refusal);
        } else {
            self.warn(
                key,
                format!(
                    "has no effect: the key does not exist in any release with this form{hint}"
                ),
            )
        }
    }

    /// Returns an error if the document has unknown keys that must be refused.
    pub fn refuse_unknown(&mut self) -> Result<(), CatalogError> {
        match self.unknown.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns the checked value, or an error with the key, the value and the allowed range.
    pub fn check<T: Copy + fmt::Display, U>(
        &self,
        field: &str,
        value: T,
        check: impl FnOnce(T) -> Result<U, String>,
    ) -> Result<U, CatalogError> {
        check(value)
            .map_err(|allowed| self.refuse(field, format!("{value} is not allowed; {allowed}")))
    }

    /// Reports the key `new` as `old`, the name in the file.
    pub fn moved(&mut self, new: &str, old: &str) {
        let old = self.as_written(old);
        self.moved.insert(new.to_owned(), old);
    }

    /// Marks the document as a part of the file, at `path`.
    pub fn lies_below(&mut self, path: &str) {
        self.below = Some(path.to_owned());
    }

    /// The key as written in the file, including keys nested below a moved key.
    fn as_written(&self, key: &str) -> String {
        let mut above = key;
        loop {
            if let Some(old) = self.moved.get(above) {
                return format!("{old}{}", &key[above.len()..]);
            }
            match above.rfind(['.', '[']) {
                Some(end) => above = &above[..end],
                None => break,
            }
        }
        match &self.below {
            Some(below) if !key.starts_with(below.as_str()) => format!("{below}.{key}"),
            _ => key.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_key_is_reported_under_its_name_and_line_in_the_file() {
        let positions = Positions::parse("model_config:\n  generation:\n    stops: [a, 3]\n");
        let mut notes = Diagnostics::of_file(Path::new("m.yaml"), Arc::new(positions));
        notes.moved("engine_config.generation", "model_config.generation");
        notes.warn("engine_config.generation.stops[1]", "no");
        assert_eq!(
            notes.warnings[0].to_string(),
            "m.yaml: line 3: model_config.generation.stops[1]: no"
        );
        let error = notes.refuse("pool_config.priority", "is not allowed");
        assert_eq!(
            error.to_string(),
            "m.yaml: pool_config.priority: is not allowed"
        );
    }
}
