//! Configurations of llama-swap become model files.

use std::fs;

use serde_json::Value;
use support::assert_has;
use support::net::chat;
use support::service::Pool;

use super::super::commands::model_pool;
use super::{all_text, check, file, files, import};

#[test]
fn models_of_llama_swap_are_served_as_before() {
    let stub = support::stub::stub_engine().display().to_string();
    let text = format!(
        "macros:\n  engine: {stub} --port ${{PORT}}\nmodels:\n  small:\n    cmd: |\n      # the stub\n      ${{engine}} \\\n      --model theirs\n    useModelName: theirs\n    aliases: [gpt-4o-mini]\n    ttl: 60\n  \"fixed/one\":\n    cmd: {stub} --port 9876 --model fixed/one\n    proxy: http://127.0.0.1:9876\nhooks:\n  on_startup:\n    preload: [small]\n"
    );
    let (folder, ended) = import("llama-swap", &text, &[], &[]);
    let ended = ended.done();
    assert_has(
        &ended.stdout,
        &[
            "imported/models/small.yaml",
            "imported/models/fixed--one.yaml",
            "2 models imported",
            "model-pool check --config imported/model-pool.yaml",
        ],
    );
    let needs = r#"{"small": {"memory_gib": 1}, "fixed/one": {"memory_gib": 1}}"#;
    check(folder.path(), needs).done();

    let reference = folder.path().join("reference.json");
    let reference = reference.display().to_string();
    let env = [("MODEL_POOL__CATALOG__MODEL_REFERENCE", reference.as_str())];
    let pool = Pool::with_env(&files(folder.path()), "", &env);
    for model in ["small", "gpt-4o-mini", "fixed/one"] {
        let (status, text) = pool.post("/v1/chat/completions", &chat(model, false));
        assert_eq!(status, 200, "{model}: {text}");
    }
    let (_, text, _) = pool.request(
        "GET",
        "/llm/admin/models?model=small",
        "",
        Some(&pool.admin_key()),
    );
    let models: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(models["models"][0]["priority"], 2, "{text}");
}

/// As in real installations: a launcher with a fixed port, and an address below /v1.
#[test]
fn a_launcher_with_a_fixed_port_is_served() {
    let stub = support::stub::stub_engine().display().to_string();
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("an address").port()
    };
    let scripts = tempfile::tempdir().expect("a folder");
    let launcher = scripts.path().join("launch.sh");
    let script = format!("#!/bin/sh\nexec {stub} --port {port} --model own\n");
    fs::write(&launcher, script).expect("written");
    let launcher = launcher.display();
    let text = format!(
        "models:\n  own: {{cmd: \"sh {launcher}\", proxy: \"http://127.0.0.1:{port}\"}}\n  below:\n    cmd: {stub} --port ${{PORT}} --model below\n    proxy: http://127.0.0.1:${{PORT}}/v1\n  second: {{cmd: \"serve.sh ${{PORT}}\", proxy: \"http://127.0.0.2:${{PORT}}\"}}\n"
    );
    let (folder, ended) = import("llama-swap", &text, &[], &[]);
    let said = ended.done().stdout;
    assert_has(
        &said,
        &[
            &format!("assumed to listen on 127.0.0.1:{port}"),
            "3 models imported",
        ],
    );
    let files = files(folder.path());
    let text = |name: &str| file(&files, name);
    assert_has(
        text("second.yaml"),
        &["listen: ", "127.0.0.2", "{{ port }}"],
    );
    let needs =
        r#"{"own": {"memory_gib": 1}, "below": {"memory_gib": 1}, "second": {"memory_gib": 1}}"#;
    let reference = folder.path().join("reference.json");
    fs::write(&reference, needs).expect("written");
    let reference = reference.display().to_string();
    let env = [("MODEL_POOL__CATALOG__MODEL_REFERENCE", reference.as_str())];
    let pool = Pool::with_env(&files, "", &env);
    for model in ["own", "below"] {
        let (status, text) = pool.post("/v1/chat/completions", &chat(model, false));
        assert_eq!(status, 200, "{model}: {text}");
    }
}

/// Every key of llama-swap's own example.
const EVERYTHING: &str = r#"
healthCheckTimeout: 500
logLevel: info
logTimeFormat: ""
logToStdout: proxy
metricsMaxInMemory: 1000
captureBuffer: 15
startPort: 10001
sendLoadingState: true
includeAliasesInList: false
globalTTL: 0
unloadTimeout: 20
macros:
  latest: llama-server --port ${PORT}
  default_ctx: 4096
  default_args: "--ctx-size ${default_ctx}"
apiKeys: ["sk-hunter2", "${env.API_KEY_1}"]
models:
  gpt-oss-120b:
    macros: {default_ctx: 16384, temp: 0.7}
    cmd: |
      # ${latest} is a macro
      ${latest}
      --model /srv/gpt-oss-120B.gguf
      ${default_args} --parallel 2
      --temp ${temp}
    name: "gpt-oss 120B"
    description: "A thinking model"
    env: ["CUDA_VISIBLE_DEVICES=0,1", "HF_TOKEN=hf_verysecretvalue", "OMP_NUM_THREADS=4"]
    checkEndpoint: /custom-endpoint
    ttl: 60
    useModelName: openai/gpt-oss-120B
    filters:
      stripParams: "temperature, top_p"
      setParams: {temperature: 0.7, provider: {zdr: true}}
      setParamsByID: {"${MODEL_ID}:high": {reasoning_effort: high}}
    aliases: [{id: gpt-4o-mini, name: x, unlisted: false}, "not an alias"]
    metadata: {port: "${PORT}"}
    concurrencyLimit: 5
    sendLoadingState: false
    timeouts: {connect: 30}
  qwen-unlisted:
    unlisted: true
    cmd: llama-server --port ${PORT} -m /srv/Llama-3.2-1B.gguf -ngl 0 --no-mmap
  docker-llama:
    proxy: "http://127.0.0.1:${PORT}"
    cmd: docker run --name ${MODEL_ID} --rm -p ${PORT}:8080 ghcr.io/ggml-org/llama.cpp:server --model /m.gguf
    cmdStop: docker stop ${MODEL_ID}
  qwen3:8b/a/b:
    cmd: vllm serve Qwen/Qwen3-8B --port ${PORT} -tp 2
matrix:
  vars: {g: gpt-oss-120b}
  sets: {full: "g"}
hooks: {on_startup: {preload: [gpt-4o-mini, nobody]}}
peers:
  openrouter:
    proxy: https://openrouter.ai/api
    apiKey: ${env.OPENROUTER_API_KEY}
    models: [meta-llama/llama-3.1-8b-instruct, "deepseek/v3:free"]
    filters: {stripParams: temperature}
  lan: {proxy: "http://192.168.1.23", apiKey: sk-lan-secret, models: [model_a]}
somethingNew: 1
"#;

#[test]
fn a_llama_swap_file_is_converted_or_reported_completely_and_no_secret_is_copied() {
    let weights = tempfile::tempdir().expect("a folder");
    for name in ["gpt-oss-120B.gguf", "Llama-3.2-1B.gguf"] {
        support::tiny_gguf::write(&weights.path().join(name), 7);
    }
    let text = EVERYTHING.replace("/srv/", &format!("{}/", weights.path().display()));
    let (folder, ended) = import("llama-swap", &text, &[], &[]);
    let said = ended.done().stdout;
    assert_has(
        &said,
        &[
            "line 2", // a line is named
            "logTimeFormat: has no counterpart",
            "logToStdout: has no counterpart",
            "metricsMaxInMemory: has no counterpart",
            "captureBuffer: has no counterpart",
            "startPort: has no counterpart",
            "sendLoadingState: has no counterpart",
            "includeAliasesInList: has no counterpart",
            "apiKeys: 2 keys were not copied",
            "matrix: has no counterpart",
            "hooks.on_startup.preload: refers to nobody",
            "somethingNew: is not known",
            "models.gpt-oss-120b.checkEndpoint",
            "models.gpt-oss-120b.env[1]: looks like a secret",
            "models.gpt-oss-120b.filters.stripParams",
            "models.gpt-oss-120b.filters.setParams.provider",
            "models.gpt-oss-120b.filters.setParamsByID",
            "models.gpt-oss-120b.aliases[1]",
            "models.gpt-oss-120b.metadata",
            "models.gpt-oss-120b.timeouts",
            "models.gpt-oss-120b.concurrencyLimit: 5 is not used",
            "models.gpt-oss-120b.name: is kept in pool_config.labels",
            "models.qwen-unlisted.unlisted",
            "--no-mmap",
            "models.docker-llama.cmdStop",
            "runs a container directly",
            "qwen3:8b/a/b is qwen3-8b/a-b here",
            "peers.openrouter.filters",
            "peers.lan.apiKey: was not copied: set LAN_API_KEY",
            "7 models imported",
        ],
    );
    let needs = r#"{"docker-llama": {"memory_gib": 3}}"#;
    check(folder.path(), needs).done();
    let files = files(folder.path());
    let all = all_text(&files, &said);
    for secret in ["hunter2", "verysecret", "sk-lan"] {
        assert!(!all.contains(secret), "{secret} was copied");
    }
    let text = |name: &str| file(&files, name);
    assert_has(
        text("gpt-oss-120b.yaml"),
        &[
            "type: LlamaCppEngine",
            "max_total_tokens: 8192",
            "temp: 0.7",
            "priority: 2",
            "keep_hot: 60s",
            "- gpt-4o-mini",
            "load_deadline: 500s",
            "stop_grace: 20s",
            "served_model_name: openai/gpt-oss-120B",
            "env_vars_to_propogate:",
            "- HF_TOKEN",
            "OMP_NUM_THREADS:",
            "indices:",
            "gpus_per_replica: 2",
            "generate_kwargs:",
            "max_ongoing_requests: 2",
        ],
    );
    assert_has(
        text("qwen-unlisted.yaml"),
        &["type: CommandEngine", "{{ port }}", "--no-mmap"],
    );
    assert_has(
        text("docker-llama.yaml"),
        &["{{ port }}:8080", "max_ongoing_requests: 10"],
    );
    assert_has(
        text("qwen3-8b--a-b.yaml"),
        &["type: VLLMEngine", "gpus_per_replica: 2"],
    );
    assert_has(
        text("deepseek--v3-free.yaml"),
        &[
            "model_id: deepseek/v3:free",
            "url: https://openrouter.ai/api/v1",
            "api_key_env: OPENROUTER_API_KEY",
        ],
    );
    let config = fs::read_to_string(folder.path().join("imported/model-pool.yaml")).expect("read");
    assert_has(
        &config,
        &[
            "keep_hot: 365days",
            "cleanup: null",
            "inference: key",
            "level: info",
            "models_dir: ",
        ],
    );
}

#[test]
fn a_model_that_cannot_be_converted_is_reported_with_its_line_and_others_are_written() {
    let text = "models:\n  good:\n    cmd: server --port ${PORT}\n  deaf:\n    cmd: server --verbose\n  far:\n    cmd: server --port ${PORT}\n    proxy: http://10.0.0.9:${PORT}\n  open:\n    cmd: server --port ${PORT} 'open\n  unknown:\n    cmd: server --port ${PORT} ${modl}\n  secret:\n    cmd: server --port ${PORT} --token ${env.MY_TOKEN}\n  empty: {}\n";
    let (folder, ended) = import("llama-swap", text, &[], &[("MY_TOKEN", "sesame")]);
    let ended = ended.refused(&["6 of 7 models were left out"]);
    assert_has(
        &ended.stdout,
        &[
            "left out: theirs.yaml: line 5: models.deaf.cmd: does not use ${PORT}",
            "line 7: models.far.cmd: is reached at 10.0.0.9",
            "line 10: models.open.cmd: has an unterminated quotation mark",
            "line 12: models.unknown.cmd: the macro ${modl} does not exist",
            "line 14: models.secret.cmd: uses ${env.MY_TOKEN}, which looks like a secret",
            "models.empty.cmd: is missing",
            "imported/models/good.yaml",
        ],
    );
    assert!(!ended.stdout.contains("sesame"), "{ended:?}");
    assert_eq!(files(folder.path()).len(), 1);
    check(folder.path(), r#"{"good": {"memory_gib": 1}}"#).done();
}

#[test]
fn the_memory_of_an_unknown_program_is_estimated_from_its_files() {
    let weights = tempfile::tempdir().expect("a folder");
    let file = weights.path().join("ggml-large.bin");
    let made = fs::File::create(&file).expect("made");
    made.set_len(3 << 30).expect("a file with a hole");
    let text = format!(
        "models: {{whisper: {{cmd: 'whisper-server --port ${{PORT}} --model={}'}}}}\n",
        file.display()
    );
    let (folder, ended) = import("llama-swap", &text, &[], &[]);
    assert_has(
        &ended.done().stdout,
        &["its memory is estimated", "pool_config.memory_gib: 4.1"],
    );
    assert_has(&files(folder.path())[0].1, &["memory_gib: 4.1"]);
    check(folder.path(), "{}").done();
}

#[test]
fn without_a_gpu_models_of_llama_swap_need_no_memory_of_one() {
    let model = fs::canonicalize("tests/fixtures/gguf/written-by-gguf-py-00001-of-00003.gguf")
        .expect("a model");
    let model = model.display();
    let text = format!(
        "macros:\n  server: llama-server --port ${{PORT}} -m {model} -c 4096\nmodels:\n  dense:\n    cmd: ${{server}} -ngl 99 -np 2 -fa on\n  experts:\n    cmd: ${{server}} -ngl 99 --n-cpu-moe 20 -np 1\n  patterns:\n    cmd: ${{server}} -ngl 99 -ot exps=CPU -ot attn=CUDA0 -dev CUDA0\n  shell:\n    cmd: sh -c 'exec ${{server}} --cpu-moe'\n"
    );
    let (folder, ended) = import("llama-swap", &text, &[], &[]);
    ended.done();
    // The CUDA context of a GPU alone takes as much.
    let env = [
        ("MODEL_POOL__INVENTORY__PROVIDER", "host"),
        ("MODEL_POOL__INVENTORY__HOST_MEMORY", "512MiB"),
    ];
    let words = ["check", "--config", "imported/model-pool.yaml"];
    let checked = model_pool(folder.path(), &words, &env);
    for name in ["dense", "experts", "patterns", "shell"] {
        let fits = format!("model {name}: fits on host");
        assert!(
            checked.stdout.contains(&fits),
            "{name}:\n{}{}",
            checked.stdout,
            checked.stderr
        );
    }
    // On GPUs the parts are named by place.
    let gpus = check(folder.path(), "{}");
    assert_has(
        &gpus.stdout,
        &[
            "model experts: estimated by place: ",
            " on the host: --n-cpu-moe 20",
        ],
    );
}
