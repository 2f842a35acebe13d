//! The manifest of a fetch, for `cargo fuzz run manifest`. Finds panics in model-pool's parser.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a folder for files"));

fuzz_target!(|bytes: &[u8]| parsers::manifest(bytes, FOLDER.path()));
