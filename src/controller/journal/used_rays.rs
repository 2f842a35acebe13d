//! Stores the Ray clusters that the pool has used, where every controller of this database finds them.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use engine::{KeepRays, RayLedger, RayWrite, ServeWriters, UsedRay};
use store::{KeptRay, Store, StoreError};

#[derive(Debug)]
struct RaysInStore(Arc<Store>);

impl KeepRays for RaysInStore {
    fn save(&self, used: UsedRay) -> RayWrite<'_> {
        Box::pin(async move {
            let saved = self.0.save_used_ray(&kept(used)).await;
            saved.map_err(|error| error.to_string())
        })
    }

    fn delete(&self, used: UsedRay) -> RayWrite<'_> {
        Box::pin(async move {
            let deleted = self.0.delete_used_ray(&used.address, &used.prefix).await;
            deleted.map_err(|error| error.to_string())
        })
    }

    fn leads(&self) -> bool {
        self.0.leads()
    }
}

/// Opens the writers to Ray Serve with the stored Ray clusters. `file` is where earlier versions kept them; it is imported and
/// removed.
///
/// # Errors
/// The store cannot be read.
pub async fn open_serve_writers(
    store: &Arc<Store>,
    file: &Path,
) -> Result<ServeWriters, StoreError> {
    let left = import(store, file).await;
    let stored = store.used_rays().await?;
    // While the file lists them, they are not needed in the store.
    let used = stored.into_iter().map(used).chain(left).collect();
    let store = Arc::new(RaysInStore(Arc::clone(store)));
    Ok(ServeWriters::new(RayLedger::new(store, used)))
}

/// Imports the file. Returns the Ray clusters that could not be imported; the file then stays for the next start.
async fn import(store: &Store, file: &Path) -> Vec<UsedRay> {
    let shown = file.display();
    let read = match tokio::fs::read(file).await {
        Ok(bytes) => serde_json::from_slice::<Vec<UsedRay>>(&bytes).map_err(Into::into),
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => Err(error),
    };
    let rays = match read {
        Ok(rays) => rays,
        Err(error) => {
            let aside = file.with_extension("unreadable");
            let _ = tokio::fs::rename(file, &aside).await;
            tracing::error!(
                "{shown} cannot be read ({error}), and was renamed to {}: applications of this pool in Ray clusters that no model file names are not found; it contains their addresses",
                aside.display()
            );
            return Vec::new();
        }
    };
    let rows: Vec<KeptRay> = rays.iter().cloned().map(kept).collect();
    if let Err(fault) = store.import_used_rays(&rows).await {
        tracing::warn!(
            "{shown} cannot be moved into the database: {fault}; the next start tries again"
        );
        return rays;
    }
    if let Err(error) = tokio::fs::remove_file(file).await {
        tracing::warn!("{shown} is in the database now and cannot be removed: {error}");
    }
    Vec::new()
}

fn kept(used: UsedRay) -> KeptRay {
    KeptRay {
        address: used.address,
        prefix: used.prefix,
        token_file: used
            .token_file
            .map(|path| path.to_string_lossy().into_owned()),
        timeout_ms: used.timeout_ms,
        section: used.section,
    }
}

fn used(kept: KeptRay) -> UsedRay {
    UsedRay {
        address: kept.address,
        prefix: kept.prefix,
        token_file: kept.token_file.map(Into::into),
        timeout_ms: kept.timeout_ms,
        section: kept.section,
    }
}
