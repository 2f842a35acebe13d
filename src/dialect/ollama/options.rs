//! Translates `options`: sampling options become fields of the model's engine. Load options, and options that the engine does not
//! support, are reported as ignored.

use serde_json::{Map, Value, json};

use crate::fields::RequestFields;
use api_types::error::Failure;
use catalog::Recipe;

/// Numeric options that engines may support under another name.
const NUMBERS: [&str; 8] = [
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "top_k",
];
/// Integers among `NUMBERS`.
const INTEGERS: [&str; 1] = ["top_k"];
/// Boolean load options; a value of another type is refused.
const SWITCHES: [&str; 8] = [
    "numa",
    "low_vram",
    "f16_kv",
    "logits_all",
    "vocab_only",
    "use_mmap",
    "use_mlock",
    "penalize_newline",
];
/// Numeric load options, and sampler options that OpenAI's API does not have.
const OTHERS: [&str; 11] = [
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "num_keep",
    "repeat_last_n",
    "tfs_z",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
];

/// Writes the options as fields of `chat`. `recipe` is the model's recipe, if the model exists.
pub(super) fn read(
    request: &mut RequestFields,
    recipe: Option<&Recipe>,
    chat: &mut Map<String, Value>,
    ignored: &mut Vec<String>,
) -> Result<(), Failure> {
    let Some(mut options) = request.object("options")? else {
        return Ok(());
    };
    for name in NUMBERS {
        let value = if INTEGERS.contains(&name) {
            integer(&mut options, name)?.map(|number| json!(number))
        } else {
            options.number(name)?
        };
        let Some(value) = value else { continue };
        match recipe.and_then(|recipe| recipe.sampling_field(name)) {
            Some(field) => drop(chat.insert(field.to_owned(), value)),
            None => ignored.push(options.path(name)),
        }
    }
    // A negative seed means a new random seed, which is the default.
    if let Some(seed) = integer(&mut options, "seed")?.filter(|seed| *seed >= 0) {
        chat.insert("seed".to_owned(), json!(seed));
    }
    // 0 or less means no limit.
    if let Some(most) = integer(&mut options, "num_predict")?.filter(|most| *most > 0) {
        chat.insert("max_tokens".to_owned(), json!(most));
    }
    let stops = stops(&mut options)?;
    if !stops.is_empty() {
        chat.insert("stop".to_owned(), json!(stops));
    }
    without_effect(options, ignored)
}

/// Checks the options of an embeddings request. None changes the result.
pub fn for_embeddings(
    request: &mut RequestFields,
    ignored: &mut Vec<String>,
) -> Result<(), Failure> {
    let Some(mut options) = request.object("options")? else {
        return Ok(());
    };
    for name in NUMBERS.into_iter().chain(["seed", "num_predict"]) {
        if options.number(name)?.is_some() {
            ignored.push(options.path(name));
        }
    }
    if !stops(&mut options)?.is_empty() {
        ignored.push(options.path("stop"));
    }
    without_effect(options, ignored)
}

/// Checks the types of known options and reports all remaining options as ignored.
fn without_effect(mut options: RequestFields, ignored: &mut Vec<String>) -> Result<(), Failure> {
    for name in SWITCHES {
        if options.flag(name)?.is_some() {
            ignored.push(options.path(name));
        }
    }
    for name in OTHERS {
        if options.number(name)?.is_some() {
            ignored.push(options.path(name));
        }
    }
    ignored.extend(options.left());
    Ok(())
}

/// Reads an integer, which may be written as `40.0`.
fn integer(options: &mut RequestFields, name: &'static str) -> Result<Option<i64>, Failure> {
    let Some(value) = options.take(name) else {
        return Ok(None);
    };
    let of_float = |number: f64| {
        let fits = number.fract() == 0.0 && number.abs() < 9e15;
        fits.then_some(number as i64)
    };
    match value.as_i64().or_else(|| value.as_f64().and_then(of_float)) {
        Some(number) => Ok(Some(number)),
        None => Err(options.wrong(name, "a whole number")),
    }
}

fn stops(options: &mut RequestFields) -> Result<Vec<String>, Failure> {
    let wanted = "a string or a list of strings, none of them empty";
    let texts = match options.take("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![Value::String(text)],
        Some(Value::Array(list)) => list,
        Some(_) => return Err(options.wrong("stop", wanted)),
    };
    let text = |value: Value| match value {
        Value::String(text) if !text.is_empty() => Ok(text),
        _ => Err(options.wrong("stop", wanted)),
    };
    texts.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{Entry, Reference, Source};
    use config::Config;

    fn recipe(engine: &str) -> Recipe {
        let document =
            json!({"engine_config": {"model_id": "m", "type": engine, "model_path": "/m.gguf"}});
        let (config, reference) = (Config::default(), Reference::default());
        let read = Entry::from_document(&document, Source::Registered, &config, &reference);
        read.unwrap().0.recipe
    }

    fn fields(engine: &str, options: Value) -> (Value, Vec<String>) {
        let (mut chat, mut ignored) = (Map::new(), Vec::new());
        let mut request = RequestFields::new("", json!({"options": options})).unwrap();
        let recipe = recipe(engine);
        read(&mut request, Some(&recipe), &mut chat, &mut ignored).unwrap();
        (Value::Object(chat), ignored)
    }

    #[test]
    fn options_are_sent_under_each_engines_own_names() {
        let options = json!({"temperature": 0.5, "top_k": 40.0, "min_p": 0.1, "repeat_penalty": 1.1, "seed": 7,
            "num_predict": 9, "stop": ["a"], "presence_penalty": 1, "frequency_penalty": 0, "top_p": 0.9});
        let common = json!({"temperature": 0.5, "top_k": 40, "min_p": 0.1, "seed": 7, "max_tokens": 9,
            "stop": ["a"], "presence_penalty": 1, "frequency_penalty": 0, "top_p": 0.9});
        for (engine, name) in [
            ("CandleEngine", "repetition_penalty"),
            ("VLLMEngine", "repetition_penalty"),
            ("LlamaCppEngine", "repeat_penalty"),
        ] {
            let mut wanted = common.clone();
            wanted[name] = json!(1.1);
            let (sent, ignored) = fields(engine, options.clone());
            assert_eq!((sent, ignored), (wanted, vec![]), "{engine}");
        }
    }

    #[test]
    fn load_options_and_unknown_options_are_reported_and_not_sent() {
        let options = json!({"num_ctx": 4096, "num_gpu": 1, "use_mmap": true, "mirostat": 1, "shiny": 3, "seed": -1,
            "num_predict": -1, "stop": [], "numa": null});
        let (sent, ignored) = fields("CandleEngine", options);
        assert_eq!(sent, json!({}));
        let named = ["use_mmap", "num_ctx", "num_gpu", "mirostat", "shiny"];
        assert_eq!(ignored, named.map(|name| format!("options.{name}")));
        let (sent, ignored) = fields(
            "TextGenerationInferenceEngine",
            json!({"min_p": 0.1, "top_p": 0.5}),
        );
        assert_eq!(
            (sent, ignored),
            (json!({"top_p": 0.5}), vec!["options.min_p".to_owned()])
        );
    }

    #[test]
    fn options_of_a_wrong_type_are_refused_by_name() {
        for (options, named) in [
            (json!({"temperature": "hot"}), "options.temperature"),
            (json!({"top_k": 1.5}), "options.top_k"),
            (json!({"top_k": "40"}), "options.top_k"),
            (json!({"seed": true}), "options.seed"),
            (json!({"num_predict": []}), "options.num_predict"),
            (json!({"stop": [1]}), "options.stop"),
            (json!({"stop": ""}), "options.stop"),
            (json!({"num_ctx": "big"}), "options.num_ctx"),
            (json!({"use_mmap": 1}), "options.use_mmap"),
            (json!([1]), "options"),
        ] {
            let mut request = RequestFields::new("", json!({"options": options})).unwrap();
            let failure = read(&mut request, None, &mut Map::new(), &mut Vec::new()).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(named));
        }
    }

    #[test]
    fn embeddings_report_every_option_as_ignored() {
        let options = json!({"temperature": 0, "num_ctx": 512, "stop": ["a"], "seed": 1});
        let mut request = RequestFields::new("", json!({"options": options})).unwrap();
        let mut ignored = Vec::new();
        for_embeddings(&mut request, &mut ignored).unwrap();
        let named = ["temperature", "seed", "stop", "num_ctx"];
        assert_eq!(ignored, named.map(|name| format!("options.{name}")));
    }
}
