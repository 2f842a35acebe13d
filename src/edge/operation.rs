//! The operation of a request, as OpenTelemetry's conventions for generative AI name it.

/// The name of the operation of a route; `None` for other routes. The conventions name the first three; the others have the names of
/// their APIs.
pub fn operation(path: &str) -> Option<&'static str> {
    path.split('/').find_map(|part| match part {
        "chat" | "messages" | "responses" => Some("chat"),
        "completions" | "completion" | "infill" | "generate" => Some("text_completion"),
        "embeddings" | "embed" => Some("embeddings"),
        "rerank" => Some("rerank"),
        "score" => Some("score"),
        "tokenize" => Some("tokenize"),
        "detokenize" => Some("detokenize"),
        "transcriptions" => Some("transcription"),
        "translations" => Some("translation"),
        "speech" => Some("speech"),
        "images" => Some("image_generation"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_all_apis_have_the_names_of_the_conventions() {
        for (path, expected) in [
            ("/v1/chat/completions", Some("chat")),
            ("/llm/v1/messages", Some("chat")),
            ("/v1/responses/compact", Some("chat")),
            ("/api/chat", Some("chat")),
            ("/v1/completions", Some("text_completion")),
            ("/v1/infill", Some("text_completion")),
            ("/api/generate", Some("text_completion")),
            ("/v1/embeddings", Some("embeddings")),
            ("/api/embed", Some("embeddings")),
            ("/v1/rerank", Some("rerank")),
            ("/v1/audio/transcriptions", Some("transcription")),
            ("/v1/images/generations", Some("image_generation")),
            ("/query/m", None),
            ("/v1/what-ever-a-client-sends", None),
        ] {
            assert_eq!(operation(path), expected, "{path}");
        }
    }
}
