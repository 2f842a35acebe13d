//! The program that runs the embedded engine on NVIDIA GPUs, for `serve`, `check` and `node`: where it is looked for, and which
//! models need it.

use catalog::{Catalog, ComputeDevice, Entry, Recipe};
use config::Config;
use engine::{CudaProgram, CudaSearch, find_cuda};

/// Looks for it and tries it, which takes as long as the driver takes to find its GPUs. Without the program nothing is run.
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

/// It is a model of the embedded engine on NVIDIA GPUs.
pub(crate) fn is_needed(entry: &Entry) -> bool {
    matches!(&entry.recipe, Recipe::Candle(recipe) if recipe.device == ComputeDevice::Cuda)
}

/// What `serve` logs at its start. A controller whose nodes have the GPUs needs no such program itself, so that it is a warning.
pub(crate) fn log(cuda: &CudaProgram, catalog: &Catalog) {
    log_found(cuda);
    let Some(trouble) = cuda.trouble() else {
        return;
    };
    let needing = catalog.entries().iter().filter(|(_, it)| is_needed(it));
    let names: Vec<&str> = needing.map(|(name, _)| name.as_str()).collect();
    if !names.is_empty() {
        tracing::warn!(
            "on this machine these models cannot be loaded ({}): {}",
            names.join(", "),
            trouble.problem
        );
    }
}

/// What `node` logs at its start.
pub(crate) fn log_found(cuda: &CudaProgram) {
    match cuda {
        CudaProgram::Ready(_) => tracing::info!("embedded engine on GPUs: {cuda}"),
        CudaProgram::Unusable { .. } => tracing::warn!("embedded engine on GPUs: {cuda}"),
        CudaProgram::Absent { .. } => {}
    }
}
