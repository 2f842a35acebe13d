//! The packages as a registry takes them: a crate includes no file from outside its folder, and the crates of one release
//! name each other by its version.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Rust files below a folder, without links and build products.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() && entry.file_name() != "target" {
            rust_files(&path, found);
        } else if kind.is_file() && path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// The innermost folder with a manifest above a file.
fn package_of(file: &Path) -> &Path {
    let mut above = file.ancestors().skip(1);
    let is_package = |folder: &&Path| folder.join("Cargo.toml").is_file();
    above.find(is_package).expect("a package")
}

#[test]
fn no_crate_includes_a_file_from_outside_its_folder() {
    let mut files = Vec::new();
    for folder in ["src", "admin-client/src", "candle-engine/src"] {
        rust_files(&root().join(folder), &mut files);
    }
    assert!(files.len() > 500, "{}", files.len());
    let mut breaches = Vec::new();
    for file in files {
        let is_test = file.components().any(|it| {
            let name = it.as_os_str().to_string_lossy();
            name == "tests" || name == "tests.rs" || name.ends_with("_tests.rs")
        });
        let text = fs::read_to_string(&file).expect("text");
        let shipped = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
        for macro_name in ["include_str!(", "include_bytes!("] {
            for call in shipped.split(macro_name).skip(1).filter(|_| !is_test) {
                // The first quoted text is the path, or its beginning within `concat!`.
                let Some(path) = call.split('"').nth(1) else {
                    continue;
                };
                let up = path.matches("../").count();
                let below = file.parent().expect("a folder");
                let depth = below.strip_prefix(package_of(&file)).expect("below");
                if up > depth.components().count() {
                    breaches.push(format!("{}: {path}", file.display()));
                }
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn the_crates_of_a_release_name_each_other_by_its_version() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = \""))
        .and_then(|rest| rest.split('"').next())
        .expect("the version of the workspace");
    let own = manifest
        .lines()
        .filter(|line| line.contains("path = \"src/") || line.contains("path = \"candle-engine\""));
    let own: Vec<&str> = own.filter(|line| line.contains(" = { path")).collect();
    assert!(own.len() > 20, "{own:?}");
    let expected = format!("version = \"={version}\"");
    let without: Vec<&&str> = own
        .iter()
        .filter(|line| !line.contains(&expected))
        .collect();
    assert!(without.is_empty(), "{expected} is missing in {without:#?}");
}
