//! Tests of `failure.rs`.

use super::*;

#[test]
fn the_output_of_each_engine_is_classified_into_a_failure() {
    for (output, failure) in [
        (
            "OSError: [Errno 98] Address already in use",
            Failure::PortTaken,
        ),
        (
            "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 4711",
            Failure::PortTaken,
        ),
        (
            "OSError: You are trying to access a gated repo.",
            Failure::GatedModel,
        ),
        (
            "llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'brandnew'",
            Failure::UnknownArchitecture,
        ),
        (
            "ValueError: Model architectures ['Brandnew'] are not supported for now.",
            Failure::UnknownArchitecture,
        ),
        (
            "vllm: error: unrecognized arguments: --speed 9",
            Failure::WrongArguments,
        ),
        ("error: invalid argument: --speed", Failure::WrongArguments),
        ("usage: x [-h]\nx: error: no", Failure::WrongArguments),
        (
            "OSError: a/b is not a local folder and is not a valid model identifier listed on",
            Failure::ModelMissing,
        ),
        (
            "error loading model: tensor 'blk.0.ffn_up.weight' data is not within the file bounds, model is corrupted or incomplete",
            Failure::WeightsDamaged,
        ),
        (
            "gguf_init_from_file_impl: invalid magic characters: 'GARB', expected 'GGUF'",
            Failure::WeightsDamaged,
        ),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
            Failure::WeightsDamaged,
        ),
        ("Segmentation fault", Failure::Crashed),
        ("", Failure::Crashed),
    ] {
        assert_eq!(classify(output), failure, "{output}");
    }
}

#[test]
fn a_formatted_failure_parses_back_to_its_kind() {
    for failure in Failure::ALL {
        let shown = failure.tell("words", "exit status 1");
        assert_eq!(Failure::parse(&shown), Some(failure), "{shown}");
    }
    assert_eq!(Failure::parse("a load that took longer"), None);
}

#[test]
fn a_known_missing_program_is_reported_with_its_install_command() {
    let missing = io::Error::from(io::ErrorKind::NotFound);
    let cure = cure_of_start("/opt/bin/vllm", &missing, None);
    assert!(cure.contains("pip install vllm"), "{cure}");
    let closed = io::Error::from(io::ErrorKind::PermissionDenied);
    assert!(cure_of_start("x", &closed, Some("pip install x")).contains("chmod +x"));
}

#[test]
fn a_script_with_a_missing_interpreter_is_not_reported_as_not_installed() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("vllm");
    let path = script.to_str().expect("a path");
    let missing = io::Error::from(io::ErrorKind::NotFound);
    std::fs::write(&script, "#!/nowhere/venv/bin/python3\nimport vllm\n").expect("written");
    let cure = cure_of_start(path, &missing, Some("pip install vllm"));
    assert!(cure.contains("/nowhere/venv/bin/python3"), "{cure}");
    assert!(cure.contains("create the environment again"), "{cure}");
    // An existing interpreter does not count as missing, and neither does the interpreter of a file that is not a script.
    for text in ["#!/bin/sh\n", "\u{7f}ELF", ""] {
        std::fs::write(&script, text).expect("written");
        let cure = cure_of_start(path, &missing, Some("pip install vllm"));
        assert!(cure.contains("it is not installed"), "{text:?}: {cure}");
    }
}

#[test]
fn an_engine_the_pool_could_not_start_is_not_reported_as_crashed() {
    let journal = |kind: io::ErrorKind| EngineError::Journal {
        path: "/data/engines/r2.json".into(),
        source: kind.into(),
    };
    let full = of_error(&journal(io::ErrorKind::StorageFull));
    assert_eq!(full, Failure::DiskFull);
    let closed = of_error(&journal(io::ErrorKind::PermissionDenied));
    assert_eq!(closed, Failure::NotStarted);
    assert_eq!(
        closed.tell("no journal", "not started"),
        "not started: no journal"
    );
    let shown = full.tell("no journal", "not started");
    assert_eq!(shown, "disk full: no journal (not started)");
    assert_eq!(of_start(&io::Error::other("too many")), Failure::NotStarted);
}
