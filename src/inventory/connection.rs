//! The NVML library: loaded once, shared, and loaded and initialised again after a restart of the driver.
//!
//! A library that was initialised with a driver that is gone no longer works, and initialising it again only increments its
//! reference count. Every user must therefore release the old library first.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::InventoryError;
use super::error::driver_is_gone;

/// The driver installs the first; the second comes with development packages.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

pub(super) struct Connection {
    library: Option<PathBuf>,
    held: Mutex<LoadedLibraries>,
}

struct LoadedLibraries {
    now: Option<Arc<Nvml>>,
    /// The previous library, which may still be in use.
    before: Weak<Nvml>,
}

impl Connection {
    pub fn open(library: Option<&Path>) -> Result<Connection, InventoryError> {
        let nvml = load(library).map_err(|source| InventoryError::NoLibrary {
            tried: names(library)
                .map(|name| name.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(", "),
            source,
        })?;
        Ok(Connection {
            library: library.map(Path::to_owned),
            held: Mutex::new(LoadedLibraries {
                now: Some(Arc::new(nvml)),
                before: Weak::new(),
            }),
        })
    }

    /// Loads the library if needed. Blocks as long as the driver takes.
    ///
    /// # Errors
    /// [`NvmlError`] if the driver is away, or while the previously loaded library is still in use.
    pub fn get(&self) -> Result<Arc<Nvml>, NvmlError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nvml) = &held.now {
            return Ok(Arc::clone(nvml));
        }
        if held.before.strong_count() > 0 {
            return Err(NvmlError::Uninitialized);
        }
        let nvml = Arc::new(load(self.library.as_deref())?);
        tracing::info!("the NVIDIA driver is back");
        held.now = Some(Arc::clone(&nvml));
        Ok(nvml)
    }

    /// Returns the library after an error, and drops it if the driver is gone.
    pub fn failed(&self, nvml: Arc<Nvml>, error: &NvmlError) {
        if !driver_is_gone(error) {
            return;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &nvml)) {
            tracing::warn!(%error, "the NVIDIA driver went away");
            held.before = Arc::downgrade(&nvml);
            held.now = None;
        }
        // Released under the lock: it must not be loaded again before it is released.
        drop(nvml);
    }
}

fn names(library: Option<&Path>) -> impl Iterator<Item = &OsStr> {
    let usual: &[&str] = match library {
        Some(_) => &[],
        None => &LIBRARIES,
    };
    let named = library.map(Path::as_os_str).into_iter();
    named.chain(usual.iter().map(OsStr::new))
}

fn load(library: Option<&Path>) -> Result<Nvml, NvmlError> {
    let mut first_error = None;
    for name in names(library) {
        match Nvml::builder().lib_path(name).init() {
            Ok(nvml) => return Ok(nvml),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or(NvmlError::LibraryNotFound))
}
