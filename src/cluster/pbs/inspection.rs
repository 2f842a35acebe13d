//! Inspects a PBS server for the configuration's needs without submitting anything: `model-pool check --pbs`. PBS cannot test a
//! request, so this compares queues and nodes with the shapes.

use std::collections::BTreeMap;

use super::super::ClusterError;
use super::super::finding::{self, Finding};
use super::super::program::run;
use super::text::{Record, records, span};
use super::{ERRORS, Pbs, script};
use config::ShapeSection;

const PROGRAMS: &[&str] = &["qsub", "qselect", "qstat", "qsig", "qdel", "pbsnodes"];

/// The queues and nodes of a server.
struct Site {
    server: Record,
    queues: Vec<Record>,
    nodes: Vec<Record>,
}

impl Pbs {
    /// All findings. A problem does not hide later ones, unless PBS does not respond at all.
    pub async fn inspect(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for program in PROGRAMS {
            let call = self.call(program, vec!["--version".to_owned()], "");
            findings.push(finding::version(program, run(call).await));
        }
        if findings.iter().any(Finding::is_problem) {
            return findings;
        }
        let site = match self.site().await {
            Ok(site) => site,
            Err(error) => {
                findings.push(Finding::Problem(error.to_string()));
                return findings;
            }
        };
        findings.extend(server_findings(&site));
        findings.push(match self.jobs().await {
            Ok(jobs) => {
                let live = jobs.iter().filter(|job| !job.has_ended()).count();
                finding::live_jobs("qselect and qstat answer", &self.section, live)
            }
            Err(error) => Finding::Problem(error.to_string()),
        });
        for shape in &self.section.shapes {
            findings.extend(self.queue_findings(shape, &site));
            findings.extend(self.node_findings(shape, &site.nodes));
        }
        let logs = ("cluster.pbs.log_dir", self.section.pbs.log_dir.as_deref());
        findings.extend(finding::shared_files(&self.section, logs));
        findings.push(Finding::Note(self.reachability()));
        findings
    }

    async fn site(&self) -> Result<Site, ClusterError> {
        let mut servers = self.read("qstat", &["-B", "-f"], "Server: ").await?;
        let queues = self.read("qstat", &["-Q", "-f"], "Queue: ").await?;
        let nodes = self.read("pbsnodes", &["-a"], "").await?;
        match servers.pop() {
            Some(server) => Ok(Site {
                server,
                queues,
                nodes,
            }),
            None => Err(ClusterError::Output {
                program: "qstat".to_owned(),
                message: "`qstat -B -f` describes no server".to_owned(),
            }),
        }
    }

    async fn read(
        &self,
        program: &str,
        arguments: &[&str],
        heading: &str,
    ) -> Result<Vec<Record>, ClusterError> {
        let arguments = arguments
            .iter()
            .map(|argument| (*argument).to_owned())
            .collect();
        let ended = run(self.query(program, arguments)).await?;
        let ended = ERRORS.checked(program, ended)?;
        Ok(records(&ended.stdout, heading))
    }

    fn queue_findings(&self, shape: &ShapeSection, site: &Site) -> Vec<Finding> {
        let name = &shape.name;
        let wanted = shape.queue.as_ref().or(self.section.pbs.queue.as_ref());
        let wanted = wanted.map_or(site.server.get("default_queue"), String::as_str);
        // `queue@server`, or the default queue of a server.
        let (wanted, other_server) = wanted.split_once('@').unwrap_or((wanted, ""));
        if wanted.is_empty() || !other_server.is_empty() {
            let text = format!(
                "shape {name}: its queue belongs to another server, so only PBS knows its limits"
            );
            return vec![Finding::Note(text)];
        }
        let Some(queue) = site.queues.iter().find(|queue| queue.name == wanted) else {
            return vec![Finding::Problem(format!(
                "shape {name}: the queue `{wanted}` does not exist; `qstat -Q` lists the queues"
            ))];
        };
        let mut findings = Vec::new();
        let mut problem = |text: String| {
            findings.push(Finding::Problem(format!("shape {name}: {text}")));
        };
        if queue.get("enabled") == "False" {
            problem(format!(
                "the queue {wanted} takes no jobs (enabled = False); set another queue"
            ));
        }
        if queue.get("started") == "False" {
            problem(format!(
                "the queue {wanted} is stopped (started = False), so its jobs would wait; set another queue"
            ));
        }
        let most = queue.get("resources_max.walltime");
        let limit = shape.time_limit.duration();
        if span(most).is_some_and(|most| limit > most) {
            problem(format!(
                "its time_limit of {} is longer than the queue {wanted} allows ({most}); lower it",
                shape.time_limit
            ));
        }
        let gpus = &self.section.pbs.gpu_resource;
        let most: Option<u32> = queue.number(&format!("resources_max.{gpus}"));
        if let Some(most) = most.filter(|most| shape.gpus > *most) {
            problem(format!(
                "the queue {wanted} allows {most} {gpus}, and the shape has {}; set another queue, or fewer gpus",
                shape.gpus
            ));
        }
        if queue.get("queue_type") == "Route" {
            findings.push(Finding::Note(format!(
                "shape {name}: the queue {wanted} hands jobs on to {}; PBS decides by what they need",
                queue.get("route_destinations")
            )));
        }
        findings
    }

    fn node_findings(&self, shape: &ShapeSection, nodes: &[Record]) -> Vec<Finding> {
        let name = &shape.name;
        let select = script::select(&self.section, shape);
        let mut findings = Vec::new();
        if !select.contains(":ncpus=") {
            findings.push(Finding::Note(format!(
                "shape {name}: it has no ncpus, so PBS gives its own default, often one processor; write select: ncpus=16:mem=200gb into cluster.pbs"
            )));
        }
        for part in select.split(':').skip(1) {
            if let Some((key, value)) = part.split_once('=')
                && !value.starts_with(|letter: char| letter.is_ascii_digit())
                && !nodes.iter().any(|node| has_value(node, key, value))
            {
                findings.push(Finding::Note(format!(
                    "shape {name}: no node shows {key}={value}; unless PBS knows it in another way, its jobs never start"
                )));
            }
        }
        if shape.gpus == 0 {
            return findings;
        }
        let resource = &self.section.pbs.gpu_resource;
        let gpus = gpus_of_hosts(nodes, resource);
        let most = gpus.values().max().copied();
        findings.push(match most {
            None => Finding::Problem(format!(
                "shape {name}: no node has the resource `{resource}`; set cluster.pbs.gpu_resource to the resource that counts GPUs: `pbsnodes -a` lists them as resources_available.NAME"
            )),
            Some(most) if most < u64::from(shape.gpus) => Finding::Problem(format!(
                "shape {name}: it has {} gpus, and no node that is up has more than {most}",
                shape.gpus
            )),
            Some(_) => {
                let fitting = gpus.values().filter(|count| **count >= u64::from(shape.gpus));
                let count = fitting.count();
                let hosts = if count == 1 { "host has" } else { "hosts have" };
                Finding::Good(format!(
                    "shape {name}: {count} {hosts} {} or more of {resource}; it asks for -l select={select}",
                    shape.gpus
                ))
            }
        });
        findings
    }

    fn reachability(&self) -> String {
        let (section, pbs) = (&self.section, &self.section.pbs);
        let queue = pbs.queue.as_ref();
        let queue = queue.map_or_else(String::new, |queue| format!("-q {queue} "));
        let account = pbs.account.as_ref();
        let account = account.map_or_else(String::new, |account| format!("-A {account} "));
        format!(
            "whether nodes see the files, reach the controller and know which GPUs are theirs is only seen in a job; try: echo '{}; echo \"GPUs: $CUDA_VISIBLE_DEVICES\"' | qsub {queue}{account}-j oe -l select=1:{}=1 -l walltime=00:02:00, and look at its output when it has ended",
            finding::on_a_node(section),
            pbs.gpu_resource
        )
    }
}

fn server_findings(site: &Site) -> Vec<Finding> {
    let server = &site.server;
    let queues: Vec<&str> = site
        .queues
        .iter()
        .map(|queue| queue.name.as_str())
        .collect();
    let mut findings = vec![Finding::Good(format!(
        "the server {} answers ({}); queues: {}",
        server.name,
        server.get("server_state"),
        queues.join(", ")
    ))];
    if server.get("scheduling") == "False" {
        findings.push(Finding::Note(
            "the server starts no jobs now (scheduling = False): requests wait until its administrators change that".to_owned(),
        ));
    }
    if server.get("job_history_enable") != "True" {
        findings.push(Finding::Note(
            "the server keeps no history of jobs (job_history_enable), so the pool does not learn why a job has ended; its log says so".to_owned(),
        ));
    }
    findings
}

/// Returns true if the node's attribute is this value, or a list that contains it.
fn has_value(node: &Record, key: &str, value: &str) -> bool {
    let has = node.get(&format!("resources_available.{key}"));
    has.split(',')
        .any(|element| element.eq_ignore_ascii_case(value))
}

/// The GPUs of each host that is up. A host may be several PBS nodes, such as one per socket, and a chunk may have GPUs of all of
/// them.
fn gpus_of_hosts(nodes: &[Record], resource: &str) -> BTreeMap<String, u64> {
    let mut hosts = BTreeMap::new();
    for node in nodes {
        let state = node.get("state");
        let is_down = ["down", "offline", "unknown", "stale", "maintenance"]
            .iter()
            .any(|word| state.contains(word));
        let gpus: Option<u64> = node.number(&format!("resources_available.{resource}"));
        let Some(gpus) = gpus.filter(|_| !is_down) else {
            continue;
        };
        let host = match node.get("resources_available.host") {
            "" => node.name.as_str(),
            host => host,
        };
        *hosts.entry(host.to_owned()).or_insert(0) += gpus;
    }
    hosts
}
