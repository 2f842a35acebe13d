//! The LoRA adapters of an engine: which are loaded, their names, and their users. Adapters are loaded with the model, or at run
//! time with `POST /v1/load_lora_adapter` up to a maximum number.
//!
//! An adapter in use is not unloaded: requests hold it while they are in the schedule.

use crate::adapter::Adapter;
use crate::api_error::ApiError;
use crate::batch::Batch;
use crate::error::{EngineError, one_line};
use crate::fields::Fields;
use crate::model::{AdapterTensors, LowRank};
use crate::options::AdapterOptions;
use crate::step::AdapterNumber;
use crate::stored_tensor::{Encoding, StoredTensor};
use axum::http::StatusCode;
use model_files::adapter::AdapterFiles;
use model_files::open_regular;
use model_files::safetensors::TensorEntry;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state of a named adapter.
#[derive(Debug)]
enum AdapterState {
    /// Its files are being read, or the network is loading it.
    Coming,
    Loaded {
        adapter: Arc<Adapter>,
        /// It was loaded with the model and cannot be unloaded.
        stays: bool,
    },
}

#[derive(Debug, Default)]
struct Table {
    places: BTreeMap<String, AdapterState>,
    last_number: AdapterNumber,
}

/// The adapters of an engine.
#[derive(Debug, Default)]
pub(crate) struct Adapters {
    table: Mutex<Table>,
    most: usize,
    rank_max: u32,
}

impl Adapters {
    pub fn new(options: &AdapterOptions) -> Self {
        Self {
            table: Mutex::default(),
            most: options.at_start.len() + options.at_run_time,
            rank_max: options.rank_max,
        }
    }

    /// Loads the adapters in `options`. Blocks.
    ///
    /// # Errors
    /// The first adapter that cannot be loaded, with the reason.
    pub fn start(&self, options: &AdapterOptions, batch: &Batch) -> Result<(), EngineError> {
        for (name, folder) in &options.at_start {
            let failed = |error: ApiError| EngineError::load(error.message);
            let number = self.begin(name).map_err(failed)?;
            let put = read(folder, self.rank_max)
                .and_then(|tensors| batch.adapter(number, Some(tensors)))
                .map_err(|problem| refused(name, &problem));
            self.finish(name, number, put, true).map_err(failed)?;
        }
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<Arc<Adapter>> {
        match self.table().places.get(name) {
            Some(AdapterState::Loaded { adapter, .. }) => Some(Arc::clone(adapter)),
            _ => None,
        }
    }

    /// The names of the loaded adapters.
    pub fn names(&self) -> Vec<String> {
        let table = self.table();
        let loaded = table
            .places
            .iter()
            .filter(|(_, place)| matches!(place, AdapterState::Loaded { .. }));
        loaded.map(|(name, _)| name.clone()).collect()
    }

    /// Handles `POST /v1/load_lora_adapter` as in vLLM. Blocks.
    ///
    /// # Errors
    /// If a field is missing; see also [`Self::load`].
    pub fn load_from_request(&self, batch: &Batch, body: &[u8]) -> Result<String, ApiError> {
        let mut fields = Fields::parse(body)?;
        let name = text(&mut fields, "lora_name")?;
        let folder = text(&mut fields, "lora_path")?;
        self.load(&name, Path::new(&folder), batch)?;
        Ok(format!("the adapter `{name}` was loaded"))
    }

    /// Handles `POST /v1/unload_lora_adapter`. Blocks.
    ///
    /// # Errors
    /// If a field is missing; see also [`Self::unload`].
    pub fn unload_from_request(&self, batch: &Batch, body: &[u8]) -> Result<String, ApiError> {
        let name = text(&mut Fields::parse(body)?, "lora_name")?;
        self.unload(&name, batch)?;
        Ok(format!("the adapter `{name}` was unloaded"))
    }

    /// Loads an adapter while the engine runs. Blocks.
    ///
    /// # Errors
    /// 400 if it is loaded already or its files do not fit, 409 if the maximum number is loaded.
    fn load(&self, name: &str, folder: &Path, batch: &Batch) -> Result<(), ApiError> {
        let number = self.begin(name)?;
        let put = read(folder, self.rank_max)
            .and_then(|tensors| batch.adapter(number, Some(tensors)))
            .map_err(|problem| refused(name, &problem));
        self.finish(name, number, put, false)
    }

    /// Unloads an adapter. Blocks.
    ///
    /// # Errors
    /// 404 if it is not loaded, 409 if a request uses it or it was loaded with the model.
    fn unload(&self, name: &str, batch: &Batch) -> Result<(), ApiError> {
        let number = {
            let mut table = self.table();
            let problem = match table.places.get(name) {
                None | Some(AdapterState::Coming) => {
                    let message = format!("the adapter `{name}` is not loaded");
                    return Err(ApiError::with_status(
                        StatusCode::NOT_FOUND,
                        "adapter_not_found",
                        message,
                    ));
                }
                Some(AdapterState::Loaded { stays: true, .. }) => {
                    Some("was loaded with the model and cannot be unloaded")
                }
                // Requests take references only under this lock.
                Some(AdapterState::Loaded { adapter, .. }) if Arc::strong_count(adapter) > 1 => {
                    Some("is in use; try again when its requests have ended")
                }
                Some(AdapterState::Loaded { .. }) => None,
            };
            if let Some(problem) = problem {
                return Err(conflict(format!("the adapter `{name}` {problem}")));
            }
            let Some(AdapterState::Loaded { adapter, .. }) = table.places.remove(name) else {
                return Err(ApiError::internal("the adapter was unloaded concurrently"));
            };
            adapter.number
        };
        let dropped = batch.adapter(number, None);
        dropped.map_err(ApiError::internal)
    }

    fn begin(&self, name: &str) -> Result<AdapterNumber, ApiError> {
        let mut table = self.table();
        if table.places.contains_key(name) {
            return Err(ApiError::field(
                "lora_name",
                format!("the adapter `{name}` has already been loaded; unload it first"),
            ));
        }
        if table.places.len() >= self.most {
            return Err(conflict(format!(
                "{} adapters are loaded, and this engine has room for {}; unload one first",
                table.places.len(),
                self.most
            )));
        }
        table.last_number += 1;
        table.places.insert(name.to_owned(), AdapterState::Coming);
        Ok(table.last_number)
    }

    fn finish(
        &self,
        name: &str,
        number: AdapterNumber,
        put: Result<(), ApiError>,
        stays: bool,
    ) -> Result<(), ApiError> {
        let mut table = self.table();
        table.places.remove(name);
        put?;
        let adapter = Adapter {
            name: name.to_owned(),
            number,
        };
        let adapter = Arc::new(adapter);
        let place = AdapterState::Loaded { adapter, stays };
        table.places.insert(name.to_owned(), place);
        tracing::info!(adapter = name, "adapter loaded");
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text(fields: &mut Fields, name: &'static str) -> Result<String, ApiError> {
    let value = fields.text(name)?;
    value.ok_or_else(|| ApiError::field(name, format!("`{name}` is missing")))
}

fn conflict(message: String) -> ApiError {
    ApiError::with_status(StatusCode::CONFLICT, "adapter_conflict", message)
}

fn refused(name: &str, problem: &str) -> ApiError {
    ApiError::field(
        "lora_path",
        format!("the adapter `{name}` cannot be loaded: {problem}"),
    )
}

/// Reads an adapter's folder. Copies the tensors, because the files may be replaced while it is served.
fn read(folder: &Path, rank_max: u32) -> Result<Arc<AdapterTensors>, String> {
    let files = AdapterFiles::read(folder).map_err(one_line)?;
    if files.rank() > rank_max {
        return Err(format!(
            "{} has rank {}; this engine supports at most {rank_max}",
            files.folder.display(),
            files.rank()
        ));
    }
    let contents = open_regular(&files.weights)
        .and_then(|mut file| {
            let mut contents = Vec::new();
            file.read_to_end(&mut contents).map(|_| contents)
        })
        .map_err(|error| format!("{}: {error}", files.weights.display()))?;
    let contents = Arc::new(contents);
    let stored = |entry: &TensorEntry| {
        let encoding = match entry.dtype.as_str() {
            "F32" => Some(Encoding::F32),
            "F16" => Some(Encoding::F16),
            "BF16" => Some(Encoding::Bf16),
            _ => None,
        };
        let shape = entry.shape.iter().map(|size| *size as usize).collect();
        let bytes: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::<Vec<u8>>::clone(&contents);
        encoding
            .and_then(|encoding| {
                let range = entry.begin as usize..entry.end as usize;
                StoredTensor::new(encoding, shape, bytes, range)
            })
            .ok_or_else(|| {
                format!(
                    "{}: the tensor {} is in {}; save the adapter in F32, F16 or BF16",
                    files.weights.display(),
                    entry.name,
                    entry.dtype
                )
            })
    };
    let mut tensors = AdapterTensors::default();
    for (module, pair) in &files.pairs {
        let low = LowRank {
            narrow: stored(&pair.narrow)?,
            wide: stored(&pair.wide)?,
            factor: files.config.factor(module, pair.rank),
        };
        tensors.0.insert(module.clone(), low);
    }
    Ok(Arc::new(tensors))
}
