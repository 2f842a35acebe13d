//! Inspects a Ray cluster for the configuration's needs: `model-pool check --ray`. Small jobs check the machines; they hold no GPU,
//! and their records are deleted.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::super::finding::{self, Finding};
use super::super::node_command::{plain, quoted};
use super::client::JOBS;
use super::machines::{Autoscaler, Machine, Machines};
use super::{Ray, now};
use config::ShapeSection;

/// Limit of machines that jobs check.
const LOOKED_AT_MAX: usize = 4;
const LOOK_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Ray watches a job for a second after its end. If its record is deleted before, Ray writes it again, as failed.
const SETTLED_AFTER: Duration = Duration::from_millis(2500);
/// Amount of a machine's own resource that pins a job to it. Each machine has 1.
const PRESENCE: f64 = 0.001;

impl Ray {
    /// All findings. A problem does not hide later ones, unless Ray does not respond at all.
    pub async fn inspect(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let version = match self.client.get("/api/version").await {
            Ok(response) => response["ray_version"].as_str().unwrap_or("?").to_owned(),
            Err(error) => {
                findings.push(Finding::Problem(error.to_string()));
                return findings;
            }
        };
        findings.push(Finding::Good(format!(
            "Ray {version} answers at {}",
            self.client.address()
        )));
        findings.extend(self.token().await);
        match self.jobs().await {
            Ok(jobs) => {
                let live = jobs.leases.iter().filter(|job| !job.has_ended()).count();
                let works = "the Jobs API answers";
                findings.push(finding::live_jobs(works, &self.section, live));
            }
            Err(error) => findings.push(Finding::Problem(error.to_string())),
        }
        let machines = match self.machines().await {
            Ok(alive) => Machines {
                held: std::collections::BTreeMap::new(),
                autoscaler: self.autoscaler().await,
                alive,
            },
            Err(error) => {
                findings.push(Finding::Problem(error.to_string()));
                return findings;
            }
        };
        findings.push(listed(&machines.alive));
        findings.push(autoscaler(&machines.autoscaler));
        for shape in &self.section.shapes {
            findings.push(self.shape(shape, &machines));
        }
        findings.extend(self.look_at_machines(&machines.alive).await);
        if self.section.controller.is_some() {
            findings.extend(finding::token_file(&self.section));
        }
        findings
    }

    async fn token(&self) -> Option<Finding> {
        // Versions before 2.52 have no tokens.
        let mode = self
            .client
            .get_text("/api/authentication_mode")
            .await
            .ok()??;
        let mode: Value = serde_json::from_str(&mode).ok()?;
        let source = self.client.token_source();
        let is_on = mode["authentication_mode"] == "token";
        Some(match (is_on, source) {
            (true, source) => Finding::Good(format!(
                "Ray wants a token, and accepts that of {}",
                source.unwrap_or_default()
            )),
            (false, _) => Finding::Note(
                "Ray wants no token: everyone who reaches its address can run programs on its machines; start it with RAY_AUTH_MODE=token".to_owned(),
            ),
        })
    }

    fn shape(&self, shape: &ShapeSection, machines: &Machines) -> Finding {
        let name = &shape.name;
        let lacking = || machines.lacking(&self.section, shape);
        match (machines.fitting(&self.section, shape), &machines.autoscaler) {
            (0, Autoscaler::None) => Finding::Problem(format!(
                "shape {name}: {}, and there is no autoscaler, so its jobs would wait forever; correct the shape, or add such a node to Ray",
                lacking()
            )),
            (0, _) => Finding::Note(format!(
                "shape {name}: {}; the autoscaler has to bring one",
                lacking()
            )),
            (1, _) => Finding::Good(format!("shape {name}: fits on 1 node")),
            (count, _) => Finding::Good(format!("shape {name}: fits on {count} nodes")),
        }
    }

    /// Runs a job on some of the machines that nodes may run on.
    async fn look_at_machines(&self, alive: &[Machine]) -> Vec<Finding> {
        let shapes = &self.section.shapes;
        let is_used = |machine: &&Machine| {
            if shapes.is_empty() {
                machine.gpus() > 0.0
            } else {
                shapes
                    .iter()
                    .any(|shape| machine.fits(&self.section, shape))
            }
        };
        let all: Vec<&Machine> = alive.iter().filter(is_used).collect();
        let mut findings = Vec::new();
        if all.is_empty() {
            findings.push(Finding::Note(
                "no machine can run a node, so none was checked".to_owned(),
            ));
            return findings;
        }
        if all.len() > LOOKED_AT_MAX {
            findings.push(Finding::Note(format!(
                "{LOOKED_AT_MAX} of {} machines were checked",
                all.len()
            )));
        }
        let micros = now().as_micros();
        let mut submitted = Vec::new();
        for (index, machine) in all.into_iter().take(LOOKED_AT_MAX).enumerate() {
            let id = format!("model-pool.{}.check-{micros}-{index}", self.section.name);
            let body = json!({
                "entrypoint": self.look_script(),
                "submission_id": id,
                "entrypoint_num_cpus": 0,
                "entrypoint_resources": {format!("node:{}", machine.address): PRESENCE},
                "metadata": {"model-pool": self.section.name},
            });
            match self.client.post(JOBS, &body).await {
                Ok(_) => submitted.push((machine, id)),
                Err(error) => findings.push(Finding::Problem(format!(
                    "{}: no job could be submitted: {error}",
                    machine.address
                ))),
            }
        }
        let until = now() + LOOK_WITHIN;
        for (machine, id) in &submitted {
            findings.extend(self.look_result(machine, id, until).await);
        }
        tokio::time::sleep(SETTLED_AFTER).await;
        for (_, id) in &submitted {
            // A record that stays does no harm.
            let _ = self
                .client
                .end(Method::DELETE, &format!("{JOBS}{id}"))
                .await;
        }
        findings
    }

    async fn look_result(&self, machine: &Machine, id: &str, until: Duration) -> Vec<Finding> {
        let path = format!("{JOBS}{id}");
        let place = &machine.address;
        let job = loop {
            let job = self.client.get(&path).await.unwrap_or_default();
            let is_over = matches!(
                job["status"].as_str(),
                Some("SUCCEEDED" | "FAILED" | "STOPPED")
            );
            if is_over || now() > until {
                break job;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        if job["status"] != "SUCCEEDED" {
            let _ = self.client.end(Method::POST, &format!("{path}/stop")).await;
            let message = super::client::last_line(job["message"].as_str().unwrap_or_default());
            return vec![Finding::Problem(format!(
                "{place}: a small job did not succeed there within {} s: {message}",
                LOOK_WITHIN.as_secs()
            ))];
        }
        let response = self.client.get(&format!("{path}/logs")).await;
        let logs = response.map_err(|error| error.to_string());
        let logs = logs.and_then(|response| match response["logs"].as_str() {
            Some(logs) => Ok(logs.to_owned()),
            None => Err("Ray has no log of it".to_owned()),
        });
        match logs {
            Ok(logs) => self.look_findings(place, &logs),
            Err(why) => vec![Finding::Problem(format!(
                "{place}: the log of a small job cannot be read: {why}"
            ))],
        }
    }

    /// Lines of its output that begin with `look:` are results.
    fn look_script(&self) -> String {
        let section = &self.section;
        let program = quoted(&section.program);
        let setup = section.ray.setup.trim();
        let mut lines = vec![setup.to_owned()];
        lines.push(format!(
            "if command -v {program} >/dev/null; then echo \"look:program=$({program} version 2>&1 | head -n 1)\"; else echo look:program=; fi"
        ));
        lines.push("command -v timeout >/dev/null || echo look:timeout=".to_owned());
        if let Some(file) = &section.token_file {
            let file = plain(&file.to_string_lossy());
            lines.push(format!(
                "if [ -r {file} ]; then echo look:token=yes; else echo look:token=; fi"
            ));
        }
        if let Some(controller) = &section.controller {
            let controller = controller.first();
            let address = plain(&format!("{}/llm/health", controller.trim_end_matches('/')));
            lines.push(format!(
                "if command -v curl >/dev/null; then echo \"look:controller=$(curl -ksS -m 10 -o /dev/null -w '%{{http_code}}' {address} 2>/dev/null)\"; fi"
            ));
        }
        lines.join("\n")
    }

    fn look_findings(&self, place: &str, logs: &str) -> Vec<Finding> {
        let section = &self.section;
        let result = |key: &str| {
            let prefix = format!("look:{key}=");
            logs.lines()
                .find_map(|line| line.strip_prefix(&prefix))
                .map(str::trim)
        };
        let mut findings = Vec::new();
        let own = env!("CARGO_PKG_VERSION");
        findings.push(match result("program") {
            Some("") | None => Finding::Problem(format!(
                "{place}: there is no program `{}`; install it there, correct cluster.program, or add its folder to PATH in cluster.ray.setup",
                section.program
            )),
            Some(version) if version.split_whitespace().any(|word| word == own) => {
                Finding::Good(format!("{place}: {} is {version}", section.program))
            }
            Some(version) => Finding::Note(format!(
                "{place}: {} says `{version}`, and this is version {own}; the same version is best",
                section.program
            )),
        });
        if result("timeout").is_some() {
            findings.push(Finding::Problem(format!(
                "{place}: there is no program `timeout`; install coreutils"
            )));
        }
        let file = section.token_file.as_deref();
        let file = file.unwrap_or(std::path::Path::new("")).display();
        match result("token") {
            Some("yes") => findings.push(Finding::Good(format!("{place}: can read {file}"))),
            Some(_) => findings.push(Finding::Problem(format!(
                "{place}: cannot read cluster.token_file {file}; write the join token there, readable only for Ray's account"
            ))),
            None => {}
        }
        let controller = section
            .controller
            .as_ref()
            .map_or("", |addresses| addresses.first());
        match result("controller") {
            Some("" | "000") => findings.push(Finding::Note(format!(
                "{place}: does not reach {controller}; if the pool runs there, check firewalls and server.listen"
            ))),
            Some(_) => findings.push(Finding::Good(format!("{place}: reaches {controller}"))),
            None if section.controller.is_some() => findings.push(Finding::Note(format!(
                "{place}: has no curl, so it is unknown whether it reaches {controller}"
            ))),
            None => {}
        }
        findings
    }
}

fn listed(alive: &[Machine]) -> Finding {
    let with_gpus: Vec<String> = alive
        .iter()
        .filter(|machine| machine.gpus() > 0.0)
        .map(|machine| format!("{} ({})", machine.address, machine.gpus()))
        .collect();
    let text = if with_gpus.is_empty() {
        format!("{} nodes are in Ray, none with GPUs", alive.len())
    } else {
        format!(
            "{} nodes are in Ray; GPUs: {}",
            alive.len(),
            with_gpus.join(", ")
        )
    };
    Finding::Good(text)
}

fn autoscaler(found: &Autoscaler) -> Finding {
    match found {
        Autoscaler::None => Finding::Note(
            "there is no autoscaler: the pool gets the nodes that are in Ray, and no others".to_owned(),
        ),
        Autoscaler::Unknown => Finding::Note(
            "Ray does not say whether it has an autoscaler; version 2, as with KubeRay, is only visible in `ray status`".to_owned(),
        ),
        Autoscaler::Idle => Finding::Good("there is an autoscaler".to_owned()),
        Autoscaler::Launching(what) => {
            Finding::Good(format!("there is an autoscaler; it starts {what}"))
        }
        Autoscaler::Broken(why) => Finding::Problem(format!(
            "the autoscaler fails: {why}; correct its configuration"
        )),
    }
}
