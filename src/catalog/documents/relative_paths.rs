//! Relative paths in model files. They are based on the file's folder; if nothing exists there, a path below the working directory
//! of model-pool is used as a fallback.

use std::io;
use std::path::{Component, Path, PathBuf};

/// An absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedPath {
    pub path: PathBuf,
    /// Set if the path was only found relative to the working directory: the same path relative to the file's folder.
    pub write_instead: Option<String>,
}

/// Resolves a path; `folder` is the folder of the file that contains it, if any.
pub(crate) fn resolve(text: &str, folder: Option<&Path>) -> io::Result<ResolvedPath> {
    resolve_from(&std::env::current_dir()?, text, folder)
}

fn resolve_from(start: &Path, text: &str, folder: Option<&Path>) -> io::Result<ResolvedPath> {
    if text.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is empty"));
    }
    let from_start = std::path::absolute(start.join(text))?;
    let plain = |path| ResolvedPath {
        path,
        write_instead: None,
    };
    let Some(folder) = folder.filter(|_| Path::new(text).is_relative()) else {
        return Ok(plain(from_start));
    };
    let folder = absolute_folder(folder)?;
    let from_file = without_climbing(folder.join(text));
    if from_file == from_start || from_file.exists() || !from_start.exists() {
        return Ok(plain(from_file));
    }
    Ok(ResolvedPath {
        write_instead: Some(from_folder(&folder, &from_start)),
        path: from_start,
    })
}

/// Returns true if the text is a local folder or file, and not a model on the hub.
pub(crate) fn is_local(text: &str, folder: Option<&Path>) -> bool {
    let path = Path::new(text);
    // A folder of model files may have the name of an organisation on the hub.
    let holds_a_model = |path: &Path| {
        path.is_file()
            || path.join("config.json").is_file()
            || model_files::gguf_of(path).is_ok_and(|file| file.is_some())
    };
    let from_file = folder.map(|folder| folder.join(path));
    path.is_absolute()
        || text.starts_with('.')
        || path.exists()
        || from_file.is_some_and(|path| holds_a_model(&path))
}

fn absolute_folder(folder: &Path) -> io::Result<PathBuf> {
    if folder.as_os_str().is_empty() {
        std::env::current_dir()
    } else {
        std::path::absolute(folder)
    }
}

/// Removes `..` from a path, unless a symbolic link would make it a different place.
fn without_climbing(path: PathBuf) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    match (plain.canonicalize(), path.canonicalize()) {
        (Ok(one), Ok(other)) if one == other => plain,
        (Err(_), Err(_)) => plain,
        _ => path,
    }
}

/// The path relative to `folder`.
fn from_folder(folder: &Path, path: &Path) -> String {
    let shared = folder.components().zip(path.components());
    let shared = shared.take_while(|(one, other)| one == other).count();
    let up = folder
        .components()
        .skip(shared)
        .map(|_| Component::ParentDir);
    let relative: PathBuf = up.chain(path.components().skip(shared)).collect();
    // Symbolic links may make the relative path a different place.
    let leads_there =
        || Some(folder.join(&relative).canonicalize().ok()? == path.canonicalize().ok()?);
    match leads_there() {
        Some(true) => relative.display().to_string(),
        _ => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_relative_to_the_folder_of_its_file() {
        let root = tempfile::tempdir().expect("a folder");
        let models = root.path().join("config/models");
        std::fs::create_dir_all(&models).expect("made");
        std::fs::create_dir_all(root.path().join("weights/m")).expect("made");
        let resolved = resolve("../../weights/m", Some(&models)).expect("a path");
        assert_eq!(resolved.path, root.path().join("weights/m"));
        assert_eq!(resolved.write_instead, None);
        let missing = resolve("not/there", Some(&models)).expect("a path");
        assert_eq!(missing.path, models.join("not/there"));
        let absolute = resolve("/srv/m", Some(&models)).expect("a path");
        assert_eq!(absolute.path, Path::new("/srv/m"));
        assert!(resolve("", Some(&models)).is_err());
    }

    #[test]
    fn a_path_relative_to_the_start_folder_is_found_with_the_spelling_to_use_instead() {
        let start = tempfile::tempdir().expect("a folder");
        let models = start.path().join("config/models");
        std::fs::create_dir_all(&models).expect("made");
        std::fs::create_dir_all(start.path().join("weights/m")).expect("made");
        let resolve = |text| resolve_from(start.path(), text, Some(&models)).expect("a path");
        let found = resolve("weights/m");
        assert_eq!(found.path, start.path().join("weights/m"));
        assert_eq!(found.write_instead.as_deref(), Some("../../weights/m"));
        std::fs::create_dir_all(models.join("weights/m")).expect("made");
        let found = resolve("weights/m");
        assert_eq!(found.path, models.join("weights/m"));
        assert_eq!(found.write_instead, None, "the file's folder goes first");
    }

    #[test]
    fn a_hub_name_is_not_a_local_folder_merely_because_model_files_are_in_one() {
        let models = tempfile::tempdir().expect("a folder");
        let team = models.path().join("org/name");
        std::fs::create_dir_all(&team).expect("made");
        let is_local = |text| is_local(text, Some(models.path()));
        assert!(!is_local("org/name") && is_local("./org/name") && is_local("/srv/m"));
        std::fs::write(team.join("config.json"), "{}").expect("written");
        assert!(is_local("org/name"));
    }
}
