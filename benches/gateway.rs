//! Measures the cost of the gateway: `model-pool bench` against an engine with a known response, against the pool in front of that
//! engine, and against nginx as a plain reverse proxy in front of the same engine, if nginx is on the path. All take turns in the
//! same rounds, because the machine may be shared: compare columns of one run, not two runs. See docs/internals/benchmarks.md for
//! usage and results.
//!
//! `cargo bench --bench gateway -- [--quick] [--json FILE] [--beside PROGRAM] [--only PART,…]`; `--beside` names another build of
//! model-pool to measure in the same rounds.

#[path = "gateway/aims.rs"]
mod aims;
#[path = "../tests/measured/dialects/streams.rs"]
mod dialects;
#[path = "gateway/engine.rs"]
mod engine;
#[path = "gateway/idle.rs"]
mod idle;
#[path = "gateway/pacing.rs"]
mod pacing;
#[path = "gateway/parts.rs"]
mod parts;
#[path = "gateway/servers.rs"]
mod servers;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use parts::{MeasuredServer, Scale};

struct Args {
    scale: Scale,
    json: Option<PathBuf>,
    beside: Option<PathBuf>,
    only: Option<Vec<String>>,
}

impl Args {
    fn read() -> Args {
        let mut args = Args {
            scale: Scale::FULL,
            json: None,
            beside: None,
            only: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .unwrap_or_else(|| panic!("{word} wants a value"))
            };
            match word.as_str() {
                "--quick" => args.scale = Scale::QUICK,
                "--json" => args.json = Some(value().into()),
                "--beside" => args.beside = Some(value().into()),
                "--only" => args.only = Some(value().split(',').map(str::to_owned).collect()),
                // Added by Cargo.
                "--bench" => {}
                other => panic!("{other} is not known; see the head of benches/gateway.rs"),
            }
        }
        args
    }

    fn wants(&self, part: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.iter().any(|name| name == part))
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    // The pool starts this program in place of vLLM, with the same arguments.
    if words.next().as_deref() == Some("serve") {
        let port = words.skip_while(|word| word != "--port").nth(1);
        return engine::serve(port.and_then(|port| port.parse().ok()).expect("a port"));
    }
    let args = Args::read();
    let files = servers::files_limit();
    let (pool, engine) = servers::pool("gateway", Path::new(env!("CARGO_BIN_EXE_model-pool")));
    let mut places = vec![MeasuredServer::direct(&engine)];
    match servers::nginx(&engine.address) {
        Some(nginx) => places.push(MeasuredServer::new(nginx, &engine)),
        None => {
            println!("nginx is not on the path: its part is skipped; apt-get install nginx-light")
        }
    }
    places.push(MeasuredServer::new(pool, &engine));
    if let Some(program) = &args.beside {
        let (pool, engine) = servers::pool("beside", program);
        places.push(MeasuredServer::new(pool, &engine));
    }
    let mut told = json!({});
    if args.wants("rest") {
        told["rest"] = idle::rest(&places);
    }
    if args.wants("plain") {
        told["plain"] = parts::plain(&places, &args.scale);
    }
    if args.wants("streams") {
        told["streams"] = parts::streams(&places, &args.scale);
    }
    if args.wants("tokens") {
        told["tokens"] = parts::tokens(&places, &args.scale);
    }
    if args.wants("paced") {
        told["paced"] = pacing::paced(&places, &args.scale);
    }
    if args.wants("idle") {
        told["idle"] = parts::idle(&places, &args.scale, files);
    }
    if args.wants("dialects") {
        told["dialects"] = parts::dialects(&args.scale);
    }
    told["aims"] = aims::aims(&told);
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&told).unwrap_or_default();
        std::fs::write(file, text).expect("the file can be written");
    }
    println!("{}", Value::to_string(&told));
}
