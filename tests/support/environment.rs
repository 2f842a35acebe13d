//! A virtual environment that contains only vLLM's folders: the program is a script, and packages consist of pip's metadata.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Writes `bin/vllm` with these shell commands and returns its path. Its first line names the shell as the environment's Python.
pub fn vllm_script(root: &Path, commands: &str) -> PathBuf {
    let (program, python) = (root.join("bin/vllm"), root.join("bin/python3"));
    fs::create_dir_all(root.join("bin")).expect("a folder");
    if !python.is_symlink() {
        symlink("/bin/sh", &python).expect("linked");
    }
    let script = format!("#!{}\n{commands}", python.display());
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    program
}

/// Writes what `pip` keeps about a package of this version; returns the path of its `METADATA`.
pub fn installed_package(root: &Path, name: &str, version: &str) -> PathBuf {
    let packages = root.join("lib/python3.12/site-packages");
    let folder = packages.join(format!("{}-{version}.dist-info", name.replace('-', "_")));
    fs::create_dir_all(&folder).expect("a folder");
    let metadata = folder.join("METADATA");
    let text =
        format!("Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: A text\n");
    fs::write(&metadata, text).expect("written");
    metadata
}
