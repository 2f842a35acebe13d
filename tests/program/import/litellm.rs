//! Configurations of LiteLLM become model files.

use std::fs;

use support::assert_has;
use support::net::chat;
use support::servers::{KEY, Stub};
use support::service::Pool;
use support::table::rows_of;

use super::{all_text, check, file, files, import};

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
    assert_has(&said, &["current value of the variable VLLM_BASE"]);
    let files = files(folder.path());
    for [name, url, key] in rows_of(ENDPOINTS) {
        let text = file(&files, &format!("{name}.yaml"));
        assert_has(text, &[&format!("url: {url}\n"), key]);
    }
    // Without the variables, only the models that need them are left out.
    let (_, ended) = import("litellm", text, &[], &[]);
    let refused = ended.refused(&["2 of 7 models were left out"]);
    assert_has(
        &refused.stdout,
        &[
            "VLLM_BASE, which is not set here",
            "CLOUDFLARE_ACCOUNT_ID is not set here",
        ],
    );
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
    assert_has(
        &said,
        &[
            "2 models imported",
            "model_list[1].litellm_params.api_key: was not copied: set HOSTED_VLLM_API_KEY",
        ],
    );
    check(folder.path(), "{}").done();
    let files = files(folder.path());
    let all = all_text(&files, &said);
    assert!(!all.contains(KEY), "a key was copied");
    let config = fs::read_to_string(folder.path().join("imported/model-pool.yaml")).expect("read");
    assert_has(&config, &["far:", "requests_per_minute: 600"]);
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
    assert_has(
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
    let all = all_text(&files, &ended.stdout);
    for secret in ["hunter", "sk-1234", "sk-azure", "pw@h", "hidden-team"] {
        assert!(!all.contains(secret), "{secret} was copied");
    }
    let text = |name: &str| file(&files, name);
    assert_has(
        text("gpt-4o.yaml"),
        &[
            "url: https://api.openai.com/v1",
            "api_key_env: OPENAI_API_KEY",
        ],
    );
    assert_has(text("said.yaml"), &["api_key_env: OPENAI_API_KEY"]);
    assert_has(
        text("a.b--c.d-e.yaml"),
        &[
            "url: http://localhost:11434/v1",
            "served_model_name: qwen3:8b",
        ],
    );
    check(folder.path(), "{}").done();
}
