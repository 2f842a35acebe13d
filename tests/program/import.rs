//! `model-pool import`: configurations of llama-swap and LiteLLM become model files that the program checks and serves.
//! One file because both importers have the same requirements.

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::net::chat;
use support::servers::{KEY, Stub};
use support::service::Pool;
use support::table::rows_of;

use super::commands::{CommandOutput, model_pool};

/// Imports this text into a new folder.
fn import(
    kind: &str,
    text: &str,
    words: &[&str],
    env: &[(&str, &str)],
) -> (tempfile::TempDir, CommandOutput) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("theirs.yaml"), text).expect("written");
    let words: Vec<&str> = ["import", kind, "theirs.yaml"]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    let ended = model_pool(folder.path(), &words, env);
    (folder, ended)
}

/// Adds the memory needs that the models' files do not contain.
fn check(folder: &Path, reference: &str) -> CommandOutput {
    fs::write(folder.join("reference.json"), reference).expect("written");
    let env = [
        ("MODEL_POOL__CATALOG__MODEL_REFERENCE", "reference.json"),
        ("MODEL_POOL__INVENTORY__PROVIDER", "fixed"),
        (
            "MODEL_POOL__INVENTORY__DEVICES",
            "[{name: gpu0, memory: 80GiB}, {name: gpu1, memory: 80GiB}]",
        ),
    ];
    let words = ["check", "--config", "imported/model-pool.yaml"];
    model_pool(folder, &words, &env)
}

fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder.join("imported/models"))
        .expect("a folder")
        .flatten();
    let file = |path: std::path::PathBuf| {
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        (name, fs::read_to_string(path).expect("read"))
    };
    let mut files: Vec<_> = entries.map(|entry| file(entry.path())).collect();
    files.sort();
    files
}

fn has(text: &str, words: &[&str]) {
    for words in words {
        assert!(text.contains(words), "{words:?} is missing in:\n{text}");
    }
}

#[test]
fn models_of_llama_swap_are_served_as_before() {
    let stub = support::stub::stub_engine().display().to_string();
    let text = format!(
        "macros:\n  engine: {stub} --port ${{PORT}}\nmodels:\n  small:\n    cmd: |\n      # the stub\n      ${{engine}} \\\n      --model theirs\n    useModelName: theirs\n    aliases: [gpt-4o-mini]\n    ttl: 60\n  \"fixed/one\":\n    cmd: {stub} --port 9876 --model fixed/one\n    proxy: http://127.0.0.1:9876\nhooks:\n  on_startup:\n    preload: [small]\n"
    );
    let (folder, ended) = import("llama-swap", &text, &[], &[]);
    let ended = ended.done();
    has(
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
    has(
        &said,
        &[
            &format!("assumed to listen on 127.0.0.1:{port}"),
            "3 models imported",
        ],
    );
    let files = files(folder.path());
    let text = |name: &str| &files.iter().find(|(file, _)| file == name).expect(name).1;
    has(
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

/// A model | its URL | its key
const ENDPOINTS: &str = r"
    a | http://10.0.0.7:8000/v1 | K
    b | https://generativelanguage.googleapis.com/v1beta/openai | GEMINI_API_KEY
    c | https://models.github.ai/inference | GITHUB_TOKEN
    d | https://api.cohere.ai/compatibility/v1 | COHERE_API_KEY
    e | https://api.cloudflare.com/client/v4/accounts/abc/ai/v1 | CLOUDFLARE_API_KEY
    f | https://api.z.ai/api/paas/v4 | ZAI_API_KEY
    g | https://api.cloudflare.com/client/v4/accounts/other/ai/v1 |
";

#[test]
fn providers_with_an_endpoint_like_openais_are_imported() {
    let text = "model_list:
  - {model_name: a, litellm_params: {model: hosted_vllm/m, api_base: os.environ/VLLM_BASE, api_key: os.environ/K}}
  - {model_name: b, litellm_params: {model: gemini/gemini-2.5-flash, api_key: os.environ/GEMINI_API_KEY}}
  - {model_name: c, litellm_params: {model: github/openai/gpt-4o, api_key: os.environ/GITHUB_TOKEN}}
  - {model_name: d, litellm_params: {model: cohere/command-a-03-2025}}
  - {model_name: e, litellm_params: {model: \"cloudflare/@cf/meta/llama-3.1-8b-instruct\"}}
  - {model_name: f, litellm_params: {model: zai/glm-4.6}}
  - {model_name: g, litellm_params: {model: cloudflare/m, api_base: https://api.cloudflare.com/client/v4/accounts/other/ai/run/}}
";
    let env = [
        ("VLLM_BASE", "http://10.0.0.7:8000/v1"),
        ("CLOUDFLARE_ACCOUNT_ID", "abc"),
    ];
    let (folder, ended) = import("litellm", text, &[], &env);
    let said = ended.done().stdout;
    has(&said, &["current value of the variable VLLM_BASE"]);
    let files = files(folder.path());
    for [name, url, key] in rows_of(ENDPOINTS) {
        let file = format!("{name}.yaml");
        let text = &files.iter().find(|(own, _)| *own == file).expect(name).1;
        has(text, &[&format!("url: {url}\n"), key]);
    }
    // Without the variables, only the models that need them are left out.
    let (_, ended) = import("litellm", text, &[], &[]);
    let refused = ended.refused(&["2 of 7 models were left out"]);
    has(
        &refused.stdout,
        &[
            "VLLM_BASE, which is not set here",
            "CLOUDFLARE_ACCOUNT_ID is not set here",
        ],
    );
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
    has(
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
    let all: String = files
        .iter()
        .map(|(_, text)| text.as_str())
        .chain([said.as_str()])
        .collect();
    for secret in ["hunter2", "verysecret", "sk-lan"] {
        assert!(!all.contains(secret), "{secret} was copied");
    }
    let text = |name: &str| &files.iter().find(|(file, _)| file == name).expect(name).1;
    has(
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
    has(
        text("qwen-unlisted.yaml"),
        &["type: CommandEngine", "{{ port }}", "--no-mmap"],
    );
    has(
        text("docker-llama.yaml"),
        &["{{ port }}:8080", "max_ongoing_requests: 10"],
    );
    has(
        text("qwen3-8b--a-b.yaml"),
        &["type: VLLMEngine", "gpus_per_replica: 2"],
    );
    has(
        text("deepseek--v3-free.yaml"),
        &[
            "model_id: deepseek/v3:free",
            "url: https://openrouter.ai/api/v1",
            "api_key_env: OPENROUTER_API_KEY",
        ],
    );
    let config = fs::read_to_string(folder.path().join("imported/model-pool.yaml")).expect("read");
    has(
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
    has(
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

/// A program | its file | a part of the message
const UNREADABLE: &str = r"
    llama-swap | models:\n  a:\n   cmd: [x\n | theirs.yaml: line
    llama-swap | models:\n  a: {cmd: x}\n  a: {cmd: y}\n | `a` is given twice
    llama-swap | macros:\n  a: ${b}\n  b: ${a}\nmodels: {}\n | line 2: macros.a: the macros refer to themselves: a → b → a
    llama-swap | models: {}\n | there is no model in it
    llama-swap | globalTTL: soon\nmodels: {}\n | line 1: globalTTL: a whole number
    llama-swap | - a\n | keys with values are expected
    litellm | model_list: []\n | model_list: is missing or empty
    litellm | model_list:\n  - a: [\n | theirs.yaml: line
";

#[test]
fn a_file_that_cannot_be_read_writes_nothing_and_names_the_line() {
    for [kind, text, words] in rows_of(UNREADABLE) {
        let (folder, ended) = import(kind, text, &[], &[]);
        let ended = ended.refused(&["theirs.yaml", words]);
        assert!(ended.stdout.is_empty(), "{ended:?}");
        assert!(!folder.path().join("imported").exists(), "{text}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    model_pool(folder.path(), &["import", "litellm", "none.yaml"], &[])
        .refused(&["cannot read none.yaml"]);
}

#[test]
fn an_import_replaces_files_only_with_force() {
    let text = "models: {a: {cmd: 'server --port ${PORT}'}}\n";
    let (folder, ended) = import("llama-swap", text, &["--into", "here"], &[]);
    ended.done();
    let again = |words: &[&str]| {
        let words: Vec<&str> = ["import", "llama-swap", "theirs.yaml", "--into", "here"]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        model_pool(folder.path(), &words, &[])
    };
    again(&[]).refused(&["here/model-pool.yaml exists", "--force"]);
    again(&["--force"]).done();
}

#[test]
fn entries_of_litellm_reach_their_endpoints_with_keys_from_the_environment() {
    let stub = Stub::with(&[]);
    let text = format!(
        "model_list:\n  - model_name: far\n    litellm_params:\n      model: openai/their-name\n      api_base: {url}\n      api_key: os.environ/FAR_KEY\n      temperature: 0.2\n      rpm: 600\n  - model_name: copied\n    litellm_params: {{model: hosted_vllm/their-name, api_base: \"{url}\", api_key: {KEY}}}\nrouter_settings:\n  model_group_alias: {{near: far}}\n",
        url = stub.url()
    );
    let (folder, ended) = import("litellm", &text, &[], &[]);
    let said = ended.done().stdout;
    has(
        &said,
        &[
            "2 models imported",
            "model_list[1].litellm_params.api_key: was not copied: set HOSTED_VLLM_API_KEY",
        ],
    );
    check(folder.path(), "{}").done();
    let files = files(folder.path());
    let all: String = files
        .iter()
        .map(|(_, text)| text.as_str())
        .chain([said.as_str()])
        .collect();
    assert!(!all.contains(KEY), "a key was copied");
    let config = fs::read_to_string(folder.path().join("imported/model-pool.yaml")).expect("read");
    has(&config, &["far:", "requests_per_minute: 600"]);
    let pool = Pool::with_env(
        &files,
        "",
        &[("FAR_KEY", KEY), ("HOSTED_VLLM_API_KEY", KEY)],
    );
    for model in ["far", "near", "copied"] {
        let (status, text) = pool.post("/v1/chat/completions", &chat(model, false));
        assert_eq!(status, 200, "{model}: {text}");
    }
}

#[test]
fn unsupported_litellm_settings_are_reported() {
    let text = r#"
model_list:
  - model_name: gpt-4o
    litellm_params: {model: gpt-4o, timeout: 30, organization: org-x, extra_headers: {X-Team: hidden-team}}
    model_info: {mode: chat, input_cost_per_token: 0.1}
  - model_name: gpt-4o
    litellm_params: {model: openrouter/openai/gpt-4o}
  - model_name: said
    litellm_params: {model: openai/gpt-4o, api_base: "https://api.openai.com/v1/"}
  - model_name: a.b/c.d/e
    litellm_params: {model: ollama/qwen3:8b, api_base: "http://localhost:11434"}
  - model_name: az
    litellm_params: {model: azure/gpt-4o, api_base: "https://x.openai.azure.com", api_key: sk-azure}
  - model_name: no-base
    litellm_params: {model: hosted_vllm/m}
  - model_name: "*"
    litellm_params: {model: "*"}
  - litellm_params: {model: gpt-4o}
litellm_settings: {drop_params: true, num_retries: 3, newThing: 1}
router_settings: {routing_strategy: least-busy, redis_password: hunter2, model_group_alias: {x: nobody}}
general_settings: {master_key: sk-1234, database_url: "postgresql://u:pw@h/db"}
environment_variables: {REDIS_PASSWORD: hunter3}
"#;
    let (folder, ended) = import("litellm", text, &[], &[]);
    let ended = ended.refused(&["4 of 8 models were left out"]);
    has(
        &ended.stdout,
        &[
            "model_list[0].litellm_params.timeout",
            "model_list[0].litellm_params.organization",
            "model_list[0].litellm_params.extra_headers",
            "model_list[0].model_info.input_cost_per_token",
            "gpt-4o is the name of several entries",
            "this one is named gpt-4o-2",
            "a.b/c.d/e is a.b/c.d-e here",
            "models of `azure` cannot be reached",
            "api_base is missing: `hosted_vllm` has no default address",
            "* is a pattern",
            "model_name is missing",
            "litellm_settings.drop_params",
            "litellm_settings.num_retries",
            "litellm_settings.newThing",
            "router_settings.routing_strategy",
            "router_settings.redis_password",
            "model_group_alias.x: was left out",
            "general_settings.master_key",
            "general_settings.database_url",
            "environment_variables: has no counterpart",
        ],
    );
    let files = files(folder.path());
    let all: String = files
        .iter()
        .map(|(_, text)| text.as_str())
        .chain([ended.stdout.as_str()])
        .collect();
    for secret in ["hunter", "sk-1234", "sk-azure", "pw@h", "hidden-team"] {
        assert!(!all.contains(secret), "{secret} was copied");
    }
    let text = |name: &str| &files.iter().find(|(file, _)| file == name).expect(name).1;
    has(
        text("gpt-4o.yaml"),
        &[
            "url: https://api.openai.com/v1",
            "api_key_env: OPENAI_API_KEY",
        ],
    );
    has(text("said.yaml"), &["api_key_env: OPENAI_API_KEY"]);
    has(
        text("a.b--c.d-e.yaml"),
        &[
            "url: http://localhost:11434/v1",
            "served_model_name: qwen3:8b",
        ],
    );
    check(folder.path(), "{}").done();
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
    has(
        &ended.done().stdout,
        &["its memory is estimated", "pool_config.memory_gib: 4.1"],
    );
    has(&files(folder.path())[0].1, &["memory_gib: 4.1"]);
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
    has(
        &gpus.stdout,
        &[
            "model experts: estimated by place: ",
            " on the host: --n-cpu-moe 20",
        ],
    );
}
