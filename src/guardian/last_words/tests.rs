//! The last lines of real engines that failed, and the expected last words.

use super::*;

fn words(tail: &str) -> String {
    select(tail.lines().map(|line| (line, true)))
}

#[test]
fn the_root_cause_of_a_vllm_failure_is_kept_and_not_the_servers_summary() {
    let tail = r#"(EngineCore_DP0 pid=17374) INFO 09-28 15:47:20 [core.py:77] Initializing a V1 LLM engine (v0.10.2)
(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718] EngineCore failed to start.
(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718] Traceback (most recent call last):
(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718]   File "/venv/lib/python3.10/site-packages/vllm/v1/worker/gpu_worker.py", line 180, in init_device
(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718]     raise ValueError(
(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718] ValueError: Free memory on device (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB).
(EngineCore_DP0 pid=17374) Process EngineCore_DP0:
(EngineCore_DP0 pid=17374) Traceback (most recent call last):
(EngineCore_DP0 pid=17374)   File "/usr/lib/python3.10/multiprocessing/process.py", line 314, in _bootstrap
(EngineCore_DP0 pid=17374)     self.run()
(EngineCore_DP0 pid=17374) ValueError: Free memory on device (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB).
[rank0]:[W928 15:47:25.177 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before program exit
(APIServer pid=17219) Traceback (most recent call last):
(APIServer pid=17219)   File "/venv/bin/vllm", line 10, in <module>
(APIServer pid=17219)     sys.exit(main())
(APIServer pid=17219)     raise RuntimeError("Engine core initialization failed. "
(APIServer pid=17219) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
/usr/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown
  warnings.warn('resource_tracker: There appear to be %d '"#;
    assert_eq!(
        words(tail),
        "ValueError: Free memory on device (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB)."
    );
    // Older versions have no process names.
    let tail = "INFO 05-23 09:31:43 [backends.py:420] Using cache directory: /home/llm/.cache\n\
        ERROR 05-23 09:31:47 [core.py:396] EngineCore failed to start.\n\
        ERROR 05-23 09:31:47 [core.py:396] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n\
        RuntimeError: Engine core initialization failed. See root cause above.";
    assert_eq!(
        words(tail),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    );
}

#[test]
fn a_vllm_validation_error_is_kept_completely() {
    let tail = r#"(APIServer pid=1)   File "/vllm/engine/arg_utils.py", line 1030, in create_model_config
(APIServer pid=1)     return ModelConfig(
(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
(APIServer pid=1)   Value error, The checkpoint you are trying to load has model type `brandnew` but Transformers does not recognize this architecture. [type=value_error, input_value=ArgsKwargs((), {}), input_type=ArgsKwargs]
(APIServer pid=1)     For further information visit https://errors.pydantic.dev/2.11/v/value_error"#;
    let expected = words(tail);
    assert!(
        expected.starts_with("pydantic_core._pydantic_core.ValidationError: 1 validation error"),
        "{expected}"
    );
    assert!(
        expected.contains("does not recognize this architecture"),
        "{expected}"
    );
}

#[test]
fn the_line_with_the_cause_is_kept_from_llama_server() {
    let tail = "srv    load_model: loading model '/models/new.gguf'\n\
        llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'brandnew'\n\
        llama_model_load_from_file_impl: failed to load model\n\
        common_init_from_params: failed to load model '/models/new.gguf'\n\
        srv    load_model: failed to load model, '/models/new.gguf'\n\
        srv    operator(): operator(): cleaning up before exit...\n\
        main: exiting due to model loading error";
    assert_eq!(
        words(tail),
        "llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'brandnew'"
    );
    // With --log-prefix and --log-timestamps.
    let tail = "0.00.112.300 I srv    load_model: loading model '/models/x.gguf'\n\
        0.00.113.020 E gguf_init_from_file: failed to open GGUF file '/models/x.gguf'\n\
        0.00.113.100 E srv    load_model: failed to load model, '/models/x.gguf'\n\
        0.00.113.200 E main: exiting due to model loading error";
    assert_eq!(words(tail), "failed to open GGUF file '/models/x.gguf'");
    assert_eq!(
        words("error: invalid argument: --speed"),
        "error: invalid argument: --speed"
    );
}

#[test]
fn an_exception_is_kept_from_a_traceback_with_its_continuation_lines() {
    let tail = "Traceback (most recent call last):\n\
        \x20 File \"/app/serve.py\", line 12, in <module>\n\
        \x20   main()\n\
        \x20   ^^^^^^\n\
        OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000):\n\
        \x20 address already in use";
    assert_eq!(
        words(tail),
        "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000):\n  address already in use"
    );
}

#[test]
fn level_time_and_module_are_stripped_from_logs_of_rust_servers() {
    for (line, expected) in [
        (
            " INFO listening on 127.0.0.1:8080",
            "listening on 127.0.0.1:8080",
        ),
        (
            "ERROR the weights of m cannot be read",
            "the weights of m cannot be read",
        ),
        (
            "2026-11-21T12:00:00.123456Z ERROR text_embeddings_router: router/src/lib.rs:200: no model",
            "no model",
        ),
        (
            "\\u{1b}[2m2026-11-21T12:00:00Z\\u{1b}[0m \\u{1b}[31mERROR\\u{1b}[0m candle_engine::serve: no",
            "no",
        ),
    ] {
        assert_eq!(words(line), expected);
    }
    let panic = "thread 'main' panicked at src/main.rs:10:5:\nno weights here\nnote: run with `RUST_BACKTRACE=1`";
    assert_eq!(
        words(panic),
        "thread 'main' panicked at src/main.rs:10:5:\nno weights here"
    );
    let anyhow = "Error: Could not create backend\nCaused by:\n    Could not start backend: no GPU";
    assert_eq!(words(anyhow), anyhow);
}

#[test]
fn prefixes_of_other_logs_are_stripped() {
    for (line, expected) in [
        (
            "ERROR:    [Errno 98] address in use",
            "[Errno 98] address in use",
        ),
        ("ERROR:root:no model", "no model"),
        (
            "2026-11-21 12:00:00,123 - vllm.engine - ERROR - no model",
            "no model",
        ),
        (
            "[2026-11-21 12:00:00 TP0] RuntimeError: no model",
            "RuntimeError: no model",
        ),
        ("[TensorRT-LLM][ERROR] no engine file", "no engine file"),
        (
            "[11/21/2026-12:00:00] [TRT-LLM] [E] no engine file",
            "no engine file",
        ),
        ("[rank0]: ValueError: no model", "ValueError: no model"),
        (
            "E1121 12:00:00.123456 99 main.cc:42] no model",
            "E1121 12:00:00.123456 99 main.cc:42] no model",
        ),
    ] {
        assert_eq!(words(line), expected);
    }
}

#[test]
fn text_that_only_resembles_a_prefix_is_kept() {
    for line in [
        "127.0.0.1:8080 is in use",
        "11-21 is not a date in this line",
        "[Errno 2] No such file or directory: 'x'",
        "(see above) no model",
        "INFO",
        "12 models",
        "ERRORS were found",
        "usage: vllm serve [model_tag]",
    ] {
        assert_eq!(words(line), line);
    }
}

#[test]
fn the_embedded_engines_error_is_kept_without_earlier_log_lines() {
    let tail = " INFO listening socket=/run/model-pool/r9.sock\nmodel-pool: the weights hold no tensor `lm_head.weight`\n";
    assert_eq!(
        words(tail),
        "model-pool: the weights hold no tensor `lm_head.weight`"
    );
}

#[test]
fn without_an_error_the_last_lines_are_kept() {
    assert_eq!(words("INFO: a\nb\n\nc\nd\ne\nf"), "b\nc\nd\ne\nf");
    assert_eq!(words(""), "");
    let long = "ü".repeat(3_000);
    assert_eq!(words(&long), "ü".repeat(1_024));
}

#[test]
fn a_later_unremarkable_exit_includes_lines_after_an_old_error() {
    let lines = [
        ("ERROR: a request failed", false),
        ("INFO: up", false),
        ("bye", true),
    ];
    assert_eq!(select(lines.into_iter()), "a request failed\nup\nbye");
}

#[test]
fn arbitrary_bytes_are_parsed_in_bounded_time_without_a_panic() {
    for line in [
        "[", "(", "[]", "()", "\\u{1b}[", "[rank]", "E", ":", " - ", "T", "Zü", "[Wü] x",
    ] {
        let _ = words(line);
        let _ = words(&line.repeat(1_000));
    }
}
