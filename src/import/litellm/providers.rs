//! LiteLLM's providers with an OpenAI API: their addresses and key variables, as in LiteLLM. Other providers need a translation
//! that a RemoteEngine does not have.

/// Access settings for the models of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The part before the `/` in `litellm_params.model`.
    pub prefix: &'static str,
    /// `None`: `api_base` is required.
    pub url: Option<&'static str>,
    /// The variable that LiteLLM reads if `api_key` is missing; `None`: no key is sent.
    pub key: Option<&'static str>,
    /// A path to append to `api_base`, which LiteLLM expects without it.
    pub path: &'static str,
    /// LiteLLM uses the provider's own API; its OpenAI endpoint has an address other than `api_base`.
    pub is_translated: bool,
}

const fn at(prefix: &'static str, url: &'static str, key: &'static str) -> Provider {
    Provider {
        prefix,
        url: Some(url),
        key: Some(key),
        path: "",
        is_translated: false,
    }
}

/// A provider whose own API LiteLLM uses; the address is its OpenAI endpoint's.
const fn translated(
    prefix: &'static str,
    url: Option<&'static str>,
    key: &'static str,
) -> Provider {
    Provider {
        prefix,
        url,
        key: Some(key),
        path: "",
        is_translated: true,
    }
}

const fn anywhere(prefix: &'static str, key: Option<&'static str>) -> Provider {
    Provider {
        prefix,
        url: None,
        key,
        path: "",
        is_translated: false,
    }
}

const COHERE: &str = "https://api.cohere.ai/compatibility/v1";
const ZHIPU: &str = "https://open.bigmodel.cn/api/paas/v4";
pub const CLOUDFLARE: &str = "cloudflare";
/// Its endpoint expects names with their publisher.
pub const GITHUB: &str = "github";

const PROVIDERS: [Provider; 38] = [
    at("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    at(
        "text-completion-openai",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
    ),
    at("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    at("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    at(
        "deepseek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
    ),
    at(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
    ),
    at(
        "together_ai",
        "https://api.together.xyz/v1",
        "TOGETHERAI_API_KEY",
    ),
    at(
        "fireworks_ai",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_AI_API_KEY",
    ),
    at("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    at(
        "nvidia_nim",
        "https://integrate.api.nvidia.com/v1",
        "NVIDIA_NIM_API_KEY",
    ),
    at("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    at(
        "sambanova",
        "https://api.sambanova.ai/v1",
        "SAMBANOVA_API_KEY",
    ),
    at(
        "deepinfra",
        "https://api.deepinfra.com/v1/openai",
        "DEEPINFRA_API_KEY",
    ),
    at(
        "meta_llama",
        "https://api.llama.com/compat/v1",
        "LLAMA_API_KEY",
    ),
    at(
        "codestral",
        "https://codestral.mistral.ai/v1",
        "CODESTRAL_API_KEY",
    ),
    translated(
        "gemini",
        Some("https://generativelanguage.googleapis.com/v1beta/openai"),
        "GEMINI_API_KEY",
    ),
    at(
        GITHUB,
        "https://models.github.ai/inference",
        "GITHUB_API_KEY",
    ),
    translated("cohere", Some(COHERE), "COHERE_API_KEY"),
    translated("cohere_chat", Some(COHERE), "COHERE_API_KEY"),
    translated(CLOUDFLARE, None, "CLOUDFLARE_API_KEY"),
    at("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    at("zhipu", ZHIPU, "ZHIPUAI_API_KEY"),
    at("zhipuai", ZHIPU, "ZHIPUAI_API_KEY"),
    at(
        "perplexity",
        "https://api.perplexity.ai",
        "PERPLEXITYAI_API_KEY",
    ),
    at("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    at(
        "dashscope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
    ),
    at(
        "hyperbolic",
        "https://api.hyperbolic.xyz/v1",
        "HYPERBOLIC_API_KEY",
    ),
    at(
        "nebius",
        "https://api.studio.nebius.ai/v1",
        "NEBIUS_API_KEY",
    ),
    at(
        "novita",
        "https://api.novita.ai/v3/openai",
        "NOVITA_API_KEY",
    ),
    anywhere("hosted_vllm", Some("HOSTED_VLLM_API_KEY")),
    anywhere("litellm_proxy", Some("LITELLM_PROXY_API_KEY")),
    anywhere("openai_like", None),
    anywhere("custom_openai", None),
    anywhere("lm_studio", Some("LM_STUDIO_API_KEY")),
    anywhere("llamafile", None),
    anywhere("xinference", None),
    Provider {
        prefix: "ollama",
        url: Some("http://localhost:11434/v1"),
        key: None,
        path: "/v1",
        is_translated: false,
    },
    Provider {
        prefix: "ollama_chat",
        url: Some("http://localhost:11434/v1"),
        key: None,
        path: "/v1",
        is_translated: false,
    },
];

/// The provider, and its name for the model. `Err`: the reason why a RemoteEngine cannot reach it.
pub fn provider_of(
    model: &str,
    custom: Option<&str>,
    has_base: bool,
) -> Result<(Provider, String), String> {
    let find = |prefix: &str| {
        PROVIDERS
            .into_iter()
            .find(|provider| provider.prefix == prefix)
    };
    let refused = |prefix: &str| {
        format!(
            "models of `{prefix}` cannot be reached with OpenAI's API and a bearer token, which a RemoteEngine uses (docs/guides/remote.md)"
        )
    };
    if let Some(custom) = custom {
        let provider = find(custom).ok_or_else(|| refused(custom))?;
        let own = model
            .strip_prefix(custom)
            .and_then(|rest| rest.strip_prefix('/'));
        return Ok((provider, own.unwrap_or(model).to_owned()));
    }
    if let Some((prefix, own)) = model.split_once('/') {
        return match find(prefix) {
            Some(provider) => Ok((provider, own.to_owned())),
            None => Err(refused(prefix)),
        };
    }
    // LiteLLM recognises OpenAI's own models by name, without a prefix.
    let is_openai = [
        "gpt-",
        "o1",
        "o3",
        "o4",
        "chatgpt-",
        "text-embedding-",
        "ft:gpt-",
    ]
    .iter()
    .any(|start| model.starts_with(start));
    match find("openai").filter(|_| is_openai || has_base) {
        Some(openai) => Ok((openai, model.to_owned())),
        None => Err(format!(
            "`{model}` has no provider; write it as provider/{model}, or as openai/{model} with api_base for a custom server"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_of_a_litellm_model_names_its_provider() {
        for (model, custom, has_base, prefix, own) in [
            ("openai/gpt-4o", None, false, "openai", "gpt-4o"),
            ("gpt-4o", None, false, "openai", "gpt-4o"),
            (
                "openrouter/meta/llama",
                None,
                false,
                "openrouter",
                "meta/llama",
            ),
            (
                "org/model",
                Some("hosted_vllm"),
                true,
                "hosted_vllm",
                "org/model",
            ),
            ("my-model", None, true, "openai", "my-model"),
        ] {
            let (provider, read) = provider_of(model, custom, has_base).expect(model);
            assert_eq!((provider.prefix, read.as_str()), (prefix, own), "{model}");
        }
        for (model, why) in [
            ("bedrock/anthropic.claude", "models of `bedrock`"),
            ("azure/gpt", "bearer token"),
            ("my-model", "has no provider"),
        ] {
            let problem = provider_of(model, None, false).expect_err(model);
            assert!(problem.contains(why), "{problem}");
        }
    }
}
