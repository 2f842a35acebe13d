//! Tests of token requests and responses.

use super::*;

fn read_of(body: Value) -> Result<TokenInput, Failure> {
    TokenInput::read(&body.to_string().into())
}

fn sent(input: &TokenInput) -> Value {
    serde_json::from_slice(&input.body("theirs")).unwrap()
}

#[test]
fn a_text_or_chat_to_tokenize_is_sent_in_vllms_form() {
    let input =
        read_of(json!({"model": "m", "prompt": "Hi", "add_special_tokens": false})).unwrap();
    assert_eq!(
        sent(&input),
        json!({"model": "theirs", "prompt": "Hi", "add_special_tokens": false})
    );
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let input = read_of(json!({"model": "m", "messages": messages, "add_generation_prompt": true}))
        .unwrap();
    assert_eq!(
        sent(&input),
        json!({"model": "theirs", "messages": messages, "add_generation_prompt": true})
    );
}

#[test]
fn unsupported_tokenize_fields_are_refused_by_name() {
    let url = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]);
    for (body, param) in [
        (json!({"model": "m"}), "prompt"),
        (
            json!({"model": "m", "prompt": "a", "messages": [{}]}),
            "prompt",
        ),
        (
            json!({"model": "m", "prompt": "a", "chat_template": "{{ x }}"}),
            "chat_template",
        ),
        (
            json!({"model": "m", "messages": url}),
            "messages[0].content[0]",
        ),
    ] {
        let failure = read_of(body).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(param));
    }
    for body in [
        json!({"model": "m"}),
        json!({"model": "m", "tokens": ["a"]}),
        json!({"model": "m", "tokens": []}),
    ] {
        assert!(tokens_in(&body.to_string().into()).is_err());
    }
}

#[test]
fn an_engine_that_cannot_tokenize_chats_is_refused_before_it_is_loaded() {
    let chat =
        || read_of(json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})).unwrap();
    assert!(chat().check("m", TokenApi::Vllm).is_ok());
    assert!(chat().check("m", TokenApi::LlamaCpp).is_ok());
    let failure = chat().check("m", TokenApi::Sglang).unwrap_err();
    assert_eq!(failure.status().as_u16(), 501);
}

#[test]
fn every_engines_tokenize_response_is_converted_to_vllms_form() {
    let shown = |response: Value| counted("m", &response.to_string().into());
    let body = |tokens: Tokens| -> Value { serde_json::from_slice(&tokens.body).unwrap() };
    assert_eq!(shown(json!({"tokens": [1, 2]})).unwrap().count, 2);
    assert_eq!(
        body(shown(json!({"tokens": [1, 2]})).unwrap()),
        json!({"tokens": [1, 2], "count": 2, "max_model_len": null})
    );
    let whole = json!({"tokens": [1], "count": 1, "max_model_len": 9, "token_strs": ["a"]});
    assert_eq!(body(shown(whole.clone()).unwrap()), whole);
    for none in [
        json!({}),
        json!({"tokens": null}),
        json!({"tokens": "a"}),
        json!([]),
    ] {
        assert_eq!(shown(none).unwrap_err().status().as_u16(), 502);
    }
}
