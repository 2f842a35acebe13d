//! The packages as published: a crate includes no file from outside its folder, and crates of one release depend on each other by
//! version.

use std::fs;
use std::path::Path;

use support::code::{is_test_file, rust_files, without_tests};
use support::root;

/// The innermost folder with a manifest above a file.
fn package_of(file: &Path) -> &Path {
    let mut above = file.ancestors().skip(1);
    let is_package = |folder: &&Path| folder.join("Cargo.toml").is_file();
    above.find(is_package).expect("a package")
}

#[test]
fn no_crate_includes_a_file_from_outside_its_folder() {
    let folders = ["src", "admin-client/src", "candle-engine/src"];
    let mut files: Vec<_> = folders
        .iter()
        .flat_map(|folder| rust_files(&root().join(folder)))
        .collect();
    assert!(files.len() > 500, "{}", files.len());
    let mut breaches = Vec::new();
    files.retain(|file| !is_test_file(file));
    for file in files {
        let shipped = without_tests(&fs::read_to_string(&file).expect("text"));
        for macro_name in ["include_str!(", "include_bytes!("] {
            for call in shipped.split(macro_name).skip(1) {
                // The first string is the path, or its beginning within `concat!`.
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
fn the_crates_of_a_release_require_each_other_in_its_version() {
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

/// Features that need GPU libraries or an Apple processor.
const OF_A_GPU: &[&str] = &["cuda", "metal"];

#[test]
fn the_default_build_has_every_feature_that_needs_no_gpu() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let section = manifest
        .split("\n[features]\n")
        .nth(1)
        .expect("the features");
    let section = section.split("\n[").next().expect("the section");
    let entries = section.lines().filter_map(|line| line.split_once(" = "));
    let entries: Vec<(&str, &str)> = entries.filter(|(name, _)| !name.starts_with('#')).collect();
    let by_default = entries.iter().find(|(name, _)| *name == "default");
    let (_, by_default) = by_default.expect("a feature `default`");
    let mut optional: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
    optional.retain(|name| *name != "default" && !OF_A_GPU.contains(name));
    assert!(optional.contains(&"s3"), "{optional:?}");
    for name in optional {
        assert!(
            by_default.contains(&format!("\"{name}\"")),
            "`cargo run` builds without {name}: {by_default}"
        );
    }
}

/// Dependencies that thousands of types use, that compile in a second, or that are locked without being built.
const OPTIMISED_OR_SMALL: &[&str] = &[
    "serde_derive",
    "dyn-stack-macros",
    "multiversion_no_op",
    "rustversion",
    "asn1-rs-derive",
    "asn1-rs-impl",
    "palette_derive",
    "sqlx-macros",
    "time-macros",
];

/// The profile of all dependencies takes precedence over the macros' profile, so each macro must be named.
#[cfg(target_os = "linux")]
#[test]
fn macros_are_not_optimised_in_a_debug_build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = std::process::Command::new(cargo)
        .current_dir(root())
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .expect("cargo starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let of = |list: &serde_json::Value| list.as_array().expect("a list").clone();
    let used: Vec<serde_json::Value> = of(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| node["id"].clone())
        .collect();
    let is_macro = |package: &serde_json::Value| {
        let kinds = of(&package["targets"]).into_iter();
        let mut kinds = kinds.flat_map(|target| of(&target["kind"]));
        used.contains(&package["id"]) && kinds.any(|kind| kind == "proc-macro")
    };
    let packages = of(&metadata["packages"]);
    let macros = packages.iter().filter(|package| is_macro(package));
    let names: Vec<&str> = macros
        .filter_map(|package| package["name"].as_str())
        .collect();
    assert!(names.len() > 20, "{names:?}");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let is_named = |name: &str| manifest.contains(&format!("\n{name} = {{ opt-level = 0 }}"));
    let without: Vec<&&str> = names
        .iter()
        .filter(|name| !OPTIMISED_OR_SMALL.contains(name) && !is_named(name))
        .collect();
    assert!(
        without.is_empty(),
        "add `NAME = {{ opt-level = 0 }}` to [profile.dev.package] in Cargo.toml for {without:?}: optimizing macros took a third of a clean build"
    );
}
