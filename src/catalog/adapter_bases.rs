//! Adapters that come in files of their own join their base models.

use config::Config;

use super::adapter_file::AdapterFile;
use super::models::Catalog;
use super::{CatalogError, Warning};

impl Catalog {
    /// The base model is read anew, with this adapter. Without a base among the files it is left out, with a
    /// warning: others are served all the same.
    pub(super) fn attach(
        &mut self,
        file: &AdapterFile,
        config: &Config,
    ) -> Result<Option<Warning>, CatalogError> {
        let Some(base) = self.get(&file.base).cloned() else {
            let near = self.closest(&file.base).join(", ");
            let near = match near.as_str() {
                "" => String::new(),
                near => format!("; the closest are: {near}"),
            };
            return Ok(Some(Warning {
                origin: file.origin.clone(),
                line: None,
                key: Some("base_model_id".to_owned()),
                message: format!(
                    "the adapter is left out: no file describes a model {}{near}",
                    file.base.escape_debug()
                ),
            }));
        };
        let with = base.with_adapter(&file.adapter, config, self.reference());
        let with = with.map_err(|error| match error {
            CatalogError::Field { field, problem, .. } => CatalogError::Field {
                origin: file.origin.clone(),
                line: None,
                field,
                problem,
            },
            other => other,
        })?;
        self.remove(&base.name);
        if let Err(error) = self.insert(with) {
            // What was there before fitted.
            self.insert(base)?;
            return Err(error);
        }
        Ok(None)
    }
}
