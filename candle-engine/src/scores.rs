//! The JSON of tokens and their logprobs, for both routes.

use crate::pieces::ScoredToken;
use crate::vocabulary::Vocabulary;
use serde_json::{Map, Value, json};

/// The `logprobs` of a chat choice.
pub(crate) fn of_chat(tokens: &[ScoredToken], vocabulary: &Vocabulary) -> Value {
    let one = |token: u32, logprob: f32| {
        let bytes = vocabulary.bytes(token);
        json!({"token": String::from_utf8_lossy(bytes), "logprob": logprob, "bytes": bytes})
    };
    let content = tokens.iter().filter_map(|scored| {
        let logprob = scored.logprob.as_ref()?;
        let mut entry = one(scored.token, logprob.logprob);
        let top = logprob
            .top
            .iter()
            .map(|(token, logprob)| one(*token, *logprob));
        entry["top_logprobs"] = top.collect();
        Some(entry)
    });
    json!({"content": content.collect::<Vec<_>>(), "refusal": null})
}

/// The `logprobs` of a completion choice, in OpenAI's older form: always includes the chosen token in the top list.
pub(crate) fn of_completion(tokens: &[ScoredToken], vocabulary: &Vocabulary) -> Value {
    let (mut texts, mut logprobs) = (Vec::new(), Vec::new());
    let (mut tops, mut offsets) = (Vec::new(), Vec::new());
    for scored in tokens {
        texts.push(Value::from(name(vocabulary.bytes(scored.token))));
        offsets.push(Value::from(scored.offset));
        // The first token of a prompt has no context and therefore no probability.
        let Some(logprob) = &scored.logprob else {
            logprobs.push(Value::Null);
            tops.push(Value::Null);
            continue;
        };
        logprobs.push(Value::from(logprob.logprob));
        let mut top = Map::new();
        for (token, logprob) in &logprob.top {
            top.insert(name(vocabulary.bytes(*token)), Value::from(*logprob));
        }
        let chosen = name(vocabulary.bytes(scored.token));
        top.insert(chosen, Value::from(logprob.logprob));
        tops.push(Value::Object(top));
    }
    json!({"tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets})
}

/// The name of a token. Tokens with incomplete characters show their bytes, as in OpenAI's older form.
fn name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let bytes = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}", bytes.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_character_is_shown_as_bytes() {
        assert_eq!(name("é".as_bytes()), "é");
        assert_eq!(name(&[0xf0, 0x9f]), "bytes:\\xf0\\x9f");
    }
}
