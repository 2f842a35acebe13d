//! Bodies that are as expensive to parse as possible: deep, wide, with long keys, escapes, many fields, or numbers. They depend
//! only on the generator, the route's fields, and a length.

use rand::Rng;
use rand_pcg::Pcg64;

use super::grammars;

/// A route with a body, and its required fields.
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// Required members of the object, without the main one.
    pub needed: &'static str,
    /// The member that contains users' text.
    pub main: &'static str,
    /// A value of the main member, with `TEXT` in it.
    pub plain: &'static str,
    /// A part of a message, with `TEXT` in it.
    pub part: &'static str,
    pub is_form: bool,
    pub by_admin: bool,
}

const CHAT_PART: &str = r#"{"type":"text","text":"TEXT"}"#;
const CHAT_PLAIN: &str = r#"[{"role":"user","content":"TEXT"}]"#;

const fn route(path: &'static str, needed: &'static str, main: &'static str) -> Route {
    Route {
        method: "POST",
        path,
        needed,
        main,
        plain: r#""TEXT""#,
        part: CHAT_PART,
        is_form: false,
        by_admin: false,
    }
}

const fn conversation(path: &'static str, needed: &'static str) -> Route {
    Route {
        plain: CHAT_PLAIN,
        ..route(path, needed, "messages")
    }
}

const fn form(path: &'static str) -> Route {
    Route {
        is_form: true,
        ..route(path, "", "file")
    }
}

const fn order(method: &'static str, path: &'static str, needed: &'static str) -> Route {
    Route {
        method,
        by_admin: true,
        ..route(path, needed, "reason")
    }
}

const MODEL: &str = r#""model":"talker""#;

/// Every route that reads a body.
pub const ROUTES: &[Route] = &[
    conversation("/v1/chat/completions", MODEL),
    route("/v1/completions", MODEL, "prompt"),
    conversation("/v1/messages", r#""model":"talker","max_tokens":5"#),
    conversation("/v1/messages/count_tokens", MODEL),
    Route {
        part: r#"{"type":"input_text","text":"TEXT"}"#,
        ..route("/v1/responses", MODEL, "input")
    },
    route("/v1/embeddings", MODEL, "input"),
    Route {
        plain: r#"["TEXT"]"#,
        ..route("/v1/rerank", r#""model":"talker","query":"q""#, "documents")
    },
    route("/v1/score", r#""model":"talker","text_1":"q""#, "text_2"),
    route("/v1/tokenize", MODEL, "prompt"),
    route("/v1/detokenize", MODEL, "tokens"),
    route(
        "/v1/audio/speech",
        r#""model":"talker","voice":"v""#,
        "input",
    ),
    form("/v1/audio/transcriptions"),
    form("/v1/audio/translations"),
    // A model whose engine has a table of its fields.
    conversation("/v1/chat/completions?of=tiny", r#""model":"tiny""#),
    // A model whose file has a rule for users' texts.
    conversation("/v1/chat/completions?of=ruled", r#""model":"ruled""#),
    route("/llm/run", MODEL, "data"),
    route(
        "/llm/admin/get_model",
        r#""model_name":"talker","model_type":"empty""#,
        "key",
    ),
    order("POST", "/llm/admin/load", MODEL),
    order("POST", "/llm/admin/plan", MODEL),
    order("POST", "/llm/admin/keys", r#""name":"k","role":"user""#),
    order(
        "PUT",
        "/llm/admin/models",
        r#""engine_config":{"model_id":"new"}"#,
    ),
    order(
        "PATCH",
        "/llm/admin/models?model=talker",
        r#""keep_hot":"1h""#,
    ),
];

/// Just below the limit of keys in a body: the route adds a few.
const KEYS: usize = 19_000;

/// A body of about this length with one long text.
pub fn plain(route: &Route, bytes: usize) -> Vec<u8> {
    let text = "What is a priority? ".repeat(bytes / 20 + 1);
    if route.is_form {
        return form_of(&[("file", &text)]);
    }
    object(route, &route.plain.replace("TEXT", &text), "")
}

/// All hostile bodies of about this length.
pub fn hostile(route: &Route, bytes: usize, chance: &mut Pcg64) -> Vec<(&'static str, Vec<u8>)> {
    if route.is_form {
        forms(bytes, chance)
    } else {
        let values = values(route, bytes, chance).into_iter();
        let values = values.map(|(kind, value)| (kind, object(route, &value, "")));
        let plain = route.plain.replace("TEXT", "a");
        let more = grammars::members(bytes);
        let members = members(bytes, chance).into_iter().chain(more);
        let members = members.map(|(kind, more)| (kind, object(route, &plain, &more)));
        values.chain(members).chain(whole(bytes)).collect()
    }
}

fn object(route: &Route, main: &str, more: &str) -> Vec<u8> {
    let comma = if more.is_empty() { "" } else { "," };
    format!(
        "{{{},\"{}\":{main}{comma}{more}}}",
        route.needed, route.main
    )
    .into_bytes()
}

/// A list of the same item repeated.
fn list(item: &str, bytes: usize) -> String {
    let count = (bytes / (item.len() + 1)).max(1);
    format!("[{}]", vec![item; count].join(","))
}

/// This many items, padded to the length.
fn padded(item: &str, count: usize, bytes: usize) -> String {
    let pad = "x".repeat((bytes / count).saturating_sub(item.len()));
    list(
        &item.replace("TEXT", &format!("a{pad}")),
        bytes.max(count * item.len()),
    )
}

/// Values for the route's text.
fn values(route: &Route, bytes: usize, chance: &mut Pcg64) -> Vec<(&'static str, String)> {
    let turn = |role: &str| format!(r#"{{"role":"{role}","content":"TEXT"}}"#);
    let turns = KEYS / 2;
    let text = |unit: &str| format!("\"{}\"", unit.repeat(bytes / unit.len()));
    let key = "k".repeat(bytes / 3);
    let numbers = list("0", bytes / 3);
    let digits: String = (0..bytes)
        .map(|_| char::from(chance.random_range(b'1'..=b'9')))
        .collect();
    let vector: Vec<String> = (0..bytes / 20)
        .map(|_| chance.random::<f64>().to_string())
        .collect();
    vec![
        ("zeros", list("0", bytes)),
        ("fractions", format!("[{}]", vector.join(","))),
        ("tokens", list("50256", bytes)),
        ("lists of tokens", list(&list("50256", 3000), bytes)),
        ("a long number", digits),
        ("empty lists", list("[]", bytes)),
        ("empty objects", list("{}", bytes)),
        ("empty texts", list("\"\"", bytes)),
        ("short texts", list("\"a\"", bytes)),
        ("lists of one", list("[0]", bytes)),
        (
            "deep lists",
            list(&format!("{}{}", "[".repeat(50), "]".repeat(50)), bytes),
        ),
        ("too deep", "[".repeat(bytes)),
        ("escapes", text("\\u0041")),
        ("half letters", text("\\ud800")),
        ("backslashes", text("\\\\")),
        ("quotes", text("\\\"")),
        ("turns", padded(&turn("user"), turns, bytes)),
        ("system turns", padded(&turn("system"), turns, bytes)),
        (
            "turns by turns",
            padded(
                &format!("{},{}", turn("user"), turn("assistant")),
                turns / 2,
                bytes,
            ),
        ),
        (
            "parts",
            format!(
                r#"[{{"role":"user","content":{}}}]"#,
                padded(route.part, turns, bytes)
            ),
        ),
        ("texts", padded("\"TEXT\"", 2000, bytes)),
        (
            "a long key and a long list",
            format!(r#"[{{"{key}":{numbers},"b":"\u0041"}}]"#),
        ),
        ("long keys in each other", {
            let key = "k".repeat(bytes / 40);
            format!("{}0{}", format!(r#"{{"{key}":"#).repeat(40), "}".repeat(40))
        }),
        (
            "names of pictures",
            padded(r#"{"image_url":{"url":"data:TEXT"}}"#, turns, bytes),
        ),
    ]
}

/// Members in addition to the route's own.
fn members(bytes: usize, chance: &mut Pcg64) -> Vec<(&'static str, String)> {
    let each = bytes / KEYS;
    let field = |nth: usize| {
        let pad = "v".repeat(each.saturating_sub(12));
        format!("\"f{nth}\":\"{pad}\"")
    };
    let fields: Vec<String> = (0..KEYS).map(field).collect();
    let near: Vec<String> = (0..KEYS)
        .map(|nth| format!("\"temperatur{nth}\":0"))
        .collect();
    let same = vec![format!("\"n\":\"{}\"", "1".repeat(each)); KEYS].join(",");
    let long = "temperature".repeat(bytes / 11);
    let seed: u32 = chance.random();
    let property = |nth: usize| format!("\"p{seed}_{nth}\":{{\"type\":\"string\"}}");
    let properties: Vec<String> = (0..KEYS / 2 - 10).map(property).collect();
    let schema = format!(
        r#"{{"type":"object","properties":{{{}}}}}"#,
        properties.join(",")
    );
    let deep = format!("{}{{}}{}", "{\"items\":".repeat(55), "}".repeat(55));
    let tool = r#"{"type":"function","name":"f","function":{"name":"fTEXT","parameters":{"type":"object"}}}"#;
    let biases: Vec<String> = (0..KEYS).map(|nth| format!("\"{nth}\":1")).collect();
    let format = |schema: &str| {
        format!(
            r#""response_format":{{"type":"json_schema","json_schema":{{"name":"a","schema":{schema}}}}}"#
        )
    };
    vec![
        ("fields", fields.join(",")),
        ("fields nearly known", near.join(",")),
        ("one field again and again", same),
        ("a long name", format!("\"{long}\":1")),
        (
            "a long name of escapes",
            format!("\"{}\":1", "\\u0041".repeat(bytes / 6)),
        ),
        ("a long model", format!("\"model\":\"{long}\"")),
        (
            "a model of numbers",
            format!("\"model\":{}", list("0", bytes)),
        ),
        (
            "a stream of numbers",
            format!("\"stream\":{}", list("0", bytes)),
        ),
        (
            "options of numbers",
            format!("\"stream_options\":{}", list("0", bytes)),
        ),
        ("stops", format!("\"stop\":{}", list("\"a\"", bytes))),
        (
            "stops of numbers",
            format!("\"stop\":{0},\"stop_token_ids\":{0}", list("0", bytes / 2)),
        ),
        (
            "tools",
            format!("\"tools\":{}", padded(tool, KEYS / 6, bytes)),
        ),
        ("a wide schema", format(&schema)),
        ("a deep schema", format(&list(&deep, bytes))),
        ("biases", format!("\"logit_bias\":{{{}}}", biases.join(","))),
        (
            "a template's words",
            format!(
                "\"chat_template_kwargs\":{{\"{long}\":{}}}",
                list("0", 1000)
            ),
        ),
        ("metadata", format!("\"metadata\":{{\"{long}\":\"x\"}}")),
        (
            "an idle field of spaces",
            format!("\"store\":[{}]", " ".repeat(bytes)),
        ),
        ("lists elsewhere", format!("\"x\":{}", list("[[0]]", bytes))),
    ]
}

/// Bodies that do not resemble the route's object at all.
fn whole(bytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let keys: Vec<String> = (0..bytes / 12).map(|nth| format!("\"k{nth}\":1")).collect();
    vec![
        ("spaces", " ".repeat(bytes).into_bytes()),
        ("a list", list("0", bytes).into_bytes()),
        ("keys", format!("{{{}}}", keys.join(",")).into_bytes()),
        ("no letters", vec![0xff; bytes]),
        (
            "an open text",
            format!("{{\"a\":\"{}", "\\".repeat(bytes)).into_bytes(),
        ),
        ("colons", ":".repeat(bytes).into_bytes()),
    ]
}

pub const BOUNDARY: &str = "xxxxxxxx";

fn form_of(more: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (name, value) in [("model", "talker")].iter().chain(more) {
        let file = if *name == "file" {
            "; filename=\"a.wav\""
        } else {
            ""
        };
        text += &format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n"
        );
    }
    (text + &format!("--{BOUNDARY}--\r\n")).into_bytes()
}

fn forms(bytes: usize, chance: &mut Pcg64) -> Vec<(&'static str, Vec<u8>)> {
    let nearly = format!("\r\n--{}", &BOUNDARY[1..]).repeat(bytes / 11);
    let dashes = "\r\n--xxxxxxx".repeat(bytes / 11);
    let noise: String = (0..bytes)
        .map(|_| char::from(chance.random_range(b' '..=b'~')))
        .collect();
    let long = "f".repeat(bytes);
    let many: Vec<(&str, &str)> = vec![("language", "de"); bytes / 80];
    let mut unended = form_of(&[("file", &noise)]);
    unended.truncate(unended.len() - 10);
    vec![
        ("nearly ends", form_of(&[("file", &nearly)])),
        ("dashes", form_of(&[("file", &dashes)])),
        ("noise", form_of(&[("file", &noise)])),
        ("a long name", form_of(&[(&long, "x")])),
        ("a long model", form_of(&[("model", &long), ("file", "x")])),
        (
            "a long prompt",
            form_of(&[("prompt", &long), ("file", "x")]),
        ),
        ("many fields", form_of(&many)),
        (
            "many ends",
            format!("--{BOUNDARY}\r\n").repeat(bytes / 12).into_bytes(),
        ),
        (
            "many heads",
            format!("--{BOUNDARY}\r\n{}", "a: b\r\n".repeat(bytes / 6)).into_bytes(),
        ),
        ("no end", unended),
        ("no form", long.clone().into_bytes()),
    ]
}
