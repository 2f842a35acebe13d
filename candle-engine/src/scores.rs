//! The JSON of tokens and their probabilities, in the forms of both routes.

use crate::pieces::ScoredToken;
use crate::vocabulary::Vocabulary;
use serde_json::{Map, Value, json};

/// `logprobs` of a chat's choice.
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

/// `logprobs` of a completion's choice, in OpenAI's older form: the chosen token is among the likeliest always.
pub(crate) fn of_completion(tokens: &[ScoredToken], vocabulary: &Vocabulary) -> Value {
    let (mut texts, mut logprobs) = (Vec::new(), Vec::new());
    let (mut tops, mut offsets) = (Vec::new(), Vec::new());
    for scored in tokens {
        texts.push(Value::from(name(vocabulary.bytes(scored.token))));
        offsets.push(Value::from(scored.offset));
        // Before the first token of a prompt there is nothing that makes it likely.
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

/// A token as a name of its own: one that is part of a letter shows its bytes, as OpenAI's older form does.
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
    fn a_part_of_a_letter_shows_its_bytes() {
        assert_eq!(name("é".as_bytes()), "é");
        assert_eq!(name(&[0xf0, 0x9f]), "bytes:\\xf0\\x9f");
    }
}
