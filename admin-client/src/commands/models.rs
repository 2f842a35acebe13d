//! The catalogue: `models`, `show`, `set`, `register`, `remove`. A model file is only converted to
//! JSON here; the server validates it.

use std::io::Read;
use std::path::Path;

use client::{ApiResponse, Method, Patience};
use serde_json::{Map, Value, json};

use crate::cli::{Change, RegisterArgs, SetArgs};
use crate::error::CommandError;
use crate::render::models as text;
use crate::render::quantity::Clock;
use crate::responses::{ModelList, ModelView};
use crate::session::Session;
use crate::style::clean;

pub async fn list(session: &Session) -> Result<(), CommandError> {
    let show = |list: &ModelList, style| text::models(&list.models, Clock::read(), style);
    session.get("admin/models", &[], show).await
}

pub async fn show(session: &Session, model: &str) -> Result<(), CommandError> {
    let show = |list: &ModelList, style| {
        let views = list.models.iter();
        views
            .map(|view| text::model(view, Clock::read(), style))
            .collect()
    };
    session.get("admin/models", &[("model", model)], show).await
}

pub async fn as_file(session: &Session, model: &str) -> Result<(), CommandError> {
    let query = [("model", model)];
    let text = session
        .client
        .get_text("admin/models/file", &query, "application/yaml")
        .await?;
    session.screen.print(text.trim_end())
}

pub async fn set(session: &Session, args: &SetArgs) -> Result<(), CommandError> {
    let mut body = Map::new();
    if let Some(priority) = &args.priority {
        body.insert("priority".to_owned(), value_of(priority));
    }
    if let Some(keep_hot) = &args.keep_hot {
        body.insert("keep_hot".to_owned(), value_of(keep_hot));
    }
    if let Some(lease) = &args.lease {
        body.insert("lease".to_owned(), value_of(lease));
    }
    let query = [("model", args.model.as_str())];
    let body = Value::Object(body);
    let response = session.client.patch("admin/models", &query, &body).await?;
    one(session, &response)
}

pub async fn register(session: &Session, args: &RegisterArgs) -> Result<(), CommandError> {
    let document = match &args.engine {
        None if is_hub_name(&args.what) => return register_by_name(session, &args.what).await,
        None => read_document(Path::new(&args.what))?,
        Some(engine) => document_of(args, engine_type(engine)?),
    };
    put(session, &[], Some(&document), Patience::Short).await
}

/// Registers a model that the server looks up on the hub. The server chooses the engine.
async fn register_by_name(session: &Session, name: &str) -> Result<(), CommandError> {
    put(session, &[("model", name)], None, Patience::Long).await
}

async fn put(
    session: &Session,
    query: &[(&str, &str)],
    document: Option<&Value>,
    patience: Patience,
) -> Result<(), CommandError> {
    let client = &session.client;
    let put = client.call(Method::PUT, "admin/models", query, document, patience);
    one(session, &put.await?)
}

/// The short names of engines, as the help lists them, with the types of model files.
const ENGINES: [(&str, &str); 7] = [
    ("vllm", "VLLMEngine"),
    ("sglang", "SGLangEngine"),
    ("tgi", "TextGenerationInferenceEngine"),
    ("llama-cpp", "LlamaCppEngine"),
    ("tei", "EmbeddingEngine"),
    ("trtllm", "TRTLLMEngine"),
    ("candle", "CandleEngine"),
];

/// Alternative names of the same engines.
const ALSO: [(&str, &str); 9] = [
    ("llama.cpp", "llama-cpp"),
    ("llamacpp", "llama-cpp"),
    ("llama-server", "llama-cpp"),
    ("ollama", "llama-cpp"),
    ("gguf", "llama-cpp"),
    ("embedding", "tei"),
    ("tensorrt-llm", "trtllm"),
    ("tensorrt", "trtllm"),
    ("text-generation-inference", "tgi"),
];

fn engines() -> String {
    ENGINES.map(|(name, _)| name).join(", ")
}

/// Returns true for `org/name` with an optional quantization, as in `org/name:Q4_K_M`, unless a file has this name.
fn is_hub_name(what: &str) -> bool {
    let is_part = |part: &str| {
        let ok = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(ok)
    };
    let (plain, tag) = match what.split_once(':') {
        Some((plain, tag)) => (plain, Some(tag)),
        None => (what, None),
    };
    let is_name = plain
        .split_once('/')
        .is_some_and(|(org, name)| is_part(org) && is_part(name) && tag.is_none_or(is_part));
    let is_model_file = [".yaml", ".yml", ".json"]
        .iter()
        .any(|end| what.ends_with(end));
    is_name && !is_model_file && !Path::new(what).exists()
}

/// The type in a model file for an engine's name. Leaves unknown types to the server.
fn engine_type(engine: &str) -> Result<&str, CommandError> {
    let name = engine.to_lowercase();
    let find = |name: &str| ENGINES.iter().find(|(short, _)| *short == name);
    if let Some((_, kind)) = find(&name) {
        return Ok(kind);
    }
    let also = ALSO
        .iter()
        .find(|(other, _)| *other == name)
        .map(|(_, short)| *short);
    // Ollama's models run, but Ollama itself does not.
    if let Some((_, kind)) = also.filter(|_| name != "ollama").and_then(find) {
        return Ok(kind);
    }
    if name.ends_with("engine") {
        return Ok(engine);
    }
    let near = also.or_else(|| reading::nearest(&name, ENGINES.iter().map(|(short, _)| *short)));
    let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Err(CommandError::Usage(format!(
        "--engine: unknown engine {engine:?}; use {}, or a type from model files{hint}",
        engines()
    )))
}

/// A minimal model document from the command line; the server validates it.
fn document_of(args: &RegisterArgs, kind: &str) -> Value {
    let mut document = json!({"engine_config": {"model_id": args.what, "type": kind}});
    let config = &mut document["engine_config"];
    match &args.path {
        Some(path) => config["model_path"] = json!(path),
        None => config["hf_model_id"] = json!(args.what),
    }
    if let Some(context) = args.context {
        config["max_total_tokens"] = json!(context);
    }
    let pool = [
        ("gpus_per_replica", args.gpus.map(Value::from)),
        ("priority", args.priority.map(Value::from)),
        ("memory_gib", args.memory_gib.map(Value::from)),
    ];
    for (key, value) in pool {
        if let Some(value) = value {
            document["pool_config"][key] = value;
        }
    }
    document
}

pub async fn remove(session: &Session, model: &str) -> Result<(), CommandError> {
    let response = session
        .client
        .delete("admin/models", &[("model", model)], Patience::Long)
        .await?;
    session.show(&response, |_: &Value| {
        format!("{} is removed from the catalogue\n", clean(model))
    })
}

fn one(session: &Session, response: &ApiResponse) -> Result<(), CommandError> {
    session.show(response, |view: &ModelView| {
        text::model(view, Clock::read(), session.screen.style)
    })
}

/// The new value, or null to remove the override.
fn value_of<T: Clone + Into<Value>>(change: &Change<T>) -> Value {
    match change {
        Change::To(value) => value.clone().into(),
        Change::Clear => Value::Null,
    }
}

/// Reads a model file; `-` is standard input. Text that begins with a brace and files named `.json`
/// are JSON, everything else is YAML.
fn read_document(file: &Path) -> Result<Value, CommandError> {
    let name = file.display();
    let usage = |problem: String| CommandError::Usage(format!("the model file {name} {problem}"));
    let bytes = if file == Path::new("-") {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        read.map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    let bytes = bytes.map_err(|error| usage(format!("cannot be read: {error}")))?;
    let text = reading::utf8(bytes).map_err(|error| usage(format!("is not text: {error}")))?;
    let is_json = file.extension().is_some_and(|end| end == "json");
    let is_json = is_json || text.trim_start().starts_with('{');
    let (document, format) = if is_json {
        (reading::json(&text), "JSON")
    } else {
        (reading::yaml(&text), "YAML")
    };
    match document.map_err(|error| usage(format!("is not valid {format}: {error}")))? {
        document @ Value::Object(_) => Ok(document),
        _ => Err(usage(
            "is not a mapping; it must have sections such as engine_config and pool_config"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(name: &str, text: &str) -> Result<Value, CommandError> {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join(name);
        std::fs::write(&file, text).expect("written");
        read_document(&file)
    }

    #[test]
    fn yaml_and_json_give_the_same_document() {
        let expected = json!({"engine_config": {"model_id": "org/m", "max": 2}, "pool_config": {"keep_hot": "10m"}});
        let yaml = "engine_config:\n  model_id: org/m\n  max: 2\npool_config: {keep_hot: 10m}\n";
        assert_eq!(document("m.yaml", yaml).expect("yaml"), expected);
        assert_eq!(
            document("m.json", &expected.to_string()).expect("json"),
            expected
        );
    }

    #[test]
    fn a_broken_file_is_refused_with_its_name_and_line() {
        let failure = document("broken.yaml", "a: 1\nb: [1,\nc: {\n").expect_err("broken");
        let text = failure.to_string();
        assert_eq!(failure.exit_status(), 2);
        assert!(
            text.contains("broken.yaml") && text.contains("line") && !text.contains("-->"),
            "{text}"
        );
        let text = document("broken.json", "{\n\"a\": }")
            .expect_err("broken")
            .to_string();
        assert!(
            text.contains("broken.json") && text.contains("line 2"),
            "{text}"
        );
    }

    #[test]
    fn a_file_that_is_not_a_mapping_is_refused() {
        for text in ["", "- a\n", "just text\n"] {
            assert_eq!(document("m.yaml", text).expect_err(text).exit_status(), 2);
        }
    }

    #[test]
    fn a_mistyped_engine_suggests_the_closest_name() {
        for (engine, kind) in [
            ("VLLM", "VLLMEngine"),
            ("llama.cpp", "LlamaCppEngine"),
            ("NewEngine", "NewEngine"),
        ] {
            assert_eq!(engine_type(engine).expect(engine), kind);
        }
        for (engine, near) in [
            ("vlm", "`vllm`"),
            ("sglan", "`sglang`"),
            ("Ollama", "`llama-cpp`"),
        ] {
            let failure = engine_type(engine).expect_err(engine);
            assert_eq!(failure.exit_status(), 2);
            let text = failure.to_string();
            assert!(text.contains(near) && text.contains("trtllm"), "{text}");
        }
        let text = engine_type("xyzzy").expect_err("unknown").to_string();
        assert!(!text.contains("did you mean"), "{text}");
    }

    #[test]
    fn a_hub_name_is_distinguished_from_a_file() {
        assert!(is_hub_name("Qwen/Qwen3-8B") && is_hub_name("org/m-GGUF:Q4_K_M"));
        for file in [
            "model.yaml",
            "models/a.yaml",
            "./a/b",
            "a/b/c",
            "/a",
            "-",
            "a b/c",
        ] {
            assert!(!is_hub_name(file), "{file}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let text = read_document(Path::new("no/such.yaml"))
            .expect_err("missing")
            .to_string();
        assert!(text.contains("no/such.yaml"), "{text}");
    }
}
