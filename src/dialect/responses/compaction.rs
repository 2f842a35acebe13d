//! Compacts a conversation: the model writes a summary, which the client gets encrypted and sends back in place of the items before
//! it, together with the latest messages of the user.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::super::chunk::Chunk;
use super::super::ids::new_id;
use super::super::seal::Sealer;
use super::super::translation::{Hints, Reading, TranslatedRequest};
use super::continued::{conversation, earlier};
use super::items::{add_request, messages};
use super::kept::items_of;
use super::response::usage_object;
use super::tools::ToolNames;
use crate::fields::RequestFields;
use crate::stored::Earlier;
use api_types::error::Failure;
use reading::IgnoredFields;

/// Largest size of the user's messages that stay.
const USER_BYTES_MAX: usize = 64 << 10;
const REQUEST: &str = "Summarize this conversation for another model that continues it without having read it. State the goal of the user, the \
     decisions and constraints, the results so far with exact names, paths, numbers and code that are still needed, and the open \
     steps. Write only the summary.";

/// Writes the response of a compaction.
#[derive(Clone, Debug)]
pub struct Compaction {
    model: String,
    created_seconds: u64,
    sealer: Sealer,
    /// The messages of the user that stay, as JSON.
    user: Vec<String>,
}

/// Reads `POST /v1/responses/compact` and returns the chat that requests a summary.
pub fn compact(body: &Bytes, reading: &Reading) -> Result<TranslatedRequest<Compaction>, Failure> {
    let mut request = RequestFields::parse(body)?;
    let mut ignored = IgnoredFields::default();
    let mut unused = Map::new();
    let model = request.need_text("model")?;
    let instructions = request.text("instructions")?;
    let input = request.take("input").unwrap_or_else(|| json!([]));
    conversation(&mut request, None, reading, &mut unused)?;
    let earlier = earlier(&mut request, reading, &mut unused)?;
    let user = user_messages(&input);
    let names = ToolNames::default();
    let sealer = &reading.sealer;
    let mut messages = messages(instructions, earlier, input, &names, sealer, &mut ignored)?;
    add_request(&mut messages, REQUEST);
    for name in ["prompt_cache_key", "service_tier", "safety_identifier"] {
        request.take(name);
    }
    let chat = json!({"model": model, "messages": messages});
    Ok(TranslatedRequest {
        body: chat.to_string().into(),
        teller: Compaction {
            model,
            created_seconds: reading.now_seconds,
            sealer: sealer.clone(),
            user,
        },
        ignored: ignored.names(),
        hints: Box::new(Hints {
            unknown: request.unknown(),
            ..Hints::default()
        }),
        keep: None,
    })
}

/// The latest messages of the user within the limit, oldest first.
fn user_messages(input: &Value) -> Vec<String> {
    let items = items_of(input, &Earlier::default());
    let mut bytes = 0;
    let mut latest: Vec<String> = Vec::new();
    for item in items.into_iter().rev() {
        let read: Value = serde_json::from_str(&item.item).unwrap_or_default();
        if read["type"] != "message" || read["role"] != "user" {
            continue;
        }
        bytes += item.item.len();
        if bytes > USER_BYTES_MAX {
            break;
        }
        latest.push(item.item);
    }
    latest.reverse();
    latest
}

impl Compaction {
    pub fn respond(self, chunk: Chunk) -> Result<Value, Failure> {
        if chunk.text.trim().is_empty() {
            return Err(Failure::engine(&self.model, "a summary without text"));
        }
        let sealed = self.sealer.seal(&chunk.text);
        let sealed = sealed.ok_or_else(|| {
            Failure::internal("the system has no random bytes to encrypt the summary")
        })?;
        let messages = self.user.iter();
        let mut output: Vec<Value> = messages
            .filter_map(|item| serde_json::from_str(item).ok())
            .collect();
        output
            .push(json!({"type": "compaction", "id": new_id("cmp"), "encrypted_content": sealed}));
        Ok(json!({
            "id": new_id("resp"), "object": "response.compaction",
            "created_at": self.created_seconds, "output": output,
            "usage": usage_object(chunk.usage.unwrap_or_default()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::request::tests::reading;

    #[test]
    fn a_compaction_replaces_items_with_an_encrypted_summary_and_keeps_messages_of_the_user() {
        let reading = reading();
        let body = json!({"model": "m", "instructions": "Be kind.", "input": [
            {"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}]});
        let read = compact(&body.to_string().into(), &reading).unwrap();
        let chat: Value = serde_json::from_slice(&read.body).unwrap();
        assert_eq!(chat["messages"][3]["role"], "user");
        assert_eq!(chat["messages"][3]["content"], REQUEST);
        let reply = json!({"choices": [{"message": {"content": "They greeted."}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3}});
        let response = read.teller.respond(Chunk::of_response(&reply)).unwrap();
        assert_eq!(response["object"], "response.compaction");
        assert_eq!(response["usage"]["total_tokens"], 12);
        let output = response["output"].as_array().unwrap();
        assert_eq!(output[0]["content"][0]["text"], "One");
        assert_eq!(output[1]["type"], "compaction");
        let mut next = output.clone();
        next.push(json!({"role": "user", "content": "Three"}));
        let body = json!({"model": "m", "input": next});
        let read = super::super::read(&body.to_string().into(), &reading).unwrap();
        let chat: Value = serde_json::from_slice(&read.body).unwrap();
        let text = chat["messages"].to_string();
        assert!(text.contains("They greeted."), "{text}");
    }

    #[test]
    fn a_summary_of_another_server_is_refused_by_field() {
        let item = json!({"type": "compaction", "encrypted_content": "gAAAA"});
        let body = json!({"model": "m", "input": [item]});
        let failure = super::super::read(&body.to_string().into(), &reading()).unwrap_err();
        let param = failure.body.error.param.as_deref();
        assert_eq!(param, Some("input[0].encrypted_content"));
    }

    #[test]
    fn a_model_that_writes_no_summary_is_an_error_of_the_engine() {
        let body = json!({"model": "m", "input": "One"});
        let read = compact(&body.to_string().into(), &reading()).unwrap();
        let reply = json!({"choices": [{"message": {"content": ""}}]});
        assert!(read.teller.respond(Chunk::of_response(&reply)).is_err());
    }
}
