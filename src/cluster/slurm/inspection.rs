//! Inspects a Slurm cluster for the configuration's needs without submitting anything: `model-pool check --slurm`.

use super::super::ClusterError;
use super::super::finding::{self, Finding};
use super::super::program::{ProgramResult, run};
use super::{ERRORS, Slurm, jobs, split_list};
use config::ShapeSection;

const CALL_ADVICE: &str = "nodes could not be requested";

/// A partition as `sinfo` prints it.
struct Partition {
    name: String,
    is_default: bool,
    is_up: bool,
    time_limit: String,
    nodes: Vec<NodeGroup>,
}

/// Nodes of a partition that have the same GPUs and state.
struct NodeGroup {
    gres: String,
    /// Slurm's name of the state, such as `drained`, or `idle*` for nodes that do not respond.
    state: String,
    count: u64,
}

impl NodeGroup {
    fn is_usable(&self) -> bool {
        let word = self
            .state
            .trim_end_matches(|mark: char| !mark.is_ascii_alphanumeric());
        let is_out = ["down", "drain", "fail", "maint", "inval"];
        !self.state.ends_with('*') && !is_out.iter().any(|out| word.starts_with(out))
    }
}

impl Slurm {
    /// All findings. A problem does not hide later ones, unless Slurm does not respond at all.
    pub async fn inspect(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for program in ["sbatch", "squeue", "scancel", "sinfo"] {
            findings.push(self.version(program).await);
        }
        if findings.iter().any(Finding::is_problem) {
            return findings;
        }
        let partitions = match self.partitions().await {
            Ok(partitions) => partitions,
            Err(error) => {
                findings.push(Finding::Problem(error.to_string()));
                return findings;
            }
        };
        let names: Vec<&str> = partitions
            .iter()
            .map(|partition| partition.name.as_str())
            .collect();
        findings.push(Finding::Good(format!(
            "slurmctld answers; partitions: {}",
            names.join(", ")
        )));
        findings.push(self.form_of_status().await);
        findings.push(self.association().await);
        for shape in &self.section.shapes {
            findings.extend(self.shape(shape, &partitions).await);
        }
        let folder = self.section.slurm.log_dir.as_deref();
        let logs = ("cluster.slurm.log_dir", folder);
        findings.extend(finding::shared_files(&self.section, logs));
        findings.push(Finding::Note(self.reachability()));
        findings
    }

    async fn version(&self, program: &str) -> Finding {
        let call = self.call(program, vec!["--version".to_owned()], "");
        finding::version(program, run(call).await)
    }

    async fn partitions(&self) -> Result<Vec<Partition>, ClusterError> {
        let separator = jobs::SEPARATOR;
        let fields = ["%P", "%a", "%l", "%G", "%T", "%D"];
        let format = format!("--format={}", fields.join(&separator.to_string()));
        let arguments = vec!["--noheader".to_owned(), "--all".to_owned(), format];
        let ended = run(self.call("sinfo", arguments, "")).await?;
        let ended = ERRORS.checked("sinfo", ended)?;
        let mut partitions: Vec<Partition> = Vec::new();
        for line in ended.stdout.lines() {
            let fields: Vec<&str> = line.split(separator).collect();
            let [name, available, limit, gres, state, count] = fields[..] else {
                continue;
            };
            let group = NodeGroup {
                gres: gres.to_owned(),
                state: state.to_ascii_lowercase(),
                count: count.trim().parse().unwrap_or(1),
            };
            let plain = name.trim_end_matches('*');
            if let Some(known) = partitions
                .iter_mut()
                .find(|partition| partition.name == plain)
            {
                known.nodes.push(group);
                continue;
            }
            partitions.push(Partition {
                name: plain.to_owned(),
                is_default: name.ends_with('*'),
                is_up: available == "up",
                time_limit: limit.to_owned(),
                nodes: vec![group],
            });
        }
        Ok(partitions)
    }

    async fn form_of_status(&self) -> Finding {
        match self.queue().await {
            Ok(jobs) => {
                let live = jobs.iter().filter(|job| !job.has_ended()).count();
                let form = if self.only_text.load(std::sync::atomic::Ordering::Relaxed) {
                    "text (its JSON is missing, broken or too long)"
                } else {
                    "JSON"
                };
                let works = format!("squeue answers as {form}");
                finding::live_jobs(&works, &self.section, live)
            }
            Err(error) => Finding::Problem(error.to_string()),
        }
    }

    /// Checks this user's associations in accounting. Clusters without accounting check nothing.
    async fn association(&self) -> Finding {
        let slurm = &self.section.slurm;
        let user = std::env::var("USER").unwrap_or_default();
        let mut arguments: Vec<String> = ["--noheader", "--parsable2", "show", "assoc"]
            .map(str::to_owned)
            .to_vec();
        arguments.extend([format!("user={user}"), "format=Account,QOS".to_owned()]);
        let ended = match run(self.call("sacctmgr", arguments, "")).await {
            Ok(ended) if ended.status.success() => ended,
            Ok(_) | Err(_) => {
                return Finding::Note(
                    "accounts and QOS: this cluster's accounting does not respond or does not exist, so Slurm does not check cluster.slurm.account and cluster.slurm.qos".to_owned(),
                );
            }
        };
        let rows: Vec<(&str, &str)> = (ended.stdout.lines())
            .filter_map(|line| line.split_once('|'))
            .collect();
        let accounts: Vec<&str> = rows.iter().map(|row| row.0).collect();
        if let Some(account) = &slurm.account
            && !accounts.contains(&account.as_str())
        {
            return Finding::Problem(format!(
                "the user {user} has no account `{account}`; set cluster.slurm.account to a known one: {}",
                accounts.join(", ")
            ));
        }
        let has_qos = |qos: &str| {
            let all = |(_, list): &(&str, &str)| list.split(',').any(|name| name == qos);
            rows.iter().any(all)
        };
        match &slurm.qos {
            Some(qos) if !has_qos(qos) => Finding::Problem(format!(
                "the user {user} may not use the QOS `{qos}`; `sacctmgr show assoc user={user}` lists the allowed ones"
            )),
            _ => Finding::Good(format!("accounts of {user}: {}", accounts.join(", "))),
        }
    }

    async fn shape(&self, shape: &ShapeSection, partitions: &[Partition]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let name = &shape.name;
        let wanted = shape.partition.as_ref();
        let wanted = wanted.or(self.section.slurm.partition.as_ref());
        // With several partitions, separated by commas, Slurm chooses.
        let single = wanted.filter(|wanted| !wanted.contains(','));
        let found = match (single, wanted) {
            (Some(wanted), _) => partitions
                .iter()
                .find(|partition| partition.name == *wanted),
            (None, Some(_)) => None,
            (None, None) => partitions.iter().find(|partition| partition.is_default),
        };
        match (found, single) {
            (Some(partition), _) => findings.extend(partition_findings(shape, partition)),
            (None, Some(wanted)) => {
                findings.push(Finding::Problem(format!(
                    "shape {name}: the partition `{wanted}` does not exist; `sinfo` lists the partitions"
                )));
                return findings;
            }
            (None, None) => {}
        }
        let test = self.script(name, &[], &[]);
        let test = match test {
            Ok(script) => {
                let arguments = vec!["--test-only".to_owned()];
                run(self.call("sbatch", arguments, &script)).await
            }
            Err(error) => Err(error),
        };
        findings.push(match test {
            // `sbatch` prints the result to standard error even on success.
            Ok(ended) if ended.status.success() => {
                let place = ended.message.trim_start_matches("sbatch: ").to_owned();
                Finding::Good(format!("shape {name}: Slurm would accept it: {place}"))
            }
            Ok(ended) => Finding::Problem(refusal(name, &ended)),
            Err(error) => Finding::Problem(format!("shape {name}: {CALL_ADVICE}: {error}")),
        });
        findings
    }

    fn reachability(&self) -> String {
        let section = &self.section;
        let controller = section
            .controller
            .as_ref()
            .map_or("", |addresses| addresses.first());
        let partition = section.slurm.partition.as_ref();
        let partition = partition.map_or_else(String::new, |partition| format!("-p {partition} "));
        format!(
            "whether nodes reach {controller} and see the files is only known on a node; try: srun {partition}-N1 sh -c '{}'",
            finding::on_a_node(section)
        )
    }
}

fn refusal(name: &str, ended: &ProgramResult) -> String {
    let message = ended.reason();
    let advice = ERRORS.advice_for(&message);
    format!("shape {name}: Slurm refuses it: {message}{advice}")
}

fn partition_findings(shape: &ShapeSection, partition: &Partition) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (name, place) = (&shape.name, &partition.name);
    if !partition.is_up {
        findings.push(Finding::Problem(format!(
            "shape {name}: the partition {place} is down, so its jobs would wait; ask the cluster's administrators, or set another partition"
        )));
    }
    let most = jobs::time_limit(&partition.time_limit);
    let limit = shape.time_limit.duration();
    if most.is_some_and(|most| limit > most) {
        findings.push(Finding::Problem(format!(
            "shape {name}: its time_limit of {} is longer than the partition {place} allows ({}), so its jobs would never start; lower it",
            shape.time_limit,
            partition.time_limit
        )));
    }
    if shape.gpus == 0 {
        return findings;
    }
    let gres = shape.gres.clone();
    let wanted = gres.unwrap_or_else(|| format!("gpu:{}", shape.gpus));
    let groups = partition.nodes.iter();
    let fitting: Vec<&NodeGroup> = groups
        .filter(|group| has_gpus(&group.gres, &wanted))
        .collect();
    let total: u64 = fitting.iter().map(|group| group.count).sum();
    let out: Vec<&&NodeGroup> = fitting.iter().filter(|group| !group.is_usable()).collect();
    let lacking: u64 = out.iter().map(|group| group.count).sum();
    let states: Vec<String> = out
        .iter()
        .map(|group| format!("{} {}", group.count, group.state))
        .collect();
    if fitting.is_empty() {
        let mut all: Vec<&str> = partition
            .nodes
            .iter()
            .map(|group| group.gres.as_str())
            .collect();
        all.sort_unstable();
        all.dedup();
        findings.push(Finding::Problem(format!(
            "shape {name}: no node of the partition {place} has {wanted}; its nodes have: {}",
            all.join(" | ")
        )));
    } else if lacking == total {
        findings.push(Finding::Problem(format!(
            "shape {name}: all {total} nodes of the partition {place} with {wanted} are out of service ({}), so its jobs would wait; `sinfo -R` shows the reasons",
            states.join(", ")
        )));
    } else if lacking > 0 {
        findings.push(Finding::Note(format!(
            "shape {name}: {lacking} of {total} nodes of the partition {place} with {wanted} are out of service ({}); `sinfo -R` shows the reasons",
            states.join(", ")
        )));
    }
    let count = parse_gres(&wanted).map(|(_, _, count)| count);
    if count.is_some_and(|count| count != u64::from(shape.gpus)) {
        findings.push(Finding::Problem(format!(
            "shape {name}: gpus is {}, and gres asks for {wanted}; make them equal",
            shape.gpus
        )));
    }
    findings
}

/// Name, type and count of `gpu:a100:4(S:0-1)`, `gpu:4` or `gpu`.
fn parse_gres(text: &str) -> Option<(&str, Option<&str>, u64)> {
    let text = text.split('(').next().unwrap_or_default();
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        [name] => Some((name, None, 1)),
        [name, last] => match last.parse() {
            Ok(count) => Some((name, None, count)),
            Err(_) => Some((name, Some(last), 1)),
        },
        [name, kind, count] => Some((name, Some(kind), count.parse().ok()?)),
        _ => None,
    }
}

/// Returns true if a node with this list has all wanted GPUs. Entries that cannot be parsed are left to `sbatch --test-only`.
fn has_gpus(node: &str, wanted: &str) -> bool {
    let offers: Vec<_> = split_list(node)
        .into_iter()
        .filter_map(parse_gres)
        .collect();
    split_list(wanted).into_iter().all(|wanted| {
        let Some((name, kind, count)) = parse_gres(wanted.trim_start_matches("gres/")) else {
            return true;
        };
        let fitting = offers.iter().filter(|(has, of, _)| {
            *has == name && kind.is_none_or(|kind| of.is_some_and(|of| of == kind))
        });
        fitting.map(|(_, _, count)| count).sum::<u64>() >= count
    })
}

#[cfg(test)]
mod tests;
