//! Where a model of Hugging Face lies on this machine when an engine has fetched it before: the
//! folder of its current snapshot. It fetches nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::model_file::Secret;

/// The folder of `organisation/name`, if it is there. The engine's own variables go before those
/// of this process, in the order of huggingface_hub: `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`,
/// `HOME`.
pub(super) fn snapshot(model: &str, env: &BTreeMap<String, Secret>) -> Option<PathBuf> {
    let (organisation, name) = model.split_once('/')?;
    if [organisation, name]
        .iter()
        .any(|part| part.is_empty() || part.starts_with('.') || part.contains(['/', '\\']))
    {
        return None;
    }
    let variable = |name: &str| match env.get(name) {
        Some(value) => Some(PathBuf::from(&value.0)),
        None => std::env::var_os(name).map(PathBuf::from),
    };
    let hub = variable("HF_HUB_CACHE")
        .or_else(|| Some(variable("HF_HOME")?.join("hub")))
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("huggingface/hub")))
        .or_else(|| Some(variable("HOME")?.join(".cache/huggingface/hub")))?;
    current(&hub.join(format!("models--{organisation}--{name}")))
}

/// The snapshot that `refs/main` names, or the only one.
fn current(model: &Path) -> Option<PathBuf> {
    let snapshots = model.join("snapshots");
    if let Ok(revision) = std::fs::read_to_string(model.join("refs/main")) {
        let revision = revision.trim();
        let is_plain =
            !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let folder = snapshots.join(revision);
        return (is_plain && folder.is_dir()).then_some(folder);
    }
    let mut folders = std::fs::read_dir(snapshots).ok()?.filter_map(Result::ok);
    let only = folders.next()?;
    folders.next().is_none().then(|| only.path())
}
