//! Messages between a controller and a guardian, for `cargo fuzz run guardian`. Finds panics in model-pool's parser.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a folder for files"));

fuzz_target!(|bytes: &[u8]| parsers::guardian(bytes, FOLDER.path()));
