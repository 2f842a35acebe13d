//! `/api/embed` and the older `/api/embeddings`: vectors for texts, computed as for OpenAI's route.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::keep;
use api_types::error::Failure;
use api_types::schemas::ollama::{OllamaEmbedRequest, OllamaEmbeddingsRequest};
use catalog::ExtraRoute;
use dialect::RequestFields;
use dialect::assembler::ANSWER_MAX;
use dialect::ollama::{KeepAlive, Marks, bare_name, for_embeddings, keep_alive, name_of};
use edge::record;
use gateway::auth::User;
use gateway::inference::admission::RequestContext;
use gateway::inference::request::engine_routes::check_has;
use gateway::inference::request::failed::Failed;
use gateway::inference::request::ignored::note;
use gateway::inference::request::receiving;
use gateway::inference::routes::embeddings::vectors;
use gateway::inference::routes::unary_routes::seated;
use gateway::inference::understood;
use gateway::openapi::{OllamaErrors, WaitHeaders};
use gateway::state::App;

/// Tolerance for the length of a normalized vector.
const NORMAL_WITHIN: f64 = 1e-4;

/// The requested route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `input`, and normalized vectors.
    Embed,
    /// `prompt`, and a single unchanged vector.
    Embeddings,
}

/// Create embeddings (Ollama)
///
/// The vectors are normalized to length 1. Without an input the model is loaded. The same as embeddings.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/api/embed", tag = "ollama", operation_id = "ollama_embed",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = OllamaEmbedRequest, example = json!({
        "model": "tiny-guide", "input": ["keep-hot", "priority"]
    })),
    responses(
        (status = 200, description = "One vector for each text", body = Object, example = json!({
            "model": "tiny-guide", "embeddings": [[0.6, 0.8], [0.8, 0.6]], "total_duration": 14143917,
            "load_duration": 1019500, "prompt_eval_count": 4
        })),
        OllamaErrors,
    )
)]
pub(super) async fn embed(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    respond(app, user, request, Form::Embed).await
}

/// Create an embedding (Ollama, older form)
///
/// The vector is returned as computed by the engine.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/api/embeddings", tag = "ollama", operation_id = "ollama_embeddings",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = OllamaEmbeddingsRequest, example = json!({"model": "tiny-guide", "prompt": "keep-hot"})),
    responses(
        (status = 200, description = "The vector", body = Object, example = json!({"embedding": [0.6, 0.8]})),
        OllamaErrors,
    )
)]
pub(super) async fn embeddings(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    respond(app, user, request, Form::Embeddings).await
}

async fn respond(app: App, user: User, request: Request<Body>, form: Form) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(begin(&app, &context, request, form));
    context.end(&app, work).await
}

/// A parsed request.
#[derive(Debug)]
struct EmbedRequest {
    named: String,
    model: String,
    keep_alive: Option<KeepAlive>,
    /// OpenAI's body; `None` without input.
    body: Option<Bytes>,
    ignored: Vec<String>,
}

async fn begin(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
    form: Form,
) -> Result<Response, Failed> {
    let marks = Arc::new(Marks::begin(app.handle.clock()));
    let (parts, body) = request.into_parts();
    let body = receiving::read(app, body).await?;
    let (bytes, share) = (body.len(), record::share());
    let handle = app.handle.clone();
    let parsed = move || read(&body, form, &|name| handle.route(name).is_some());
    let parsed = app.reading.run(bytes, parsed).await;
    let EmbedRequest {
        named,
        model,
        keep_alive,
        body,
        mut ignored,
    } = parsed.map_err(|failure| (None, failure))?;
    let keep = keep::allowed(app, &parts, &model, keep_alive, &mut ignored).await;
    let Some(body) = body else {
        let route = understood::model(app, context, &model).await?;
        let name = route.entry.name.clone();
        let fail = |failure: Failure| (Some(name.clone()), failure);
        check_has(&route, ExtraRoute::Embeddings).map_err(fail)?;
        let mut served = seated(app, context, &route, bytes).await.map_err(fail)?;
        served.lease.keep(keep);
        served.responded(200);
        let response_out = match form {
            Form::Embed => json!({"model": named, "embeddings": []}),
            Form::Embeddings => json!({"embedding": []}),
        };
        return Ok(note(axum::Json(response_out).into_response(), &ignored));
    };
    let at_seat = Arc::clone(&marks);
    let response = vectors(app, context, share.charge(body), |served| {
        at_seat.seated();
        served.lease.keep(keep);
    });
    let response = response.await?;
    if !response.status().is_success() {
        return Ok(response);
    }
    let response_out = retold(app, response, form, named, marks).await;
    let response_out = response_out.map_err(|failure| (Some(model), failure))?;
    Ok(note(response_out, &ignored))
}

fn read(
    body: &Bytes,
    form: Form,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<EmbedRequest, Failure> {
    let mut parsed = RequestFields::parse(body)?;
    let named = name_of(&mut parsed)?;
    let bare = bare_name(&named);
    let model = if is_known(&named) || !(is_known(bare) || bare.contains('/')) {
        named.clone()
    } else {
        bare.to_owned()
    };
    let mut ignored = Vec::new();
    let keep_alive = keep_alive(&mut parsed)?;
    for_embeddings(&mut parsed, &mut ignored)?;
    let mut sent = Map::new();
    sent.insert("model".to_owned(), json!(model));
    let has_input = match form {
        Form::Embed => {
            if let Some(count) = parsed.count("dimensions")? {
                sent.insert("dimensions".to_owned(), json!(count));
            }
            // Engines return an error for texts that are too long.
            if parsed.flag("truncate")? == Some(true) {
                ignored.push("truncate".to_owned());
            }
            let input = parsed.take("input");
            let is_text = |value: &Value| value.is_string();
            let has_input = match &input {
                None => false,
                Some(Value::String(text)) => !text.is_empty(),
                Some(Value::Array(texts)) if texts.iter().all(is_text) => !texts.is_empty(),
                Some(_) => return Err(parsed.wrong("input", "a text or a list of texts")),
            };
            sent.insert("input".to_owned(), json!(input));
            has_input
        }
        Form::Embeddings => {
            let prompt = parsed.text("prompt")?.unwrap_or_default();
            sent.insert("input".to_owned(), json!(prompt));
            !prompt.is_empty()
        }
    };
    ignored.extend(parsed.left());
    Ok(EmbedRequest {
        named,
        model,
        keep_alive,
        body: has_input.then(|| Value::Object(sent).to_string().into()),
        ignored,
    })
}

/// OpenAI's response, limited to fields that Ollama's form has.
#[derive(Deserialize)]
struct Vectors<'a> {
    #[serde(borrow)]
    data: Vec<Vector<'a>>,
    usage: Option<Used>,
}

#[derive(Deserialize)]
struct Vector<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    embedding: &'a RawValue,
}

#[derive(Deserialize)]
struct Used {
    prompt_tokens: Option<u64>,
}

async fn retold(
    app: &App,
    response: Response,
    form: Form,
    named: String,
    marks: Arc<Marks>,
) -> Result<Response, Failure> {
    let (mut head, body) = response.into_parts();
    let bytes = to_bytes(body, 2 * ANSWER_MAX).await;
    let bytes = bytes.map_err(|error| Failure::engine(&named, error))?;
    let length = bytes.len();
    let write = move || translated(&bytes, form, &named, &marks);
    let body = app.reading.run(length, write).await?;
    head.headers.remove(header::CONTENT_LENGTH);
    let json = HeaderValue::from_static("application/json");
    head.headers.insert(header::CONTENT_TYPE, json);
    Ok(Response::from_parts(head, Body::from(body)))
}

/// Translates the response into Ollama's form. A vector that is normalized already is copied unparsed.
fn translated(response: &[u8], form: Form, named: &str, marks: &Marks) -> Result<String, Failure> {
    let wrong = |problem: String| Failure::engine(named, problem);
    let response: Vectors<'_> = serde_json::from_slice(response)
        .map_err(|error| wrong(format!("the response is not a list of vectors: {error}")))?;
    let mut data = response.data;
    data.sort_by_key(|vector| vector.index);
    if form == Form::Embeddings {
        let first = data.first().map(|vector| vector.embedding.get());
        let first = first.ok_or_else(|| wrong("the response has no vector".to_owned()))?;
        return Ok(format!("{{\"embedding\":{first}}}"));
    }
    let mut written = String::from("{\"embeddings\":[");
    for (nth, vector) in data.iter().enumerate() {
        if nth > 0 {
            written.push(',');
        }
        normal(vector.embedding.get(), &mut written).map_err(wrong)?;
    }
    written.push(']');
    let mut rest = Map::new();
    rest.insert("model".to_owned(), json!(named));
    marks.until_now(&mut rest);
    if let Some(count) = response.usage.and_then(|usage| usage.prompt_tokens) {
        rest.insert("prompt_eval_count".to_owned(), json!(count));
    }
    written.push(',');
    written.push_str(Value::Object(rest).to_string().trim_start_matches('{'));
    Ok(written)
}

/// Normalizes a vector to length 1, as Ollama does.
fn normal(text: &str, written: &mut String) -> Result<(), String> {
    let numbers: Vec<f64> = serde_json::from_str(text)
        .map_err(|error| format!("a vector is not a list of numbers: {error}"))?;
    let length = numbers
        .iter()
        .map(|number| number * number)
        .sum::<f64>()
        .sqrt();
    if length == 0.0 || (length - 1.0).abs() <= NORMAL_WITHIN {
        written.push_str(text);
        return Ok(());
    }
    // 32-bit, the precision of the models.
    let numbers = numbers.iter().map(|number| (number / length) as f32);
    let numbers = json!(numbers.collect::<Vec<f32>>());
    written.push_str(&numbers.to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use controller::Clock;

    fn parsed(form: Form, body: Value) -> Result<EmbedRequest, Failure> {
        read(&body.to_string().into(), form, &|name| name == "m")
    }

    #[test]
    fn an_embed_request_is_translated_to_openais() {
        let body = json!({"model": "m:latest", "input": ["a", "b"], "dimensions": 2, "truncate": true,
            "options": {"num_ctx": 9}, "keep_alive": "5m", "shiny": 1});
        let read = parsed(Form::Embed, body).unwrap();
        let sent: Value = serde_json::from_slice(&read.body.unwrap()).unwrap();
        assert_eq!(
            sent,
            json!({"model": "m", "dimensions": 2, "input": ["a", "b"]})
        );
        assert_eq!(read.ignored, ["options.num_ctx", "truncate", "shiny"]);
        assert!(read.keep_alive.is_some());
        let read = parsed(Form::Embeddings, json!({"model": "m", "prompt": "a"})).unwrap();
        let sent: Value = serde_json::from_slice(&read.body.unwrap()).unwrap();
        assert_eq!(sent["input"], "a");
    }

    #[test]
    fn an_empty_embed_input_loads_the_model_and_an_invalid_one_is_refused() {
        for input in [json!(null), json!(""), json!([])] {
            let read = parsed(Form::Embed, json!({"model": "m", "input": input})).unwrap();
            assert!(read.body.is_none(), "{input}");
        }
        for input in [json!(3), json!([1, 2]), json!({"a": 1})] {
            let failure = parsed(Form::Embed, json!({"model": "m", "input": input})).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some("input"));
        }
    }

    #[test]
    fn vectors_are_returned_in_order_and_normalized() {
        let response = json!({"data": [{"index": 1, "embedding": [0.6, 0.8]}, {"index": 0, "embedding": [3, 4]}],
            "usage": {"prompt_tokens": 7}})
        .to_string();
        let marks = Marks::begin(Clock::start());
        let embed = translated(response.as_bytes(), Form::Embed, "m:latest", &marks).unwrap();
        let embed: Value = serde_json::from_str(&embed).unwrap();
        let first: Vec<f64> = serde_json::from_value(embed["embeddings"][0].clone()).unwrap();
        assert!((first[0] - 0.6).abs() < 1e-6 && (first[1] - 0.8).abs() < 1e-6);
        assert_eq!(embed["embeddings"][1], json!([0.6, 0.8]), "as it was");
        assert_eq!(
            (&embed["model"], &embed["prompt_eval_count"]),
            (&json!("m:latest"), &json!(7))
        );
        assert!(embed["total_duration"].is_u64() && embed.get("load_duration").is_none());
        let one = translated(response.as_bytes(), Form::Embeddings, "m", &marks).unwrap();
        assert_eq!(one, r#"{"embedding":[3,4]}"#);
        for broken in [
            r#"{"data": [{"embedding": "AAAA"}]}"#,
            "[]",
            r#"{"data": [{}]}"#,
        ] {
            assert!(translated(broken.as_bytes(), Form::Embed, "m", &marks).is_err());
        }
        assert!(translated(br#"{"data": []}"#, Form::Embeddings, "m", &marks).is_err());
    }
}
