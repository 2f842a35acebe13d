//! `model-pool simulate`: workloads in every form, errors in them, and the output.

mod configuration;
mod devices;
mod night;
mod seconds;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use support::table;

struct Rig {
    folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        Rig {
            folder: tempfile::tempdir().expect("a folder for the test"),
        }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("in the folder")).expect("created");
        std::fs::write(&path, text).expect("written");
        path
    }

    fn simulate(&self, workload: &str, more: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .current_dir(self.folder.path())
            .env("MODEL_POOL_NVML_LIBRARY", "there/is/none.so")
            .args(["simulate", "--workload", workload])
            .args(more)
            .output()
            .expect("the program starts")
    }

    fn reports(&self, workload: &str, more: &[&str]) -> Value {
        let all = [more, &["--json", "-"]].concat();
        let output = self.simulate(workload, &all);
        assert!(output.status.success(), "{}", errors(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn complaint(&self, workload: &str, more: &[&str]) -> String {
        let output = self.simulate(workload, more);
        assert!(!output.status.success(), "{workload} should be refused");
        errors(&output)
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn without_arguments_simulate_lists_its_commands() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_model-pool"));
    let output = command.arg("simulate").output().expect("it starts");
    let shown = errors(&output);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(
        shown.contains("  model-pool simulate --workload "),
        "{shown}"
    );
}

#[test]
fn traces_in_public_formats_are_read_directly() {
    let rig = Rig::new();
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n";
    let burst = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,Conversation log\n";
    let mooncake = "{\"timestamp\": 0, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 1, 2]}\n{\"timestamp\": 3000, \"input_length\": 7322, \"output_length\": 490, \"hash_ids\": [0, 14]}\n";
    let own = "at,model,service_ms,key\n0.5,a,1000,anna\n1.5,b,1000,ben\n";
    for (name, content) in [
        ("azure.csv", azure),
        ("burst.csv", burst),
        ("mooncake.jsonl", mooncake),
        ("own.csv", own),
    ] {
        let path = rig.file(name, content);
        let found = rig.reports(text(&path), &[]);
        assert_eq!(found["reports"][0]["requests"], 2, "{name}");
        assert_eq!(found["reports"][0]["served"], 2, "{name}");
    }
    rig.file(
        "clients/chunk-1-trace.csv",
        "0,0.5,1.2,Gamma,1,1\n600,0,0,,0,0\n1200,0.5,1,Weibull,0.8,1\n",
    );
    rig.file("clients/chunk-2-trace.csv", "0,0.1,1,,0,0\n");
    let found = rig.reports("clients", &[]);
    let requests = found["reports"][0]["requests"].as_u64().expect("a number");
    assert!((450..900).contains(&requests), "{requests}");
    assert_eq!(found["models"], 2);
}

/// A file | its text | a part of the complaint
const BROKEN: &str = r#"
    empty.csv |  | is empty
    header.csv | time,model\n | has a header and no request
    columns.csv | when,model\n1,a\n | no column for the time; columns: when, model
    negative.csv | time,model\n1,a\n-2,a\n | line 3: the time -2 is negative
    order.csv | time,model\n5,a\n2,a\n | line 3: is 3000 ms earlier than the line before
    number.csv | time,model,service_ms\n1,a,soon\n | line 2: the duration `soon` is not a number
    short.csv | time,model\n1\n | line 2: has 1 columns, and the header has 2
    some.csv | time,model\n1,a\n2,\n | 1 of 2 requests name no model
    broken.jsonl | {"time": 1, "model": "a"}\n{"time": 2 | line 2: is not a JSON object
    timeless.jsonl | {"model": "a"}\n | line 1: has no time; keys: model
"#;

#[test]
fn workload_errors_are_reported_with_their_line() {
    let rig = Rig::new();
    for [name, content, expected] in table::rows_of(BROKEN) {
        let path = rig.file(name, content);
        let said = rig.complaint(text(&path), &[]);
        assert!(
            said.contains(expected) && said.contains(name),
            "{name}: {said}"
        );
    }
    let binary = rig.folder.path().join("binary.csv");
    std::fs::write(&binary, [0xFF_u8; 64]).expect("written");
    assert!(
        rig.complaint(text(&binary), &[])
            .contains("is not UTF-8 text")
    );
    assert!(
        rig.complaint("nowhere.csv", &[])
            .contains("cannot read nowhere.csv")
    );
    assert!(
        rig.complaint("zipf:requests=0", &[])
            .contains("`requests` must be a number above 0")
    );
    let generator = rig.complaint("bursti:requests=5", &[]);
    assert!(
        generator.contains("no generator `bursti`; write zipf, diurnal, bursty or shifting"),
        "{generator}"
    );
    let unknown = rig.complaint("zipf:requests=10", &["--compare", "luck"]);
    assert!(
        unknown.contains("there is no policy `luck`; the policies are model-pool, lru"),
        "{unknown}"
    );
}

#[test]
fn models_that_the_pool_does_not_know_are_named_or_added_or_skipped() {
    let rig = Rig::new();
    rig.file("models/known.yaml", "engine_config: {model_id: known, type: CommandEngine, command: [sleep, '{{ port }}']}\npool_config: {memory_gib: 10}\n");
    rig.file("reference.json", "{}");
    let pool = rig.file(
        "pool.yaml",
        "catalog: {models_dir: models, model_reference: reference.json}\ninventory: {provider: fixed, devices: [{name: gpu0, memory: 80GiB}]}\n",
    );
    let trace = rig.file("trace.csv", "time,model\n1,known\n2,stranger\n3,known\n");
    let pool = ["--pool", text(&pool)];
    let said = rig.complaint(text(&trace), &pool);
    assert!(
        said.contains("1 model is unknown to the pool: stranger"),
        "{said}"
    );
    let with = |how: &str| {
        let more = [&pool[..], &["--unknown", how]].concat();
        rig.reports(text(&trace), &more)["reports"][0]["requests"].clone()
    };
    assert_eq!(with("skip"), 2);
    assert_eq!(with("add"), 3);
}

#[test]
fn the_same_seed_gives_the_same_reports_and_another_seed_others() {
    let rig = Rig::new();
    let with = |seed: &str| {
        let more = [
            "--seed",
            seed,
            "--compare",
            "lru,offline",
            "--capacity",
            "20%",
        ];
        rig.reports("bursty:requests=3000,days=1,models=20", &more)
    };
    assert_eq!(with("7"), with("7"));
    assert_ne!(with("7"), with("8"));
}

#[test]
fn the_pareto_front_has_a_point_for_each_objective_and_each_policy() {
    let rig = Rig::new();
    let load = "zipf:requests=3000,days=1,models=20";
    let more = ["--front", "--capacity", "35%", "--compare", "offline,lru"];
    let found = rig.reports(load, &more);
    let points = found["points"].as_array().expect("a list");
    let rules: Vec<&str> = points
        .iter()
        .filter_map(|point| point["rule"].as_str())
        .collect();
    for rule in ["objective: wait", "objective: reload", "policy: lru"] {
        assert!(rules.contains(&rule), "{rules:?}");
    }
    assert_eq!(rules[7..], ["lru", "lru-best", "fifo", "offline"]);
    assert!(points.iter().any(|point| point["on_front"] == true));
    assert!(points.iter().all(|point| point["requests"] == 3000));
    let output = rig.simulate(load, &["--front", "--capacity", "35%"]);
    let table = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(table.contains("| objective: balanced | "), "{table}");
    assert!(table.contains(" | * |"), "{table}");
}

#[test]
fn a_report_contains_the_objective_and_the_bound_of_the_shadow_policies() {
    let rig = Rig::new();
    let load = "zipf:requests=3000,days=1,models=20,skew=0.8";
    let found = rig.reports(load, &["--capacity", "20%", "--compare", "lru"]);
    let (ours, lru) = (&found["reports"][0], &found["reports"][1]);
    let figure = |of: &Value, key: &str| of[key].as_f64().expect("a number");
    for of in [ours, lru] {
        assert!(figure(of, "wait_per_request_ms") >= figure(of, "wait_mean_ms") - 1.0);
    }
    let shadows = &ours["shadows"];
    assert!(figure(shadows, "followed_ms") > 0.0);
    assert!(figure(shadows, "followed_ms") <= figure(shadows, "bound_ms"));
    assert!(lru.get("shadows").is_none(), "a peer has none");
}

#[test]
fn each_what_if_flag_changes_the_report() {
    let rig = Rig::new();
    let load = "zipf:requests=4000,days=1,models=20,skew=0.8";
    let reload = |more: &[&str]| {
        let found = rig.reports(load, more);
        assert_eq!(found["reports"][0]["requests"], 4000);
        found["reports"][0]["reload_ms"].as_u64().expect("a number")
    };
    let base = reload(&["--gpus", "1x80GB"]);
    assert!(reload(&["--gpus", "4x80GB"]) < base);
    assert!(
        reload(&["--gpus", "8x80GB", "--keep-hot", "1m"])
            > reload(&["--gpus", "8x80GB", "--keep-hot", "10h"])
    );
    let hot = rig.reports(load, &["--gpus", "1x80GB", "--priority", "model-3=2"]);
    assert_eq!(
        hot["reports"][0]["by_model"]["model-3"]["loads"], 1,
        "always-hot (P4)"
    );
    assert!(
        rig.complaint(load, &["--priority", "nobody=2"])
            .contains("no model `nobody`")
    );
    assert!(
        rig.complaint(load, &["--gpus", "many"])
            .contains("`4x80GiB`")
    );
    assert!(
        rig.complaint(load, &["--capacity", "lots"])
            .contains("a percentage such as 35%")
    );
}

#[test]
fn a_change_is_compared_with_the_current_pool_including_the_spread_over_other_days() {
    let rig = Rig::new();
    let pool = rig.file(
        "pool.yaml",
        "catalog: {models_dir: models, model_reference: reference.json}\ninventory: {provider: fixed, devices: [{name: gpu0, memory: 80GiB}]}\n",
    );
    rig.file("reference.json", "{}");
    std::fs::create_dir(rig.folder.path().join("models")).expect("created");
    let load = "diurnal:requests=4000,days=5,models=12";
    let what_if = |more: &[&str]| {
        let pool = ["--pool", text(&pool), "--resample", "6"];
        let output = rig.simulate(load, &[&pool, more].concat());
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let row = |table: &str, name: &str| {
        let found = table.lines().find(|line| line.starts_with(name));
        found.expect("a row for each figure").to_owned()
    };
    let same = what_if(&[]);
    assert!(same.contains("6 workloads drawn from its 5 days"), "{same}");
    let loads = row(&same, "loads ");
    assert!(loads.ends_with("difference 0 (0 to 0)"), "{loads}");
    let more = what_if(&["--gpus", "+2"]);
    let loads = row(&more, "loads ");
    let (_, range) = loads.rsplit_once('(').expect("a range");
    assert!(
        range.starts_with('-') && range.contains("to -"),
        "fewer loads on every draw: {loads}"
    );
    let short = rig.complaint("zipf:requests=100,days=0.1", &["--resample", "3"]);
    assert!(short.contains("4 are needed"), "{short}");
}

#[test]
fn the_simulation_page_has_its_charts_and_loads_nothing_from_the_network() {
    let rig = Rig::new();
    let more = [
        "--compare",
        "lru,ncsa",
        "--gpus",
        "2x80GB",
        "--html",
        "page.html",
    ];
    let output = rig.simulate("diurnal:requests=2000,days=1,models=10", &more);
    assert!(output.status.success(), "{}", errors(&output));
    let page = std::fs::read_to_string(rig.folder.path().join("page.html")).expect("written");
    for part in [
        "id=\"memory\"",
        "id=\"waits\"",
        "class=\"bars\"",
        "model-3: ",
        "ncsa",
        "gpu1",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(
        table.contains("inversions") && table.contains("ncsa"),
        "{table}"
    );
}

#[test]
fn every_simulated_policy_accounts_for_every_request() {
    let rig = Rig::new();
    let peers = "lru,fifo,llama-swap,llamacpp-router,ollama,modelmesh,ncsa,offline";
    let found = rig.reports(
        "zipf:requests=5000,days=1,models=30",
        &["--compare", peers, "--capacity", "30%"],
    );
    for report in found["reports"].as_array().expect("a list") {
        let count = |key: &str| report[key].as_u64().expect("a number");
        let refused: u64 = report["refused"]
            .as_object()
            .expect("counts")
            .values()
            .filter_map(Value::as_u64)
            .sum();
        assert_eq!(
            count("served") + count("timed_out") + refused,
            5000,
            "{report}"
        );
        if report["policy"] == "model-pool" {
            assert_eq!((count("inversions"), count("cut"), refused), (0, 0, 0));
        }
    }
}
