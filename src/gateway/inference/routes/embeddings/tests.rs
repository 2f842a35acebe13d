//! Tests of `embeddings.rs`.

use super::*;

#[test]
fn an_embedding_input_is_a_text_tokens_or_a_list_and_never_empty() {
    for input in [
        json!("a"),
        json!(["a", "b"]),
        json!([1, 2]),
        json!([[1], [2, 3]]),
    ] {
        assert_eq!(wrong_with(&input.to_string()), None, "{input}");
    }
    let many = json!(vec!["a"; INPUTS_MAX + 1]);
    for input in [
        json!(""),
        json!([]),
        json!(["a", ""]),
        json!([[]]),
        json!(["a", 1]),
        json!([-1]),
        json!({}),
        json!(null),
        many,
    ] {
        assert!(wrong_with(&input.to_string()).is_some(), "{input}");
    }
}

#[test]
fn embeddings_are_always_requested_as_numbers() {
    let body = |format: Value| {
        json!({"input": "a", "encoding_format": format, "x": 1})
            .to_string()
            .into()
    };
    let (sent, is_base64) = checked(&body(json!("base64")), true).unwrap();
    assert_eq!(
        (sent.as_ref(), is_base64),
        (br#"{"input":"a","x":1}"#.as_slice(), true)
    );
    assert!(!checked(&body(json!("float")), true).unwrap().1);
    for (body, param) in [
        (
            json!({"input": "a", "encoding_format": "hex"}),
            "encoding_format",
        ),
        (json!({"input": "a", "dimensions": 2}), "dimensions"),
        (json!({"input": "a", "dimensions": 0}), "dimensions"),
        (json!({"input": ""}), "input"),
        (json!({}), "input"),
    ] {
        let failure = checked(&body.to_string().into(), false).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(param));
    }
}

fn response(vectors: &[Value]) -> Bytes {
    let data: Vec<Value> = vectors
        .iter()
        .map(|vector| json!({"object": "embedding", "embedding": vector}))
        .collect();
    json!({"data": data, "usage": {"prompt_tokens": 1}})
        .to_string()
        .into()
}

#[test]
fn a_vector_becomes_its_little_endian_floats() {
    let response = response(&[json!([1.0, -2.5]), json!("AACAPw==")]);
    let shown: Value = serde_json::from_slice(&computed(response, true).unwrap()).unwrap();
    let bytes = STANDARD
        .decode(shown["data"][0]["embedding"].as_str().unwrap())
        .unwrap();
    assert_eq!(
        bytes,
        [1.0_f32.to_le_bytes(), (-2.5_f32).to_le_bytes()].concat()
    );
    assert_eq!(shown["data"][1]["embedding"], "AACAPw==");
}

#[test]
fn an_embedding_with_non_numbers_is_an_error_in_both_encodings() {
    let base64 = |floats: &[f32]| {
        let bytes: Vec<u8> = floats
            .iter()
            .flat_map(|float| float.to_le_bytes())
            .collect();
        json!(STANDARD.encode(bytes))
    };
    let good = || json!([0.5, 1, -2]);
    for vector in [good(), json!([[0.5], [1.0]]), base64(&[0.5])] {
        for as_base64 in [false, true] {
            let response = response(&[good(), vector.clone()]);
            assert!(computed(response, as_base64).is_ok(), "{vector}");
        }
    }
    for vector in [
        json!(null),
        json!([]),
        json!([null, 0.5]),
        json!([[0.5, null]]),
        json!([1e300, 0.5]),
        json!("not base64"),
        json!("AAA="),
        base64(&[0.5, f32::NAN]),
        base64(&[f32::INFINITY]),
        json!({}),
    ] {
        for as_base64 in [false, true] {
            // Plain numbers are only scanned, not parsed.
            let is_plain = vector == json!([1e300, 0.5]) || vector == json!([]);
            if !as_base64 && is_plain {
                continue;
            }
            let response = response(&[good(), vector.clone()]);
            assert_eq!(
                computed(response, as_base64),
                Err(Uncomputed(1)),
                "{vector}"
            );
        }
    }
}
