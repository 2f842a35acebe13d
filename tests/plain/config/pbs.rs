//! The section `cluster.pbs`, and keys of shapes that only PBS has.

use super::{assert_has, load, refusal};
use model_pool::config::ClusterKind;
use support::table::rows;

const GOOD: &str = "cluster:
  kind: pbs
  controller: https://pool.example.org:8443
  token_file: /shared/token
  shapes: [{name: a100x4, gpus: 4, memory: 80GiB, time_limit: 8h, queue: gpu, select: \"ncpus=4:gpu_type=a100\"}]
";

#[test]
fn pbs_clusters_have_queues_and_chunks_and_other_kinds_do_not() {
    let config = load(GOOD).unwrap();
    assert_eq!(config.cluster.kind, ClusterKind::Pbs);
    assert_eq!(config.cluster.pbs.gpu_resource, "ngpus");
    assert_eq!(config.notices(), Vec::<String>::new());
    assert_has(
        &refusal(&GOOD.replace("kind: pbs", "kind: slurm")),
        &[
            "shapes[0].queue is only for cluster.kind pbs",
            "shapes[0].select is only for cluster.kind pbs",
        ],
    );
    assert_has(
        &refusal(&GOOD.replace("queue: gpu", "partition: gpu")),
        &["shapes[0].partition is only for cluster.kind slurm"],
    );
    let other = load(&format!("{GOOD}  slurm: {{partition: gpu}}\n")).unwrap();
    assert_has(
        &other.notices().join("\n"),
        &["cluster.slurm has no effect while cluster.kind is pbs"],
    );
}

/// The section `pbs` | parts of the message
const SECTIONS: &str = r"
    {queue: 'gpu -V'} | cluster.pbs.queue is `gpu -V` | without spaces
    {select: '2:ncpus=4'} | cluster.pbs.select is `2:ncpus=4` | ncpus=16:mem=200gb
    {select: 'ncpus=4+1:ncpus=2'} | cluster.pbs.select is | the resources of one node
    {select: 'ncpus=4:ngpus=2'} | cluster.pbs.select has `ngpus` | the shape's `gpus`
    {gpu_resource: a=b} | cluster.pbs.gpu_resource is `a=b` | such as ngpus
    {options: ['-v A=b']} | cluster.pbs.options[0] is `-v A=b` | export NAME=value
    {options: ['-P project -N mine']} | options[0] is `-P project -N mine`, and -N is | set by the pool
    {options: [-z]} | cluster.pbs.options[0] is `-z` | set by the pool
    {options: [project]} | cluster.pbs.options[0] is `project` | -P project
    {bin_dir: bin} | cluster.pbs.bin_dir is `bin` | /opt/pbs/bin
    {log_dir: logs} | cluster.pbs.log_dir is `logs` | absolute path
    {grace: 2h} | cluster.pbs.grace is 2h | 1s to 1h
    {timeout: 1ms} | cluster.pbs.timeout is 1ms | 1s to 10m
";

#[test]
fn every_invalid_pbs_value_is_refused_with_line_key_and_correction() {
    for row in rows(SECTIONS) {
        let refused = refusal(&format!("{GOOD}  pbs: {}\n", row[0]));
        assert_has(&refused, &row[1..]);
        assert_has(&refused, &["pool.yaml: line 6: "]);
    }
    assert_has(
        &refusal(&GOOD.replace("ncpus=4:", "ngpus=4:")),
        &["pool.yaml: line 5: ", "shapes[0].select has `ngpus`"],
    );
}
