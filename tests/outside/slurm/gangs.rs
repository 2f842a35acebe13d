//! A replica over two nodes, for which a real Slurm starts one job (M8). The job waits for both machines, starts on both, ends when a
//! node dies, and is given back.

use std::fs;
use std::thread;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};
use support::double::vllm_double;
use support::family::shown;
use support::folder::write_tiny_weights;
use support::service::wait_for;

use super::lab::{Lab, model};
use super::server::SlurmServer;

/// The nodes' names and the machines of the pool's only running job.
fn only_job(lab: &Lab<'_>, slurm: &SlurmServer) -> (String, Vec<String>) {
    let format = ["--noheader", "--states=RUNNING", "--format=%A %D %N"];
    let jobs = slurm.client("squeue", &format);
    let lines: Vec<&str> = jobs.lines().collect();
    let [line] = lines[..] else {
        panic!("not one job: {jobs}");
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..], ["2", "n[0-1]"], "{line}");
    let nodes = lab.nodes();
    let names = nodes.iter().filter_map(|node| node["node"].as_str());
    (words[0].to_owned(), names.map(str::to_owned).collect())
}

/// The process with this name among its arguments.
fn process_of(node: &str) -> Pid {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_name = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| word == node.as_bytes())
    };
    Pid::from_raw(pids.find(has_name).expect("the node runs"))
}

#[test]
fn m8_a_gang_is_one_slurm_job_that_starts_and_ends_on_all_machines() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let weights = slurm.path().join("wide");
    fs::create_dir(&weights).unwrap();
    write_tiny_weights(&weights);
    let (path, program) = (weights.display(), vllm_double());
    let wide = format!(
        "engine_config:\n  model_id: wide\n  type: VLLMEngine\n  model_path: {path}\n  program: {:?}\n  env: {{VLLM_DOUBLE_LOAD_MS: '300', VLLM_DOUBLE_TOKENS: '3'}}\npool_config: {{memory_gib: 24, nodes: 2, min_resident: 0s}}\n",
        program.display().to_string()
    );
    // Another user's job holds both GPUs of a machine.
    let output = format!("--output={}", slurm.path().join("other.log").display());
    let other = ["--parsable", "--gres=gpu:fake:2", "--nodelist=n1", &output];
    let other = slurm.client("sbatch", &[&other[..], &["--wrap", "sleep 600"]].concat());
    let lab = Lab::start(
        &slurm,
        "gang",
        &[model("here", 0, &[]), ("wide.yaml".to_owned(), wide)],
        "  scale_down_after: 1s\n  shapes: [{name: one, gpus: 1, memory: 16GiB, time_limit: 10m}]\n  slurm: {log_dir: FOLDER}\n",
    );
    let plan = lab.post("/llm/admin/plan", r#"{"model": "wide"}"#).1;
    assert_eq!(plan["node"]["nodes"], 2, "{plan}");
    assert!(lab.nodes().is_empty());
    thread::scope(|scope| {
        let response = scope.spawn(|| lab.asks("wide", 3));
        wait_for("one job to wait for both machines", || {
            let waiting = slurm.client("squeue", &["-h", "-t", "PENDING", "-o", "%D %r"]);
            waiting.trim() == "2 Resources"
        });
        lab.step("the job waits");
        let (_, list, _) = lab
            .pool
            .request("GET", "/llm/admin/nodes", "", Some(&lab.key));
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["requested"].as_array().map(Vec::len), Some(2));
        assert!(lab.nodes().is_empty(), "no part of the set starts");
        slurm.client("scancel", &[other.trim()]);
        let response = response.join().unwrap();
        assert_eq!(response.0, 200, "{response:?}\n{}", lab.pool.log());
    });
    lab.step("the first response");
    let (job, nodes) = only_job(&lab, &slurm);
    assert_eq!(nodes, [format!("slurm-{job}-0"), format!("slurm-{job}-1")]);
    let members = shown(&lab.pool, "wide")["replicas"][0]["members"].clone();
    let members = members.as_array().cloned().unwrap_or_default();
    let mut of_members: Vec<_> = members.iter().map(|one| one["node"].clone()).collect();
    of_members.sort_by_key(ToString::to_string);
    assert_eq!(of_members, nodes);

    // A node that dies ends the job on all machines.
    nix::sys::signal::kill(process_of(&nodes[1]), Signal::SIGKILL).unwrap();
    wait_for("all nodes of the job to be gone", || lab.nodes().is_empty());
    lab.wait_for_no_job();
    lab.step("the job has ended with its node");
    let response = lab.asks("wide", 3);
    assert_eq!(response.0, 200, "{response:?}\n{}", lab.pool.log());
    lab.step("the response from a new job");
    let (job, _) = only_job(&lab, &slurm);

    let (status, text) = lab.post("/llm/admin/unload", &json!({"model": "wide"}).to_string());
    assert_eq!(status, 200, "{text}");
    wait_for("the idle nodes to be given back", || lab.nodes().is_empty());
    lab.wait_for_no_job();
    let record = slurm.client("scontrol", &["--oneliner", "show", "job", &job]);
    assert!(record.contains("JobState=COMPLETED"), "{record}");
    lab.step("no job is left");
}
