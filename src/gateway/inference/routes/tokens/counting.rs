//! Counts lists of tokens in engine responses without parsing their elements.

use std::marker::PhantomData;

use axum::body::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use api_types::error::Failure;

/// The tokens of a text, in vLLM's form.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub count: usize,
    pub body: Bytes,
}

/// An engine's response. Token lists are kept as raw JSON, because they can be very long.
#[derive(Deserialize)]
struct Tokenized<'a> {
    #[serde(borrow)]
    tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    max_model_len: Option<&'a RawValue>,
    #[serde(borrow)]
    token_strs: Option<&'a RawValue>,
}

/// Reads the response of any engine as vLLM's form.
pub(crate) fn counted(model: &str, bytes: &Bytes) -> Result<Tokens, Failure> {
    let without = || Failure::engine(model, "an answer without tokens");
    let response: Tokenized<'_> = serde_json::from_slice(bytes).map_err(|_| without())?;
    let tokens = response.tokens.ok_or_else(without)?.get();
    let count = elements::<IgnoredAny>(tokens).ok_or_else(without)?;
    let longest = response.max_model_len.map_or("null", RawValue::get);
    let mut body = format!("{{\"tokens\":{tokens},\"count\":{count},\"max_model_len\":{longest}");
    if let Some(strings) = response.token_strs {
        body.push_str(",\"token_strs\":");
        body.push_str(strings.get());
    }
    body.push('}');
    let body = body.into();
    Ok(Tokens { count, body })
}

/// Returns the number of elements if all of them have type `T`. Keeps none of them.
pub(crate) fn elements<T: for<'de> Deserialize<'de>>(list: &str) -> Option<usize> {
    struct Count<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Count<T> {
        type Value = usize;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
            let mut count = 0;
            while list.next_element::<T>()?.is_some() {
                count += 1;
            }
            Ok(count)
        }
    }

    let mut list = serde_json::Deserializer::from_str(list);
    list.deserialize_seq(Count(PhantomData::<T>)).ok()
}
