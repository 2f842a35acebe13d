//! Findings of a cluster's inspection: `model-pool check --slurm`, `--pbs`, `--kubernetes` and `--ray`.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use config::{ClusterSection, ShapeSection};

use super::ClusterError;
use super::program::ProgramResult;

/// Generous: a token has 46 characters.
const TOKEN_BYTES_MAX: u64 = 4096;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The check passed.
    Good(String),
    /// The check was not possible, or a person has to look.
    Note(String),
    /// The check failed; includes advice.
    Problem(String),
}

impl Finding {
    pub(super) fn is_problem(&self) -> bool {
        matches!(self, Finding::Problem(_))
    }
}

/// The total memory in MiB that `nvidia-smi` shows for GPUs whose nominal memory is higher, by a part of their name and the nominal
/// memory in GB. H100 with 80 GB, H200, L40S, A10, L4 and T4: <https://thundergolfer.com/blog/nvidia-gpu-memory-capacity>. The others are not
/// confirmed by a published output.
const SHOWN_MIB: [(&str, u64, u64); 13] = [
    ("h100", 80, 81_559),
    ("h800", 80, 81_559),
    ("h100", 94, 95_830),
    ("h200", 141, 143_771),
    ("b200", 192, 183_359),
    ("b200", 180, 183_359),
    ("l40", 48, 46_068),
    ("a40", 48, 46_068),
    ("a6000", 48, 49_140),
    ("a10", 24, 23_028),
    ("l4", 24, 23_034),
    ("t4", 16, 15_360),
    ("4090", 24, 24_564),
];

/// Notes shapes whose memory is the nominal memory of a GPU that shows less. Models that need all of it would request nodes in vain.
pub fn shape_memory(section: &ClusterSection) -> Vec<Finding> {
    let note = |shape: &ShapeSection| {
        let gib = shape.memory.0.0 as f64 / (1_u64 << 30) as f64;
        let (name, _, shown) = SHOWN_MIB.into_iter().find(|(name, nominal, shown)| {
            let is_nominal = (*nominal as f64 - gib).abs() < 0.5;
            is_nominal && names(shape, name) && (*shown as f64) / 1024.0 < gib
        })?;
        let shown = shown as f64 / 1024.0;
        Some(Finding::Note(format!(
            "shape {}: memory is {}, and `nvidia-smi` shows about {shown:.1} GiB for {}; write what it shows on a node. The first node of the shape corrects it",
            shape.name,
            shape.memory,
            name.to_ascii_uppercase()
        )))
    };
    section.shapes.iter().filter_map(note).collect()
}

/// Returns true if a word of the shape's name, GPUs, constraint, resources or labels is the product.
fn names(shape: &ShapeSection, product: &str) -> bool {
    let texts = [&shape.gres, &shape.constraint, &shape.select];
    let texts = texts.into_iter().flatten().chain([&shape.name]);
    let texts = texts
        .chain(shape.resources.keys())
        .chain(shape.labels.values());
    texts.into_iter().any(|text| {
        let text = text.to_ascii_lowercase();
        let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
        // `a100x4` is four of them, and `l40s` is an `l40`.
        words.any(|word| {
            let rest = word.strip_prefix(product);
            rest.is_some_and(|rest| {
                let rest = rest.trim_start_matches(['s', 'g']);
                rest.is_empty() || rest.starts_with('x')
            })
        })
    })
}

/// Checks the join token as this machine sees it.
pub(super) fn token_file(section: &ClusterSection) -> Option<Finding> {
    let file = section.token_file.as_ref()?;
    let shown = file.display();
    let how = "write a token of `admin-client nodes token` there, in a folder that the nodes share";
    let problem = |why: String| {
        Some(Finding::Problem(format!(
            "cluster.token_file {shown} {why}"
        )))
    };
    let read = std::fs::metadata(file).and_then(|facts| {
        let mut text = String::new();
        let bounded = std::fs::File::open(file)?.take(TOKEN_BYTES_MAX + 1);
        std::io::BufReader::new(bounded).read_to_string(&mut text)?;
        Ok((facts, text))
    });
    let (facts, text) = match read {
        Ok(read) => read,
        Err(error) => return problem(format!("cannot be read: {error}; {how}")),
    };
    // A file of root may be for a group, as Kubernetes mounts Secrets. Nodes refuse other files that others can read.
    let others = if facts.uid() == 0 && !rustix::process::geteuid().is_root() {
        0o007
    } else {
        0o077
    };
    if facts.mode() & others != 0 {
        let mode = facts.mode() & 0o7777;
        return problem(format!(
            "can be read by others (mode {mode:04o}), so nodes refuse it; run `chmod 600 {shown}`"
        ));
    }
    let token = text.trim();
    if token.is_empty() {
        return problem(format!("is empty; {how}"));
    }
    if facts.len() > TOKEN_BYTES_MAX || token.contains(char::is_whitespace) {
        return problem(format!("holds more than one token; {how}"));
    }
    Some(Finding::Good(format!("token file: {shown}")))
}

/// Checks the nodes' program, if it is a path.
fn program(section: &ClusterSection) -> Option<Finding> {
    let is_path = section.program.starts_with('/');
    let is_missing = is_path && !Path::new(&section.program).is_file();
    is_missing.then(|| {
        Finding::Note(format!(
            "cluster.program {} is not on this machine; make sure that it is on the nodes",
            section.program
        ))
    })
}

/// The finding for a client program that prints its version.
pub(super) fn version(program: &str, ended: Result<ProgramResult, ClusterError>) -> Finding {
    match ended {
        Ok(ended) if ended.status.success() => {
            Finding::Good(format!("{program}: {}", ended.stdout.trim()))
        }
        Ok(ended) => Finding::Problem(format!("{program} --version fails: {}", ended.reason())),
        Err(error) => Finding::Problem(error.to_string()),
    }
}

/// The finding for a cluster that responds: `responses` describes it, `live` is the number of this pool's jobs that have not ended.
pub(super) fn live_jobs(responses: &str, section: &ClusterSection, live: usize) -> Finding {
    Finding::Good(format!(
        "{responses}; this pool (cluster.name: {}) has {live} pending or running job{}",
        section.name,
        if live == 1 { "" } else { "s" }
    ))
}

/// Checks files that nodes need at the same path. Only a job can check that nodes see them. `logs` is the configuration key and the
/// path of the folder for the jobs' output.
pub(super) fn shared_files(section: &ClusterSection, logs: (&str, Option<&Path>)) -> Vec<Finding> {
    let (key, folder) = logs;
    let all = [
        token_file(section),
        folder.map(|folder| log_folder(key, folder)),
        program(section),
    ];
    all.into_iter().flatten().collect()
}

/// Checks the folder for the jobs' output as this machine sees it.
fn log_folder(key: &str, folder: &Path) -> Finding {
    if folder.is_dir() {
        Finding::Good(format!("folder of the jobs' output: {}", folder.display()))
    } else {
        Finding::Problem(format!(
            "{key} {} is not a folder; create it where the nodes see it, or their jobs fail",
            folder.display()
        ))
    }
}

/// Shell commands that check on a node that it sees the files and reaches the controller. They contain no `'`.
pub(super) fn on_a_node(section: &ClusterSection) -> String {
    let controller = section
        .controller
        .as_ref()
        .map_or("", |addresses| addresses.first());
    let token = section.token_file.as_deref().unwrap_or(Path::new(""));
    format!(
        "test -r {} && curl -ksS -o /dev/null -w \"%{{http_code}}\\n\" {controller}/llm/health && command -v {}",
        token.display(),
        section.program
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn notes(name: &str, memory: &str, gres: Option<&str>) -> Vec<Finding> {
        let shape =
            json!({"name": name, "gpus": 1, "memory": memory, "time_limit": "1h", "gres": gres});
        let section = json!({"kind": "slurm", "shapes": [shape]});
        shape_memory(&serde_json::from_value(section).expect("a section"))
    }

    #[test]
    fn only_a_nominal_memory_that_the_gpu_does_not_show_is_noted() {
        for (name, memory, gres, is_noted) in [
            ("h100x8", "80GiB", None, true),
            ("large", "80GiB", Some("gpu:h100:8"), true),
            ("large", "79GiB", Some("gpu:h100:8"), false),
            ("h100x8", "81510MiB", None, false),
            ("a100x4", "80GiB", None, false),
            ("l40s", "48GiB", None, true),
            ("a10g-x4", "24GiB", None, true),
            ("a100x4", "24GiB", None, false),
            ("t4", "16GiB", None, true),
            ("gpu", "80GiB", None, false),
        ] {
            let found = notes(name, memory, gres);
            assert_eq!(!found.is_empty(), is_noted, "{name} {memory}: {found:?}");
        }
        let [Finding::Note(text)] = &notes("h100x8", "80GiB", None)[..] else {
            panic!("one note");
        };
        assert!(text.contains("about 79.6 GiB for H100"), "{text}");
    }
}
