//! A model's config.json, for `cargo fuzz run model_config`. Finds panics in model-pool's parser.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a folder for files"));

fuzz_target!(|bytes: &[u8]| parsers::model_config(bytes, FOLDER.path()));
