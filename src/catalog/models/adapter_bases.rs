//! Attaches adapters described in separate files to their base models.

use config::Config;

use super::adapter_file::AdapterFile;
use super::catalog::Catalog;
use crate::documents::{CatalogError, Source, Warning};

impl Catalog {
    /// Re-reads the base model with this adapter added. Without a base in the catalogue, the adapter is skipped and a warning
    /// returned; other models are unaffected.
    pub(super) fn attach(
        &mut self,
        file: &AdapterFile,
        config: &Config,
    ) -> Result<Option<Warning>, CatalogError> {
        // The document of a registered model belongs to the administrator.
        let base = self.get(&file.base);
        let base = base.filter(|base| base.source != Source::Registered);
        let Some(base) = base.cloned() else {
            let near = match self.closest(&file.base).as_slice() {
                [] => String::new(),
                [name] => format!("; the closest is {name}"),
                names => format!("; the closest are: {}", names.join(", ")),
            };
            return Ok(Some(Warning {
                origin: file.path.display().to_string(),
                line: None,
                key: Some("base_model_id".to_owned()),
                message: format!(
                    "the adapter is skipped: no file describes a model {}{near}",
                    file.base.escape_debug()
                ),
            }));
        };
        let with = base.with_adapter(&file.adapter, config, self.reference());
        let with = with.map_err(|error| match error {
            CatalogError::Field { field, problem, .. } => CatalogError::Field {
                origin: file.path.display().to_string(),
                line: None,
                field,
                problem,
            },
            other => other,
        })?;
        self.remove(&base.name);
        if let Err(error) = self.insert(with) {
            // Restoring the previous entry cannot conflict: it was in the catalogue before.
            self.insert(base)?;
            return Err(error);
        }
        Ok(None)
    }
}
