//! Shared code of the tests: the program as a process with its own folder, fake engines and servers, and clients. Independent of
//! the program's crates.

pub mod adapters;
pub mod buckets;
pub mod child;
pub mod code;
pub mod cuda_stand_in;
pub mod device_tree;
pub mod double;
pub mod environment;
pub mod external_programs;
pub mod family;
pub mod folder;
pub mod gguf_file;
pub mod http_server;
pub mod hub;
pub mod issuer;
pub mod kubernetes;
pub mod machine;
pub mod manager;
pub mod net;
pub mod network;
pub mod object_server;
pub mod openapi_check;
pub mod postgres;
pub mod provider;
pub mod ray_serve;
pub mod reference;
pub mod schema;
pub mod servers;
pub mod service;
pub mod streamed_response;
pub mod stub;
pub mod table;
pub mod terminal;
pub mod tiny_gguf;
pub mod vllm_script;

use std::path::{Path, PathBuf};

/// The repository's root folder.
pub fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors()
        .nth(2)
        .expect("tests/support lies two folders deep")
}

/// # Panics
/// If the text lacks one of the parts.
#[track_caller]
pub fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

/// `target/debug`, or the folder where this test was built.
pub fn profile_dir() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let folder = own.ancestors().nth(2);
    folder
        .expect("tests lie in a folder below the programs'")
        .to_owned()
}

/// The program under test, which cargo builds before the tests of its package.
pub fn program() -> PathBuf {
    profile_dir().join("model-pool")
}
