//! Writes the class of a request into its response as OpenAI's `service_tier`, for requests that set one.

use serde_json::{Value, json};

use dialect::events::data_of;

/// The event with its tier. Events that hold no object, such as comments and `[DONE]`, stay as they are.
pub(super) fn with_tier(event: Vec<u8>, tier: &str) -> Vec<u8> {
    let chunk = data_of(&event).and_then(|data| serde_json::from_slice::<Value>(&data).ok());
    match chunk {
        Some(mut chunk) if chunk.get("choices").is_some() => {
            chunk["service_tier"] = json!(tier);
            format!("data: {chunk}\n\n").into_bytes()
        }
        _ => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chunks_get_a_tier() {
        let tiered = |event: &str| {
            let event = with_tier(event.as_bytes().to_vec(), "flex");
            String::from_utf8(event).expect("text")
        };
        assert_eq!(
            tiered("data: {\"choices\":[],\"service_tier\":null}\n\n"),
            "data: {\"choices\":[],\"service_tier\":\"flex\"}\n\n"
        );
        for other in [
            "data: [DONE]\n\n",
            ": waiting\n\n",
            "data: {\"error\":{}}\n\n",
            "data: x\n\n",
        ] {
            assert_eq!(tiered(other), other);
        }
    }
}
