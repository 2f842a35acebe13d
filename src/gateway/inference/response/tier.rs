//! Writes the class of a request into its response as OpenAI's `service_tier`, for requests that set one.

use serde_json::{Value, json};

use api_types::dto::class_name;
use dialect::events::data_of;
use pool::ServiceClass;

/// The tier of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The class in which the pool serves the request.
    pub class: ServiceClass,
    /// The engine is a remote endpoint. The tier that it names stays, because it bills that one.
    pub is_remote: bool,
}

impl Tier {
    /// Sets the tier of a response or of a chunk.
    pub(crate) fn set(self, response: &mut Value) {
        let is_named = response.get("service_tier").is_some_and(Value::is_string);
        if !(self.is_remote && is_named) {
            response["service_tier"] = json!(class_name(self.class));
        }
    }

    /// The event with its tier. Events that hold no object, such as comments and `[DONE]`, stay as they are.
    pub(super) fn set_in(self, event: Vec<u8>) -> Vec<u8> {
        let chunk = data_of(&event).and_then(|data| serde_json::from_slice::<Value>(&data).ok());
        match chunk {
            Some(mut chunk) if chunk.get("choices").is_some() => {
                self.set(&mut chunk);
                format!("data: {chunk}\n\n").into_bytes()
            }
            _ => event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiered(event: &str, is_remote: bool) -> String {
        let class = ServiceClass::Flex;
        let event = Tier { class, is_remote }.set_in(event.as_bytes().to_vec());
        String::from_utf8(event).expect("text")
    }

    #[test]
    fn only_chunks_get_a_tier() {
        assert_eq!(
            tiered("data: {\"choices\":[],\"service_tier\":null}\n\n", false),
            "data: {\"choices\":[],\"service_tier\":\"flex\"}\n\n"
        );
        for other in [
            "data: [DONE]\n\n",
            ": waiting\n\n",
            "data: {\"error\":{}}\n\n",
            "data: x\n\n",
        ] {
            assert_eq!(tiered(other, false), other);
        }
    }

    #[test]
    fn the_tier_that_a_remote_endpoint_names_stays() {
        let named = "data: {\"choices\":[],\"service_tier\":\"default\"}\n\n";
        assert_eq!(tiered(named, true), named);
        assert_eq!(tiered(named, false), named.replace("default", "flex"));
        let unnamed = "data: {\"choices\":[]}\n\n";
        assert_eq!(
            tiered(unnamed, true),
            "data: {\"choices\":[],\"service_tier\":\"flex\"}\n\n"
        );
    }
}
