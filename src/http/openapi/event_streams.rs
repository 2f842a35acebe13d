//! Describes event streams in the API document. Routes name the type of the events' data. OpenAPI describes an event by its fields,
//! where `data` is a string with its own content schema.

use serde_json::{Value, json};

const EVENTS: &str = "text/event-stream";

/// Wraps the schema of each stream's data into an event schema.
pub(crate) fn describe(document: &mut Value) {
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        // OpenAI's older streams end with `[DONE]`, or with an error instead of a chunk.
        let has_mark = path.ends_with("/completions");
        for (_, operation) in item.as_object_mut().into_iter().flatten() {
            let responses = operation["responses"].as_object_mut();
            for (_, response) in responses.into_iter().flatten() {
                let content = response
                    .get_mut("content")
                    .and_then(|content| content.get_mut(EVENTS));
                if let Some(schema) = content.and_then(|events| events.get_mut("schema")) {
                    *schema = event(schema.take(), has_mark);
                }
            }
        }
    }
}

fn event(data: Value, has_mark: bool) -> Value {
    let json = |schema: Value| json!({"type": "string", "contentMediaType": "application/json", "contentSchema": schema});
    let mut text = if has_mark {
        let error = json!({"$ref": "#/components/schemas/ErrorBody"});
        let mark = json!({"type": "string", "const": "[DONE]"});
        json!({"anyOf": [json(json!({"anyOf": [data, error]})), mark]})
    } else {
        json(data)
    };
    text["description"] = json!("JSON as text.");
    json!({
        "type": "object",
        "required": ["data"],
        "properties": {
            "event": {"type": "string", "description": "The name of the event."},
            "id": {"type": "string", "description": "The id of the event."},
            "data": text,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_stream_data_is_described_as_text_with_a_schema() {
        let piece = json!({"$ref": "#/components/schemas/Piece"});
        let responses = json!({"post": {"responses": {
            "200": {"content": {EVENTS: {"schema": piece}, "application/json": {"schema": piece}}},
            "400": {"$ref": "#/components/responses/BadRequest"},
        }}});
        let mut document =
            json!({"paths": {"/v1/messages": responses, "/v1/completions": responses}});
        describe(&mut document);
        let content =
            |path: &str| document["paths"][path]["post"]["responses"]["200"]["content"].clone();
        let messages = content("/v1/messages");
        assert_eq!(messages["application/json"]["schema"], piece);
        let data = &messages[EVENTS]["schema"]["properties"]["data"];
        assert_eq!(data["contentSchema"], piece);
        let completions = content("/v1/completions");
        let data = &completions[EVENTS]["schema"]["properties"]["data"]["anyOf"];
        assert_eq!(data[0]["contentSchema"]["anyOf"][0], piece);
        assert_eq!(data[1]["const"], "[DONE]");
    }
}
