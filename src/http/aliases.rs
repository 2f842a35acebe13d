//! Paths of other services and the routes that they are mapped to. Clients with a fixed base URL or path can reach the pool without
//! a rewriting proxy. docs/reference/api.md has the table.

use std::borrow::Cow;

use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;

/// Prefixes that clients put before OpenAI's paths: `/v1` given twice in a base URL, and the prefixes of OpenRouter,
/// Open WebUI, Groq, Azure, Google and Docker.
const PREFIXES: [&str; 7] = [
    "/v1/v1/",
    "/api/v1/",
    "/openai/v1/",
    "/v1beta/openai/",
    "/engines/llama.cpp/v1/",
    "/engines/v1/",
    "/openai/",
];
const V1: &str = "/v1/";
/// Prefixes before the model's name in the paths of Azure and of OpenAI's first API.
const DEPLOYMENTS: [&str; 2] = ["/openai/deployments/", "/v1/engines/"];
/// Routes after the model's name. They match at the end of the path, because a name may contain slashes.
const OF_DEPLOYMENTS: [&str; 10] = [
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/responses",
    "/audio/transcriptions",
    "/audio/translations",
    "/audio/speech",
    "/images/generations",
    "/images/edits",
    "/images/variations",
];
/// Single routes: Cohere's and Jina's, llama.cpp's, OpenAI's first API.
const ROUTES: [(&str, &str); 6] = [
    ("/v2/rerank", "/v1/rerank"),
    ("/v1/reranking", "/v1/rerank"),
    ("/infill", "/v1/infill"),
    ("/completion", "/v1/completion"),
    ("/props", "/v1/props"),
    ("/v1/engines", "/v1/models"),
];
/// More rounds than any client's path needs.
const ROUNDS: usize = 4;

/// The route for an aliased path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alias {
    pub path: String,
    /// The model named in the path.
    pub model: Option<String>,
}

/// The route for a path, if it is an alias. At most four rounds, each in one pass.
pub(super) fn resolve(path: &str, base: &str) -> Option<Alias> {
    let (before, below) = match path.strip_prefix(base) {
        Some(below) if below.starts_with('/') => (base, below),
        _ => ("", path),
    };
    // Regular paths need no allocation.
    let mut route = Cow::Borrowed(below);
    let mut model = None;
    for _ in 0..ROUNDS {
        if let Some((name, rest)) = deployment(&route) {
            model = Some(name);
            route = Cow::Owned(rest);
        } else if let Some(next) = next(&route) {
            route = Cow::Owned(next);
        } else {
            break;
        }
    }
    (route != below || model.is_some()).then(|| Alias {
        path: format!("{before}{route}"),
        model,
    })
}

fn next(route: &str) -> Option<String> {
    let is_listed = route.len() > V1.len() && route.starts_with(V1);
    if let Some(short) = route.strip_suffix('/').filter(|_| is_listed) {
        return Some(short.to_owned());
    }
    if let Some((_, known)) = ROUTES.iter().find(|(alias, _)| *alias == route) {
        return Some((*known).to_owned());
    }
    // A single model in OpenAI's first API.
    if let Some(name) = route.strip_prefix("/v1/engines/") {
        return Some(format!("/v1/models/{name}"));
    }
    let rest = PREFIXES
        .iter()
        .find_map(|prefix| route.strip_prefix(prefix))?;
    (!rest.is_empty()).then(|| format!("{V1}{rest}"))
}

/// The model named in a path, and the route after it.
fn deployment(route: &str) -> Option<(String, String)> {
    let rest = DEPLOYMENTS
        .iter()
        .find_map(|prefix| route.strip_prefix(prefix))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let mut ends = OF_DEPLOYMENTS.iter();
    let (name, end) = ends.find_map(|end| Some((rest.strip_suffix(end)?, end)))?;
    let name = percent_decode_str(name).decode_utf8().ok()?;
    (!name.is_empty()).then(|| (name.into_owned(), format!("/v1{end}")))
}

/// The URI with another path and the same query.
pub(super) fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let target = match uri.query() {
        None => path.to_owned(),
        Some(query) => format!("{path}?{query}"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(path: &str) -> Option<(String, Option<String>)> {
        resolve(path, "/llm").map(|alias| (alias.path, alias.model))
    }

    #[test]
    fn paths_of_other_services_map_to_routes_of_the_pool() {
        for (path, route) in [
            ("/v1/v1/chat/completions", "/v1/chat/completions"),
            ("/api/v1/models", "/v1/models"),
            ("/llm/api/v1/models", "/llm/v1/models"),
            ("/openai/v1/responses", "/v1/responses"),
            ("/openai/v1/v1/responses", "/v1/responses"),
            ("/openai/models", "/v1/models"),
            ("/v1beta/openai/embeddings", "/v1/embeddings"),
            ("/engines/llama.cpp/v1/models", "/v1/models"),
            ("/engines/v1/models", "/v1/models"),
            ("/v1/engines", "/v1/models"),
            ("/v1/engines/tiny-chat", "/v1/models/tiny-chat"),
            ("/v1/models/", "/v1/models"),
            ("/v1/models/a%2Fb/", "/v1/models/a%2Fb"),
            ("/llm/v1/chat/completions/", "/llm/v1/chat/completions"),
            ("/v2/rerank", "/v1/rerank"),
            ("/v1/reranking", "/v1/rerank"),
            ("/llm/v2/rerank", "/llm/v1/rerank"),
            ("/infill", "/v1/infill"),
            ("/llm/props", "/llm/v1/props"),
        ] {
            assert_eq!(resolved(path), Some((route.to_owned(), None)), "{path}");
        }
    }

    #[test]
    fn a_path_may_contain_the_model() {
        for (path, model, route) in [
            (
                "/openai/deployments/gpt-4o/chat/completions",
                "gpt-4o",
                "/v1/chat/completions",
            ),
            (
                "/openai/deployments/org/m/completions",
                "org/m",
                "/v1/completions",
            ),
            (
                "/llm/openai/deployments/org%2Fm/embeddings",
                "org/m",
                "/llm/v1/embeddings",
            ),
            (
                "/openai/deployments/m/audio/speech/",
                "m",
                "/v1/audio/speech",
            ),
            (
                "/v1/engines/davinci/completions",
                "davinci",
                "/v1/completions",
            ),
        ] {
            let expected = (route.to_owned(), Some(model.to_owned()));
            assert_eq!(resolved(path), Some(expected), "{path}");
        }
    }

    #[test]
    fn other_paths_are_unchanged() {
        for path in [
            "/",
            "/v1/",
            "/v1/models",
            "/llm/v1/chat/completions",
            "/api/chat",
            "/api/v1/",
            "/openai/",
            "/llm/admin/models/",
            "/llmx/openai/models/x/../y",
            "/chat/completions",
        ] {
            assert_eq!(resolved(path), None, "{path}");
        }
    }

    #[test]
    fn rewriting_the_path_keeps_the_query() {
        let uri: Uri = "/openai/models?api-version=2024-10-21".parse().unwrap();
        let uri = with_path(&uri, "/v1/models").unwrap();
        assert_eq!(uri, "/v1/models?api-version=2024-10-21");
    }
}
