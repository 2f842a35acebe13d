//! Permissions with the real program: every route, with and without an entry in the OpenAPI document, called by every kind of
//! caller. docs/guides/security.md contains the table; UPDATE=1 writes it.

mod browsers;
mod callers;
mod keys;
mod names;
mod proxies;
mod wire;

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use callers::{CALLERS, Scene};
pub(crate) use callers::{admin, key, log_in, models};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guides/security.md");
const BEGIN: &str =
    "<!-- who may: written by `UPDATE=1 cargo test --test program permissions::` -->\n";
const END: &str = "<!-- who may: end -->";

/// A route to call.
#[derive(Clone, Debug)]
struct Route {
    method: String,
    /// Path below the base path, as in the document.
    path: String,
    body: String,
    /// Content type of the body.
    kind: String,
    names_model: bool,
}

impl Route {
    fn new(method: &str, path: &str, body: Value) -> Route {
        let names_model = ["model", "models"]
            .iter()
            .any(|field| body.get(field).is_some())
            || path.contains("{model}");
        Route {
            method: method.to_uppercase(),
            path: path.to_owned(),
            body: match body {
                Value::Null => String::new(),
                body => body.to_string(),
            },
            kind: "application/json".to_owned(),
            names_model,
        }
    }

    fn is_admin(&self) -> bool {
        self.path.starts_with("/admin/")
            || (self.method == "DELETE" && self.path.contains("{model}"))
    }

    /// Routes that read or preview.
    fn only_reads(&self) -> bool {
        self.method == "GET" || ["/admin/plan", "/admin/what-if"].contains(&self.path.as_str())
    }

    /// Routes of the admin API that administrators of a group may use.
    fn is_for_group_admins(&self) -> bool {
        matches!(
            (self.method.as_str(), self.path.as_str()),
            (_, "/admin/keys")
                | ("GET", "/admin/groups" | "/admin/usage")
                | ("POST", "/admin/load" | "/admin/unload")
        )
    }

    /// Login and logout: for all callers except pages of other sites.
    fn is_login(&self) -> bool {
        self.path == "/session" && self.method != "GET"
    }

    /// Routes that reveal nothing about models and change nothing.
    fn is_public(&self) -> bool {
        const PUBLIC: [&str; 9] = [
            "/api/version",
            "/health",
            "/ready",
            "/docs/",
            "/openapi.json",
            "/v1/health_check",
            "/session/ways",
            "/session/sign-on",
            "/session/signed-on",
        ];
        PUBLIC.contains(&self.path.as_str())
    }

    fn target(&self) -> String {
        // In other routes it is a single path segment, as is the alias.
        let model = if self.path.starts_with("/v1/") {
            "lab/base"
        } else {
            "base"
        };
        self.path
            // The stream would never end, so an unknown query parameter is used, which is read after the key.
            .replace("/admin/live", "/admin/live?no_such_field=1")
            .replace("{model}", model)
            .replace("{group}", "lab")
            .replace("{id}", "resp_1")
    }

    /// The addresses to call it at.
    fn addresses(&self) -> Vec<String> {
        let target = self.target();
        match target.as_str() {
            "/metrics" => vec![target],
            inference
                if ["/v1/", "/api/"]
                    .iter()
                    .any(|prefix| inference.starts_with(prefix))
                    || inference == "/run" =>
            {
                vec![format!("/llm{target}"), target]
            }
            _ => vec![format!("/llm{target}")],
        }
    }
}

/// Every route of the document, with its example for `lab/base`. Bodies of administrators are invalid, which prevents any effect.
fn documented(document: &Value) -> Vec<Route> {
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let content = &operation["requestBody"]["content"];
            let is_form = content.get("multipart/form-data").is_some();
            let body = match example(&content["application/json"]) {
                _ if path.starts_with("/admin/") && method != "get" => json!({"no_such_field": 1}),
                Some(example) => with_model(example.clone()),
                None => Value::Null,
            };
            let mut route = Route::new(method, path, body);
            if is_form {
                let field = |name: &str, text: &str| {
                    format!(
                        "--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n"
                    )
                };
                let name = if path.contains("/images/") {
                    "image"
                } else {
                    "file"
                };
                let file = format!(
                    "--x\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n"
                );
                route.body = format!("{}{file}--x--\r\n", field("model", "lab/base"));
                route.kind = "multipart/form-data; boundary=x".to_owned();
                // The lines of an upload name models, and are checked when they run.
                route.names_model = path != "/v1/files";
            }
            routes.push(route);
        }
    }
    routes
}

/// The example of a body, or its first example.
fn example(content: &Value) -> Option<&Value> {
    let first = |all: &'_ Value| all.as_object()?.keys().next().cloned();
    content.get("example").or_else(|| {
        let examples = content.get("examples")?;
        examples.get(first(examples)?)?.get("value")
    })
}

fn with_model(mut example: Value) -> Value {
    if example.get("model").is_some() {
        example["model"] = json!("lab/base");
    }
    if example.get("models").is_some() {
        example["models"] = json!(["lab/base", "lab/other"]);
        example["winner"] = json!("lab/base");
    }
    example
}

/// Routes without an entry in the document: the metrics, the document itself, MCP, and a route that always refuses.
fn beside() -> Vec<Route> {
    let none = Value::Null;
    vec![
        Route::new("get", "/metrics", none.clone()),
        Route::new("get", "/docs/", none.clone()),
        Route::new("get", "/openapi.json", none),
        Route::new(
            "post",
            "/mcp",
            json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
        ),
        Route::new("post", "/api/blobs/sha256:00", json!({})),
    ]
}

/// A caller's result: `yes`, or the status of the refusal.
fn verdict(status: u16, body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let code = [&body["error"]["code"], &body["error"]["type"]];
    let of_ollama = body["error"].as_str().unwrap_or_default();
    let is_unknown_model = status == 404
        && (of_ollama.starts_with("model '")
            || code
                .iter()
                .any(|code| **code == "model_not_found" || **code == "not_found_error"));
    match status {
        0 => panic!("no response"),
        // Permitted, and refused because a file defines the model.
        403 if body["error"]["code"] == "from_file" => "yes".to_owned(),
        401 | 403 | 415 | 421 | 429 => status.to_string(),
        404 if is_unknown_model => "404".to_owned(),
        _ => "yes".to_owned(),
    }
}

/// A row: the result for each caller.
fn row(scene: &Scene, route: &Route) -> Vec<String> {
    let ask = |caller: &callers::Caller| {
        let mut verdicts = route.addresses().into_iter().map(|address| {
            let (status, body) =
                scene.ask(caller, &route.method, &address, &route.kind, &route.body);
            let verdict = verdict(status, &body);
            let does =
                verdict == "yes" && route.method != "GET" && route.path.starts_with("/admin/");
            assert!(
                !does || status == 400,
                "{address} was to refuse a field that it does not know: {status} {body}"
            );
            verdict
        });
        let first = verdicts.next().expect("an address");
        for other in verdicts {
            assert_eq!(
                first, other,
                "{}: the same under both addresses",
                route.path
            );
        }
        first
    };
    CALLERS.iter().map(ask).collect()
}

/// Invariants that hold for every version of the table.
fn check(route: &Route, row: &[String]) {
    for (caller, verdict) in CALLERS.iter().zip(row) {
        let place = format!("{} {} by {}", route.method, route.path, caller.title);
        let may = verdict == "yes";
        if route.is_public() {
            assert!(may, "{place}: {verdict}");
            continue;
        }
        if route.is_login() {
            assert_eq!(may, !caller.is_page_of_another_site, "{place}: {verdict}");
            continue;
        }
        if route.is_admin() {
            let looks = caller.is_viewer && route.only_reads();
            let of_group = caller.is_group_admin && route.is_for_group_admins();
            assert!(
                !may || caller.is_admin || looks || of_group,
                "{place}: only administrators may"
            );
            assert!(may || !of_group, "{place}: {verdict}");
        }
        assert!(!may || !caller.is_stranger, "{place}: strangers may not");
        let is_another = caller.is_for_another_model && route.names_model;
        assert!(!may || !is_another, "{place}: the key is not for the model");
    }
}

fn table(scene: &Scene, routes: &[Route]) -> String {
    let titles: Vec<&str> = CALLERS.iter().map(|caller| caller.title).collect();
    let mut text = format!(
        "| route | {} |\n|---|{}\n",
        titles.join(" | "),
        "---|".repeat(titles.len())
    );
    for route in routes {
        let row = row(scene, route);
        check(route, &row);
        let _ = writeln!(
            text,
            "| `{} {}` | {} |",
            route.method,
            route.path,
            row.join(" | ")
        );
    }
    text
}

#[test]
fn every_route_admits_the_callers_listed_in_the_documentation() {
    let scene = Scene::open();
    let (status, text, _) = scene.pool.request("GET", "/llm/openapi.json", "", None);
    assert_eq!(status, 200);
    let mut routes = documented(&serde_json::from_str(&text).unwrap());
    assert!(routes.len() > 40, "{} routes", routes.len());
    routes.extend(beside());
    let table = table(&scene, &routes);
    println!("{table}");
    let page = fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (written, after) = rest.split_once(END).expect("where the table ends");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(DOCUMENT, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        written, table,
        "the table of docs/guides/security.md is not what the program does; look at the difference, and run UPDATE=1 cargo test --test program permissions:: if it is meant"
    );
}
