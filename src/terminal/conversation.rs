//! A conversation: its model, instructions, parameters and messages, and the request that continues it. Pure.

use serde_json::{Map, Value, json};

use super::parameters::Parameters;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub role: Role,
    pub text: String,
}

#[derive(Clone, Debug, Default)]
pub struct Conversation {
    pub model: String,
    pub system: Option<String>,
    pub parameters: Parameters,
    messages: Vec<Message>,
    /// A prompt without a response.
    pending: Option<String>,
}

impl Conversation {
    pub fn new(model: &str, system: Option<String>) -> Conversation {
        Conversation {
            model: model.to_owned(),
            system: system.filter(|text| !text.is_empty()),
            ..Conversation::default()
        }
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Sets the next prompt. It becomes part of the conversation together with its response.
    pub fn prompt(&mut self, text: String) {
        self.pending = Some(text);
    }

    /// Adds the response to the prompt. An empty response leaves the prompt pending.
    pub fn add_response(&mut self, response: &str) {
        if response.is_empty() {
            return;
        }
        if let Some(text) = self.pending.take() {
            let message = |role, text| Message { role, text };
            self.messages.push(message(Role::User, text));
            self.messages
                .push(message(Role::Assistant, response.to_owned()));
        }
    }

    /// Removes the last response and makes its prompt pending again. Returns false if there is none.
    pub fn retry(&mut self) -> bool {
        if self.pending.is_none() && self.messages.len() >= 2 {
            self.messages.pop();
            self.pending = self.messages.pop().map(|message| message.text);
        }
        self.pending.is_some()
    }

    /// Forgets the messages; instructions and parameters stay.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.pending = None;
    }

    /// Builds the request for the next response.
    pub fn request(&self, is_stream: bool) -> Value {
        let message = |role: &str, text: &str| json!({"role": role, "content": text});
        let mut messages = Vec::new();
        messages.extend(self.system.iter().map(|text| message("system", text)));
        messages.extend(
            self.messages
                .iter()
                .map(|sent| message(sent.role.name(), &sent.text)),
        );
        messages.extend(self.pending.iter().map(|text| message("user", text)));
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(self.model));
        body.insert("messages".to_owned(), Value::Array(messages));
        if is_stream {
            body.insert("stream".to_owned(), json!(true));
            body.insert("stream_options".to_owned(), json!({"include_usage": true}));
        }
        body.extend(self.parameters.as_map().clone());
        Value::Object(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(conversation: &Conversation) -> Vec<String> {
        let request = conversation.request(false);
        let messages = request["messages"].as_array().expect("messages");
        let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
        messages.iter().map(text).collect()
    }

    #[test]
    fn an_unanswered_prompt_is_replaced_by_the_next() {
        let mut conversation = Conversation::new("m", Some("be short".to_owned()));
        conversation.prompt("one".to_owned());
        conversation.add_response("1");
        conversation.prompt("two".to_owned());
        assert_eq!(texts(&conversation), ["be short", "one", "1", "two"]);
        conversation.add_response("");
        conversation.prompt("three".to_owned());
        assert_eq!(texts(&conversation), ["be short", "one", "1", "three"]);
    }

    #[test]
    fn a_retry_sends_the_last_prompt_again_with_or_without_a_response() {
        let mut conversation = Conversation::new("m", None);
        assert!(!conversation.retry());
        conversation.prompt("one".to_owned());
        conversation.add_response("1");
        assert!(conversation.retry());
        assert_eq!(texts(&conversation), ["one"]);
        assert!(conversation.retry(), "it has no answer yet");
        conversation.add_response("uno");
        assert_eq!(texts(&conversation), ["one", "uno"]);
        conversation.clear();
        assert!(!conversation.retry() && texts(&conversation).is_empty());
    }

    #[test]
    fn the_request_contains_the_parameters_and_a_stream_requests_usage() {
        let mut conversation = Conversation::new("m", Some(String::new()));
        conversation
            .parameters
            .set("temperature", "0")
            .expect("a number");
        conversation.prompt("hi".to_owned());
        let message = json!([{"role": "user", "content": "hi"}]);
        assert_eq!(
            conversation.request(false),
            json!({"model": "m", "messages": message, "temperature": 0.0})
        );
        let stream = conversation.request(true);
        assert_eq!(
            (
                &stream["stream"],
                &stream["stream_options"]["include_usage"]
            ),
            (&json!(true), &json!(true))
        );
    }
}
