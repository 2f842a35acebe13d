//! Locates Hugging Face models on this machine: the cache of `huggingface_hub`, and in it the folder of a model at a revision.
//! Downloads nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::documents::Secret;

type Variable<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

/// The root of the cache, in the order of huggingface_hub: `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`,
/// `HOME`. The engine's own variables take precedence over the process environment.
pub(crate) fn root(env: &BTreeMap<String, Secret>) -> Option<PathBuf> {
    let variable = |name: &str| match env.get(name) {
        Some(value) => Some(PathBuf::from(&value.0)),
        None => std::env::var_os(name).map(PathBuf::from),
    };
    variable("HF_HUB_CACHE")
        .or_else(|| variable("HUGGINGFACE_HUB_CACHE"))
        .map(in_home)
        .or_else(|| Some(home(&variable)?.join("hub")))
}

/// huggingface_hub expands `~` and variables, too. A value that cannot be expanded stays unchanged.
fn in_home(path: PathBuf) -> PathBuf {
    let expanded = path
        .to_str()
        .and_then(|text| config::expanded_here(text).ok());
    expanded.unwrap_or(path)
}

/// The home folder of Hugging Face's tools.
pub(crate) fn home(variable: Variable<'_>) -> Option<PathBuf> {
    let variable = |name: &str| variable(name).map(in_home);
    variable("HF_HOME")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("huggingface")))
        .or_else(|| Some(variable("HOME")?.join(".cache/huggingface")))
}

/// The cached folder of `organisation/name`, if it exists.
pub(crate) fn snapshot(model: &str, env: &BTreeMap<String, Secret>) -> Option<PathBuf> {
    let (organisation, name) = model.split_once('/')?;
    if [organisation, name]
        .iter()
        .any(|part| part.is_empty() || part.starts_with('.') || part.contains(['/', '\\']))
    {
        return None;
    }
    at_revision(
        &root(env)?.join(format!("models--{organisation}--{name}")),
        "main",
    )
}

/// The snapshot of a branch, tag or commit. For `main` without a reference, the only snapshot.
pub(super) fn at_revision(model: &Path, revision: &str) -> Option<PathBuf> {
    let snapshots = model.join("snapshots");
    let is_plain = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !text.is_empty() && !text.starts_with('.') && text.bytes().all(plain)
    };
    let named = |commit: &str| {
        let folder = snapshots.join(commit);
        (is_plain(commit) && folder.is_dir()).then_some(folder)
    };
    if let Ok(commit) = std::fs::read_to_string(model.join("refs").join(revision)) {
        return named(commit.trim());
    }
    if revision != "main" {
        return named(revision);
    }
    let mut folders = std::fs::read_dir(snapshots).ok()?.filter_map(Result::ok);
    let only = folders.next()?;
    folders.next().is_none().then(|| only.path())
}
