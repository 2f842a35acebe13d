//! Finds a program like the system does: by its path, or on the `PATH` of an engine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::documents::Secret;

/// Returns the file that would be executed, using the engine's own `PATH` if set. `folder` is the engine's working directory.
pub fn find_program(
    program: &str,
    folder: Option<&Path>,
    env: &BTreeMap<String, Secret>,
) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        let metadata = std::fs::metadata(path);
        metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let path = folder.map_or_else(|| PathBuf::from(program), |folder| folder.join(program));
        return Some(path).filter(is_program);
    }
    let own = env.get("PATH").map(|path| OsString::from(&path.0));
    let path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    places.find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_path_or_on_the_path_of_its_engine() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("serve-it");
        std::fs::write(&file, "#!/bin/sh\n").expect("written");
        let own =
            |path: &Path| BTreeMap::from([("PATH".to_owned(), Secret(path.display().to_string()))]);
        let none = BTreeMap::new();
        let path = file.display().to_string();
        assert_eq!(find_program(&path, None, &none), None, "it may not be run");
        let may_run = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file, may_run).expect("set");
        let found = Some(file.clone());
        assert_eq!(find_program(&path, None, &none), found);
        assert_eq!(find_program("serve-it", None, &own(folder.path())), found);
        let below = find_program("./serve-it", Some(folder.path()), &none);
        assert!(below.is_some_and(|path| path.ends_with("serve-it")));
        let nowhere = own(Path::new("/nowhere"));
        assert_eq!(find_program("serve-it", None, &nowhere), None);
        assert_eq!(
            find_program("./serve-it", Some(Path::new("/")), &none),
            None
        );
    }
}
