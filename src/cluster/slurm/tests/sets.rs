//! Jobs of several nodes, for the requests of a set.

use super::*;

#[test]
fn m8_nodes_that_start_together_are_one_job_that_starts_a_node_on_each_machine() {
    let mut section = section();
    section.node_data = Some("/scratch/%j".to_owned());
    let mut slurm = Slurm::new(&section);
    slurm.owner = Some("abc".to_owned());
    let script = slurm.script("a2", &[70, 71, 72], &[]).expect("rendered");
    let expected = r#"#!/bin/bash
#SBATCH --job-name=model-pool:lab:a2
#SBATCH --comment=model-pool:lab:a2:70x3:abc
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:2
#SBATCH --time=61
#SBATCH --open-mode=append
#SBATCH --output=model-pool-%j.log

echo "model-pool: job $SLURM_JOB_ID starts 3 nodes on $SLURM_JOB_NODELIST"
exec srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=0 bash -c NODE
"#;
    let (script, node) = script.rsplit_once("bash -c ").expect("a command");
    assert_eq!(format!("{script}bash -c NODE\n"), expected);
    // The words as a task's shell sees them.
    let task = std::process::Command::new("bash")
        .args([
            "-c",
            &format!("bash -c {}", node.replace("exec ", "printf \"%s\\n\" ")),
        ])
        .envs([("SLURM_JOB_ID", "4712"), ("SLURM_PROCID", "2")])
        .output()
        .expect("bash");
    let words = String::from_utf8_lossy(&task.stdout).into_owned();
    let words: Vec<&str> = words.lines().collect();
    let after = |option: &str| {
        let at = words.iter().position(|word| *word == option);
        at.map(|at| words[at + 1])
    };
    assert_eq!(after("--name"), Some("slurm-4712-2"), "{words:?}");
    assert_eq!(after("--demand"), Some("72"), "{words:?}");
    assert_eq!(after("--data"), Some("/scratch/4712-2"), "{words:?}");
}

#[test]
fn a_comment_yields_the_requests_of_a_job_and_nothing_if_it_is_of_another_form() {
    let of = |comment: &str| {
        let request = script::request_of(comment);
        let set = request.set.map(|set| (set.first, set.nodes));
        (request.demand, set, request.owner)
    };
    let owner = || Some("abc".to_owned());
    assert_eq!(of("model-pool:lab:a2"), (None, None, None));
    assert_eq!(of("model-pool:lab:a2:70:abc"), (Some(70), None, owner()));
    assert_eq!(
        of("model-pool:lab:a2:70x3:abc"),
        (Some(70), Some((70, 3)), owner())
    );
    for (comment, demand) in [
        ("a:b:c:70x1", Some(70)),
        ("a:b:c:70x", Some(70)),
        ("a:b:c:70x4294967295", Some(70)),
        ("a:b:c:x3", None),
    ] {
        assert_eq!(of(comment), (demand, None, None), "{comment}");
    }
}

#[tokio::test]
async fn m8_each_node_of_a_set_is_listed_with_its_machine_and_a_drain_signals_only_tasks() {
    let queue = "case $1 in --json) exit 1;; *) cat $(dirname $0)/text;; esac";
    let cancel = "echo \"$@\" >> $(dirname $0)/calls";
    let (folder, slurm) = with_programs(&[("squeue", queue), ("scancel", cancel), NO_ACCOUNTING]);
    let fields = |state: &str, host: &str| {
        let comment = "model-pool:lab:a2:70x2:abc";
        [
            "40",
            "model-pool:lab:a2",
            state,
            "None",
            host,
            "1:00:00",
            "100",
            "3700",
            comment,
        ]
        .join("\u{1f}")
    };
    let listed = async |line: &str| {
        write(&folder, "text", &format!("{line}\n"));
        let leases = slurm.status().await.expect("read");
        let words = |lease: NodeLease| {
            let demand = lease.demand.unwrap_or_default();
            format!(
                "{} {} {demand} {}",
                lease.id,
                lease.node,
                in_words(lease.state)
            )
        };
        leases.into_iter().map(words).collect::<Vec<_>>()
    };
    assert_eq!(
        listed(&fields("RUNNING", "gpu[07,11]")).await,
        [
            "40 slurm-40-0 70 running on gpu07",
            "40 slurm-40-1 71 running on gpu11"
        ]
    );
    let pending = listed(&fields("PENDING", "")).await;
    assert!(
        pending[1].starts_with("40 slurm-40-1 71 pending: "),
        "{pending:?}"
    );
    let log = "srun: error: gpu11: task 1: Killed\nnode slurm-40-0 has ended\nsrun: Force Terminated StepId=40.0\n";
    write(&folder, "model-pool-40.log", log);
    let failed = listed(&fields("FAILED", "gpu[07,11]")).await;
    let why = "; its log ends with: srun: error: gpu11: task 1: Killed";
    assert!(
        failed.iter().all(|lease| lease.ends_with(why)),
        "{failed:?}"
    );
    let jobs = slurm.jobs().await.expect("read");
    assert!(failed_hosts(&jobs, 3700).is_empty(), "one of two machines");
    std::fs::remove_file(folder.path().join("model-pool-40.log")).expect("removed");
    assert_eq!(
        listed(&fields("FAILED", "gpu[07,11]")).await,
        [
            "40 slurm-40-0 70 ended: it failed on gpu[07,11]",
            "40 slurm-40-1 71 ended: it failed on gpu[07,11]"
        ]
    );
    assert!(slurm.names_node("slurm-40-1"));
    assert!(!slurm.names_node("slurm-40-"));
    listed(&fields("RUNNING", "gpu[07,11]")).await;
    slurm
        .release(&id("40"), Release::Drain)
        .await
        .expect("done");
    slurm.release(&id("40"), Release::Now).await.expect("done");
    assert_eq!(
        read(&folder, "calls"),
        "--name=model-pool:lab:a2 --state=PENDING 40\n\
         --name=model-pool:lab:a2 --state=RUNNING --signal=TERM 40\n\
         --name=model-pool:lab:a2 40\n"
    );
}
