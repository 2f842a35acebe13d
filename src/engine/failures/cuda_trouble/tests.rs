//! Messages of the loader, the driver and the program itself, and their interpretation.

use super::*;

#[track_caller]
fn reads(output: &str, failure: Failure, parts: &[&str]) {
    let trouble = read(output);
    assert_eq!(trouble.failure, failure, "{trouble:?}");
    for part in parts {
        assert!(trouble.problem.contains(part), "{part}: {trouble:?}");
    }
}

#[test]
fn a_missing_library_is_named_with_its_package() {
    let missing = |library: &str| {
        format!(
            "/usr/bin/model-pool-cuda: error while loading shared libraries: {library}: cannot open shared object file: No such file or directory\n"
        )
    };
    for (library, part) in [
        ("libcublas.so.13", "pip install nvidia-cublas,"),
        ("libcublasLt.so.13", "pip install nvidia-cublas,"),
        ("libcurand.so.10", "nvidia-curand"),
        ("libcudart.so.13", "nvidia-cuda-runtime"),
        ("libcuda.so.1", "580 or later"),
        ("libzstd.so.1", "the package that has it"),
    ] {
        let parts = [library, "is missing", part, "start model-pool again"];
        reads(&missing(library), Failure::MissingLibrary, &parts);
    }
}

#[test]
fn an_empty_library_in_a_container_is_not_a_driver() {
    reads(
        "model-pool-cuda: error while loading shared libraries: libcuda.so.1: file too short",
        Failure::MissingLibrary,
        &["libcuda.so.1 cannot be used (file too short)", "--gpus all"],
    );
}

#[test]
fn an_old_driver_and_an_old_system_library_are_distinguished() {
    let lacks = |symbol: &str| {
        format!(
            "model-pool-cuda: symbol lookup error: model-pool-cuda: undefined symbol: {symbol}, version libcuda.so.1"
        )
    };
    reads(
        &lacks("cuLogsRegisterCallback"),
        Failure::DriverTooOld,
        &["cuLogsRegisterCallback:", "580"],
    );
    reads(
        &lacks("cublasGemmEx"),
        Failure::MissingLibrary,
        &["libcublas", "older than the program"],
    );
    reads(
        "model-pool-cuda: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.39' not found (required by model-pool-cuda)",
        Failure::NotExecutable,
        &["GLIBC_2.39", "newer system"],
    );
}

#[test]
fn driver_errors_are_reported_with_advice() {
    for (name, part) in DRIVER_ERRORS {
        let output = format!("model-pool: DriverError({name}, \"some text\")\n");
        reads(&output, Failure::MissingLibrary, &[*name, *part]);
    }
}

#[test]
fn a_driver_mismatch_at_engine_start_is_reported_with_advice() {
    let (failure, text) = advice(
        "model-pool: device: cuda:0 cannot be opened (DriverError(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, \"x\"))",
    )
    .expect("known");
    assert_eq!(failure, Failure::MissingLibrary);
    assert!(text.contains("restart the machine"), "{text}");
    let (failure, _) = advice("DriverError(CUDA_ERROR_NO_BINARY_FOR_GPU, \"x\")").expect("known");
    assert_eq!(failure, Failure::NotExecutable);
    assert_eq!(advice("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"x\")"), None);
}

#[test]
fn a_program_without_cuda_is_recognized() {
    reads(
        "model-pool: this program was built without CUDA\n",
        Failure::NotExecutable,
        &["--features cuda"],
    );
    reads(
        "error: unrecognized subcommand 'cuda-probe'\n\nUsage: model-pool\n",
        Failure::NotExecutable,
        &["same source"],
    );
    let words = "something else\nat the end\u{7}\n";
    reads(words, Failure::Crashed, &["not start: at the end;"]);
    reads("", Failure::Crashed, &["it printed nothing"]);
}

#[test]
fn the_driver_must_support_the_major_cuda_version() {
    assert_eq!(of_versions(13000, 13000), None);
    assert_eq!(of_versions(13010, 13000), None);
    assert_eq!(of_versions(12080, 13000), None);
    let trouble = of_versions(13000, 12080).expect("too old");
    assert_eq!(trouble.failure, Failure::DriverTooOld);
    assert!(trouble.problem.contains("up to 12.8"), "{trouble:?}");
    assert!(trouble.problem.contains("built for 13.0"), "{trouble:?}");
}
