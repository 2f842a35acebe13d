//! `model-pool simulate --bench`: recorded traces with the default configuration, and with single parts of the policy turned off.

use std::path::Path;
use std::process::{Command, Output};

fn simulate(folder: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .current_dir(folder)
        .arg("simulate")
        .args(options)
        .output()
        .expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder with all traces of the bench, with 40 requests or little more in each.
fn short_traces() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let at = folder.path();
    let requests: String = (0..40)
        .map(|nth| format!("{},400,50\n", nth * 2_000))
        .collect();
    for name in [
        "azure-llm-2023-code.csv",
        "azure-llm-2023-conversation.csv",
        "mooncake-conversation.csv",
    ] {
        let head = "timestamp_ms,context_tokens,generated_tokens\n";
        std::fs::write(at.join(name), format!("{head}{requests}")).expect("written");
    }
    // A folder is accepted in place of the archive of the same name.
    let clients = at.join("servegen.tar.xz");
    std::fs::create_dir(&clients).expect("created");
    for client in 0..4 {
        let file = clients.join(format!("chunk-{client}-trace.csv"));
        std::fs::write(file, "0,0.05,1,,0,0\n").expect("written");
    }
    folder
}

#[test]
fn the_bench_lists_the_default_configuration_first_and_peers_with_their_defaults() {
    let folder = short_traces();
    let output = simulate(folder.path(), &["--bench", ".", "--count", "1"]);
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.starts_with("**As shipped**"), "{text}");
    let (shipped, others) = text
        .split_once("**Without keep-hot times**")
        .expect("both parts");
    let rows: Vec<Vec<&str>> = shipped
        .lines()
        .filter(|line| line.starts_with("| **all**"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let names: Vec<&str> = rows.iter().map(|row| row[1]).collect();
    let each = [
        "model-pool",
        "model-pool, keep_hot_scope: device",
        "model-pool, adaptive",
        "model-pool, until_needed",
        "llamacpp-router",
        "ollama",
        "llama-swap",
        "modelmesh",
        "ncsa",
    ];
    assert_eq!(names, [each, each].concat(), "one and four devices");
    // The default is compared with itself, and until_needed leaves fewer empty devices.
    for of_devices in rows.chunks(each.len()) {
        assert_eq!(of_devices[0][3..6], ["1.00", "1.00", "1.00"]);
        let empty = |row: usize| -> f64 {
            let share = of_devices[row][7].trim_end_matches(" %");
            share.parse().expect("a share")
        };
        assert!(empty(3) <= empty(0), "{shipped}");
    }
    assert!(others.contains("| **all** | lru-best |"), "{others}");
}

#[test]
fn an_ablation_compares_the_pool_without_each_part_with_the_complete_pool() {
    let folder = short_traces();
    let at = folder.path();
    let output = simulate(at, &["--bench", ".", "--ablation", "--count", "1"]);
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let sections: Vec<&str> = text.split("\n**").skip(1).collect();
    assert_eq!(sections.len(), 4, "{text}");
    for section in &sections {
        let rows: Vec<Vec<&str>> = section
            .lines()
            .filter(|line| line.starts_with("| model-pool") || line.starts_with("| without"))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows.len(), 7, "{section}");
        assert_eq!(
            rows[0][..6],
            ["model-pool", "1.000", "0", "0", "0", "1.000"]
        );
    }
    // A change of the models in use makes the pool's own estimate wrong, which only the shadows reveal.
    let changing = sections[2];
    assert!(changing.starts_with("1 device, `shifting:"), "{changing}");
    let row = changing
        .lines()
        .find(|line| line.contains("without shadows"));
    let columns: Vec<&str> = row.expect("a row").split('|').collect();
    let reload: f64 = columns[6].trim().parse().expect("a ratio");
    assert!(reload > 1.05, "{changing}");
}

#[test]
fn an_ablation_without_a_bench_or_lab_is_refused_with_the_options() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let output = simulate(folder.path(), &["--ablation"]);
    assert!(!output.status.success());
    let complaint = errors(&output);
    for option in ["--bench", "--labs"] {
        assert!(complaint.contains(option), "{complaint}");
    }
    let workload = ["--ablation", "--workload", "zipf:requests=9"];
    let output = simulate(folder.path(), &workload);
    assert!(!output.status.success(), "a workload has no ablation");
}
