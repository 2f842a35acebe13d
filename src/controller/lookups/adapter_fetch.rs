//! Looks for an adapter in a bucket. Checks its size before anything is fetched, and its description before its weights are. If the
//! bucket cannot be read, uses the files fetched earlier.

use std::sync::Arc;

use super::adapter_files::{check_description, check_size, checked, without_folder};
use super::adapter_lookups::{AdapterError, AdapterFound};
use catalog::{AdapterBucket, AdapterConfig, DynamicAdapters};
use pool::{Remedy, Span};
use source::{ADAPTER_FILES_MAX, ListedAdapter, SourceError, Sources};

/// The adapter's description.
const CONFIG: &str = "adapter_config.json";
/// Pause before a bucket that could not be read is queried again.
const RETRY: Span = Span::from_secs(10);

/// Returns `None` if the bucket does not have the adapter.
pub(crate) async fn look(
    sources: &Arc<Sources>,
    dynamic: &DynamicAdapters,
    bucket: &AdapterBucket,
    (name, id): (&str, &str),
) -> Result<Option<AdapterFound>, AdapterError> {
    // Ray Serve stores adapters under `suffix:id`, RayLLM under their full names.
    let mut unread = None;
    for folder in [id, name] {
        let folder = match sources.list_adapter(bucket, folder).await {
            Ok(None) => continue,
            Ok(Some(listed)) => bring(sources, dynamic, bucket, (name, &listed)).await?,
            Err(error) => {
                let before = sources.adapter_brought_before(bucket, folder).await;
                let may_return = error.remedy() == Remedy::Time || is_offline(&error);
                let Some(before) = before.filter(|_| may_return) else {
                    unread.get_or_insert(error);
                    continue;
                };
                tracing::info!(adapter = name, %error, "using the adapter as it was fetched before");
                before
            }
        };
        let (dynamic, owned, own) = (dynamic.clone(), name.to_owned(), id.to_owned());
        let looked = tokio::task::spawn_blocking(move || checked(&dynamic, folder, (&owned, &own)));
        let looked = looked.await;
        return looked
            .unwrap_or_else(|_| Err(unusable(name, "its files could not be read".to_owned())))
            .map(Some);
    }
    match unread {
        Some(error) => Err(unreachable(name, &error)),
        None => Ok(None),
    }
}

fn is_offline(error: &SourceError) -> bool {
    matches!(error, SourceError::Offline { .. })
}

async fn bring(
    sources: &Arc<Sources>,
    dynamic: &DynamicAdapters,
    bucket: &AdapterBucket,
    (name, listed): (&str, &ListedAdapter),
) -> Result<std::path::PathBuf, AdapterError> {
    check_size(dynamic, listed.bytes()).map_err(|problem| unusable(name, problem))?;
    if listed.files() > ADAPTER_FILES_MAX {
        let problem = format!("it has more than {ADAPTER_FILES_MAX} files");
        return Err(unusable(name, problem));
    }
    let own = listed.clone();
    let here = tokio::task::spawn_blocking(move || own.here()).await;
    if let Ok(Some(folder)) = here {
        return Ok(folder);
    }
    let config = sources.bring_file_of_adapter(listed, CONFIG).await;
    let partial = config.map_err(|fault| unreachable(name, &fault))?;
    let own = dynamic.clone();
    let checked = tokio::task::spawn_blocking(move || {
        let config = AdapterConfig::read(&partial);
        let config = config.map_err(|error| without_folder(&error, &partial))?;
        check_description(&own, &config, config.rank)
    });
    let checked = checked.await;
    if let Err(problem) = checked.unwrap_or_else(|_| Err("its files could not be read".to_owned()))
    {
        sources.discard_adapter(listed).await;
        return Err(unusable(name, problem));
    }
    let brought = sources.bring_adapter(bucket, listed).await;
    brought.map_err(|fault| unreachable(name, &fault))
}

fn unusable(name: &str, problem: String) -> AdapterError {
    AdapterError::Unusable {
        name: name.to_owned(),
        problem,
    }
}

fn unreachable(name: &str, error: &SourceError) -> AdapterError {
    tracing::warn!(adapter = name, %error, "an adapter cannot be fetched");
    AdapterError::Unreachable {
        name: name.to_owned(),
        problem: error.public(),
        retry: RETRY,
    }
}
