//! Finds the program that runs the embedded engine on NVIDIA GPUs, for `serve`, `check` and `node`, and the models that need it.

use catalog::{Catalog, ComputeDevice, Entry, Recipe};
use config::Config;
use engine::{CudaProgram, CudaSearch, find_cuda};

/// Searches and probes the program, which takes as long as the driver needs to find its GPUs. Without the program, runs nothing.
pub(crate) async fn find(config: &Config) -> Result<CudaProgram, String> {
    let own = std::env::current_exe()
        .map_err(|error| format!("cannot find the program's own binary: {error}"))?;
    let search = CudaSearch {
        own,
        own_has_cuda: cfg!(feature = "cuda"),
        named: config.inventory.cuda_program.clone(),
        version: env!("CARGO_PKG_VERSION"),
    };
    Ok(find_cuda(&search).await)
}

/// Returns true for models that run on the embedded engine with NVIDIA GPUs.
pub(crate) fn is_needed(entry: &Entry) -> bool {
    matches!(&entry.recipe, Recipe::Candle(recipe) if recipe.device == ComputeDevice::Cuda)
}

/// Logs the program at the start of `serve`. A missing program is only a warning: a controller whose nodes have the GPUs does not
/// need it.
pub(crate) fn log(cuda: &CudaProgram, catalog: &Catalog) {
    log_found(cuda);
    let Some(trouble) = cuda.trouble() else {
        return;
    };
    let needing = catalog
        .entries()
        .iter()
        .filter(|(_, entry)| is_needed(entry));
    let names: Vec<&str> = needing.map(|(name, _)| name.as_str()).collect();
    if !names.is_empty() {
        tracing::warn!(
            "on this machine these models cannot be loaded ({}): {}",
            names.join(", "),
            trouble.problem
        );
    }
}

/// Logs the program at the start of `node`.
pub(crate) fn log_found(cuda: &CudaProgram) {
    match cuda {
        CudaProgram::Ready(_) => tracing::info!("embedded engine on GPUs: {cuda}"),
        CudaProgram::Unusable { .. } => tracing::warn!("embedded engine on GPUs: {cuda}"),
        CudaProgram::Absent { .. } => {}
    }
}
