//! `check --slurm` next to a running pool: its token, the jobs of another pool with the same name, and the memory of shapes.

use std::fs;

use super::calls;
use super::lab::{Lab, model};
use super::server::SlurmServer;

#[test]
fn check_slurm_compares_the_token_and_the_jobs_with_the_state_of_the_pool() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let lab = Lab::start(
        &slurm,
        "own",
        &[model("here", 0, &[])],
        "  shapes: [{name: h100, gpus: 1, memory: 80GiB, time_limit: 10m}]\n  slurm: {log_dir: FOLDER}\n",
    );
    let pool = calls(&slurm, lab.pool.folder().join("config.yaml"));
    let check = || pool.run(&["check", "--slurm"]);
    check().has(
        0,
        &[
            "token t1 expires in 23 h",
            "note: shape h100: memory is 80GiB, and `nvidia-smi` shows about 79.6 GiB for H100",
        ],
    );
    let file = slurm.path().join("own/token");
    let (status, lasting) = lab.post("/llm/admin/nodes/tokens", r#"{"expires": "90d"}"#);
    assert_eq!(status, 200, "{lasting}");
    let lasting = lasting["token"].as_str().unwrap();
    fs::write(&file, lasting).unwrap();
    check().has(0, &["ok: token t2 is valid for 89 days"]);
    fs::write(&file, "mp-of-another-pool").unwrap();
    check().has(
        1,
        &[
            "it is not a token of this pool",
            "nodes token --expires 90d",
        ],
    );
    fs::write(&file, lasting).unwrap();
    let output = format!("--output={}", slurm.path().join("other.log").display());
    let job = [
        "--parsable",
        "--job-name=model-pool:own:h100",
        "--comment=model-pool:own:h100:5:other",
        &output,
        "--wrap",
        "sleep 600",
    ];
    let id = slurm.client("sbatch", &job);
    let found = format!(
        "another pool has the same cluster.name (own) and has requested lease {}",
        id.trim()
    );
    check().has(1, &[&found, "its own cluster.name"]);
    slurm.client("scancel", &[id.trim()]);
}
