//! The layers of `src/`: which module may import which, and which dependencies, and what the pure
//! ones never touch. A table and its check; reads no file by itself.

use std::collections::BTreeSet;

use crate::source::{Target, references, tokens};

/// What a module of `src/` may import.
struct Row {
    module: &'static str,
    /// Modules of the crate beside itself.
    modules: Allowed,
    /// Dependencies.
    externals: Allowed,
    /// Pure: no clock, no chance, no world, no hash order; in its tests neither.
    pure: bool,
}

enum Allowed {
    All,
    /// Names with spaces between.
    Only(&'static str),
}

impl Allowed {
    fn has(&self, name: &str) -> bool {
        match self {
            Allowed::All => true,
            Allowed::Only(names) => names.split_whitespace().any(|allowed| allowed == name),
        }
    }
}

const fn row(module: &'static str, modules: &'static str, externals: &'static str) -> Row {
    Row {
        module,
        modules: Allowed::Only(modules),
        externals: Allowed::Only(externals),
        pure: false,
    }
}

const fn pure(module: &'static str, modules: &'static str) -> Row {
    Row {
        pure: true,
        ..row(module, modules, "")
    }
}

const fn all(module: &'static str) -> Row {
    Row {
        module,
        modules: Allowed::All,
        externals: Allowed::All,
        pure: false,
    }
}

/// The layers, from the core outwards.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    pure("pool", ""),
    row("config", "pool", "serde serde_json serde_saphyr serde_path_to_error granit_parser schemars thiserror humantime bytesize strsim croner chrono chrono_tz ipnet url"),
    row("catalog", "pool config", "serde serde_json serde_saphyr minijinja thiserror strsim bytesize humantime schemars sha2 shellexpand regex_syntax tokenizers"),
    row("guardian", "", "nix rustix memchr serde serde_json chrono"),
    row("engine", "pool config catalog guardian", "rand tokio nix hyper hyper_util http_body_util bytes minijinja serde serde_json thiserror tracing chrono futures_util humantime rustix rustls_native_certs tokio_rustls"),
    row("inventory", "pool config catalog", "nvml_wrapper thiserror tracing nix"),
    row("store", "pool config catalog", "sqlx serde serde_json thiserror tracing sha2 subtle rand uuid chrono tokio nix base64"),
    row("oidc", "pool config", "arc_swap futures_util jsonwebtoken lru reqwest ring serde serde_json sha2 thiserror tokio tokio_rustls tracing wildmatch"),
    row("source", "pool config catalog", "bytes futures_util md5 object_store rand reqwest rustix serde serde_json sha1 sha2 thiserror tokio tokio_rustls tracing wildmatch"),
    row("limits", "pool config", "chrono chrono_tz governor redis thiserror tokio tokio_util tracing uuid wildmatch"),
    row("controller", "pool config catalog engine inventory oidc source store", "tokio tokio_util tracing arc_swap serde_json thiserror futures_util chrono"),
    pure("sim", "pool catalog"),
    row("schedule", "pool config controller", "tokio tokio_cron_scheduler croner chrono chrono_tz thiserror tracing"),
    row("http", "pool config catalog controller limits", "axum base64 hyper hyper_util http_body_util bytes tower tower_http utoipa utoipa_axum utoipa_swagger_ui \
        serde serde_json tokio tokio_stream futures_util tracing thiserror uuid chrono humantime subtle strsim arc_swap memchr tokio_util tokio_rustls wildmatch"),
    all("serve"),
    all("check"),
    all("simulate"),
    all("bench"),
    all("cli"),
    all("fuzzing"),
    all("main"),
    all("lib"),
];

/// Parts of std that a pure module does not touch.
const IMPURE_STD: &[&str] = &["time", "io", "fs", "net", "process", "thread", "env"];
/// Words that a pure module does not contain.
const IMPURE_WORDS: &[&str] = &[
    "async", "await", "HashMap", "HashSet", "println", "print", "eprintln", "eprint", "tokio",
];

/// The module path of a file of `src/`: `["pool", "plan"]` for `src/pool/plan.rs`.
fn module_path(file: &str) -> Vec<String> {
    let inner = file.strip_prefix("src/").unwrap_or(file);
    let inner = inner.strip_suffix(".rs").unwrap_or(inner);
    let mut path: Vec<String> = inner.split('/').map(str::to_owned).collect();
    if path.len() > 1 && path.last().is_some_and(|name| name == "mod") {
        path.pop();
    }
    path
}

/// What in a file of `src/` is against the table.
pub fn layer_breaches(file: &str, text: &str, externals: &BTreeSet<String>) -> Vec<String> {
    let path = module_path(file);
    let module = path[0].as_str();
    let Some(row) = TABLE.iter().find(|row| row.module == module) else {
        return vec![format!(
            "{file}: the module `{module}` has no row in the table of tests/tidy/layers.rs"
        )];
    };
    let tokens = tokens(text);
    let root = matches!(module, "main" | "lib");
    let references = references(&tokens, if root { &[] } else { &path });
    // A file of tests may look at anything, as tests at the end of a file may; pure ones may not.
    let test_file = path.iter().skip(1).any(|name| name == "tests");
    let local: BTreeSet<&String> = references
        .iter()
        .filter_map(|reference| match &reference.target {
            Target::Crate(path) => path.last(),
            Target::Other(_) => None,
        })
        .collect();
    let mut breaches = Vec::new();
    for reference in &references {
        if !row.pure && (reference.test || test_file) {
            continue;
        }
        let mut breach = |what: String| {
            breaches.push(format!("{file}:{}: `{module}` {what}", reference.line));
        };
        match &reference.target {
            Target::Crate(path) => match path.first() {
                Some(first) if first != module && !row.modules.has(first) => {
                    breach(format!("may not import `crate::{first}`"));
                }
                _ => {}
            },
            Target::Other(path) => {
                let first = &path[0];
                if externals.contains(first) && !local.contains(first) && !row.externals.has(first)
                {
                    breach(format!("may not use the dependency `{first}`"));
                }
                let part = path.get(1).map_or("", String::as_str);
                if row.pure && first == "std" && IMPURE_STD.contains(&part) {
                    breach(format!("is pure and may not use `std::{part}`"));
                }
            }
        }
    }
    if row.pure {
        for token in tokens
            .iter()
            .filter(|token| IMPURE_WORDS.contains(&token.text.as_str()))
        {
            breaches.push(format!(
                "{file}:{}: `{module}` is pure and may not say `{}`",
                token.line, token.text
            ));
        }
    }
    // One line of `use` may name several things of the same module.
    breaches.dedup();
    breaches
}

#[test]
fn the_check_itself_sees_breaches_of_the_layers() {
    let externals: BTreeSet<String> = ["tokio", "serde", "rand", "sqlx"].map(str::to_owned).into();
    let cases = [
        (
            "src/pool/a.rs",
            "use crate::store::Store;",
            "may not import `crate::store`",
        ),
        (
            "src/pool/a.rs",
            "use super::super::config;",
            "may not import `crate::config`",
        ),
        (
            "src/pool/a.rs",
            "fn f() { crate::http::g() }",
            "may not import `crate::http`",
        ),
        (
            "src/pool/a.rs",
            "mod tests { use super::super::super::sim; }",
            "may not import `crate::sim`",
        ),
        (
            "src/pool/a.rs",
            "use std::{fmt, collections::{BTreeMap, HashMap}};",
            "may not say `HashMap`",
        ),
        (
            "src/pool/a.rs",
            "use std::{fmt, time::Instant};",
            "may not use `std::time`",
        ),
        (
            "src/pool/a.rs",
            "fn f() { let _ = ::std::env::var(\"A\"); }",
            "may not use `std::env`",
        ),
        ("src/pool/a.rs", "async fn f() {}", "may not say `async`"),
        (
            "src/pool/a.rs",
            "#[cfg(test)] mod t { fn f() { rand::random() } }",
            "the dependency `rand`",
        ),
        (
            "src/sim/a.rs",
            "fn f() { println!(\"x\") }",
            "may not say `println`",
        ),
        (
            "src/sim.rs",
            "use crate::controller::Handle;",
            "may not import `crate::controller`",
        ),
        (
            "src/config/mod.rs",
            "use tokio::fs;",
            "the dependency `tokio`",
        ),
        (
            "src/engine/a.rs",
            "#[derive(Debug)]\nstruct A(crate::store::Key);",
            "a.rs:2: `engine` may not import",
        ),
        (
            "src/http/a.rs",
            "#[cfg(test)] use x::y;\nuse crate::store::keys;",
            "a.rs:2: `http` may not import `crate::store`",
        ),
        (
            "src/http/a.rs",
            "#[cfg(test)] mod t { fn f(a: [u8; 2]) {} }\nuse sqlx::Row;",
            "a.rs:2: `http` may not use",
        ),
        ("src/novel/mod.rs", "", "has no row"),
    ];
    for (file, text, expected) in cases {
        let breaches = layer_breaches(file, text, &externals);
        assert!(
            breaches.len() == 1 && breaches[0].contains(expected),
            "{text:?} in {file} should give {expected:?} alone, gave {breaches:?}"
        );
    }
}

#[test]
fn the_check_itself_lets_pass_what_is_right() {
    let externals: BTreeSet<String> = ["tokio", "serde", "metrics", "sqlx"]
        .map(str::to_owned)
        .into();
    let cases = [
        (
            "src/pool/a.rs",
            "//! async std::time HashMap\nuse super::ids::Bytes; /* crate::store /* */ tokio:: */",
        ),
        (
            "src/pool/a.rs",
            "const A: &str = \"crate::store\"; const B: &str = r#\"\" tokio::x \"#; const C: char = '\"';",
        ),
        (
            "src/pool/a.rs",
            "mod tests { use super::super::ids; fn f<'a>(x: &'a str) -> &'a str { x } }",
        ),
        (
            "src/pool/a.rs",
            "pub(crate) fn f() { self::g(); Vec::<u8>::new(); let timeout = 1; }",
        ),
        (
            "src/engine/a.rs",
            "use crate::{pool::ids, catalog};\nuse tokio::process;",
        ),
        (
            "src/engine/a.rs",
            "#[cfg(test)]\nmod tests { use crate::store::Store; use sqlx::Row; }",
        ),
        ("src/engine/tests.rs", "use crate::store::Store;"),
        (
            "src/schedule/a.rs",
            "use super::metrics; fn f() { metrics::count() }",
        ),
        ("src/serve.rs", "use crate::store::Store; use sqlx::Row;"),
        (
            "src/main.rs",
            "use model_pool::serve; fn main() { tokio::spawn(serve::run()); }",
        ),
    ];
    for (file, text) in cases {
        assert_eq!(
            layer_breaches(file, text, &externals),
            Vec::<String>::new(),
            "{text:?} in {file}"
        );
    }
}
