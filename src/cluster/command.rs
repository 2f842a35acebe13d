//! A site's own programs as a cluster. Each program gets a JSON object on standard input and responds with a JSON object on
//! standard output (docs/guides/slurm.md). Exit status 75 means that the cluster does not respond.

use std::time::Duration;

use config::ClusterSection;
use serde::Deserialize;
use serde_json::{Value, json};

use super::program::{Call, run};
use super::shape::find_shape;
use super::{Cluster, ClusterError, LeaseId, LeaseState, NodeLease, Release};

const OUTPUT_BYTES_MAX: usize = 1 << 20;
const LEASES_MAX: usize = 10_000;
const TEXT_CHARACTERS_MAX: usize = 1000;
/// `EX_TEMPFAIL` of sysexits.h.
const UNREACHABLE: i32 = 75;
const ADVICE: &str = "correct the program in cluster.command";

pub struct CommandCluster {
    section: ClusterSection,
    /// The id of this pool. Another pool with the same name has another id.
    pub(super) owner: Option<String>,
}

#[derive(Deserialize)]
struct LeaseResponse {
    id: String,
}

#[derive(Deserialize)]
struct LeaseList {
    leases: Vec<ListedLease>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedLease {
    id: String,
    shape: String,
    state: ListedState,
    /// The reason why the lease waits or has ended.
    #[serde(default)]
    reason: String,
    #[serde(default)]
    host: String,
    /// The name with which the node joins, if it differs from the id.
    node: Option<String>,
    /// The `node.demand` of the request.
    demand: Option<u64>,
    /// The `owner` of the request.
    owner: Option<String>,
    time_limit_seconds: Option<u64>,
    starts_unix: Option<u64>,
    ends_unix: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListedState {
    Pending,
    Running,
    Ended,
}

impl CommandCluster {
    pub fn new(section: &ClusterSection) -> CommandCluster {
        CommandCluster {
            section: section.clone(),
            owner: None,
        }
    }

    async fn call(&self, command: &[String], input: &Value) -> Result<String, ClusterError> {
        // The configuration refuses an empty command.
        let (program, arguments) = command.split_first().ok_or_else(|| ClusterError::Missing {
            program: String::new(),
            error: "the command is empty".to_owned(),
            advice: ADVICE,
        })?;
        let ended = run(Call {
            name: program,
            program: program.into(),
            arguments: arguments.to_vec(),
            input: &input.to_string(),
            deadline: self.section.command.timeout.duration(),
            output_bytes_max: OUTPUT_BYTES_MAX,
            variables: &[],
            deadline_key: "cluster.command.timeout",
            advice: ADVICE,
        })
        .await?;
        let (program, message) = (program.clone(), ended.reason());
        match ended.status.code() {
            Some(0) => Ok(ended.stdout),
            Some(UNREACHABLE) => Err(ClusterError::Unreachable { program, message }),
            _ => Err(ClusterError::Refused {
                program,
                message: format!("{message} ({})", ended.status),
                advice: String::new(),
            }),
        }
    }

    fn lease(&self, listed: ListedLease) -> Result<NodeLease, ClusterError> {
        let id = LeaseId::parse(&listed.id)?;
        let short = |text: String| text.chars().take(TEXT_CHARACTERS_MAX).collect::<String>();
        Ok(NodeLease {
            node: short(listed.node.unwrap_or_else(|| id.to_string())),
            id,
            shape: short(listed.shape),
            demand: listed.demand,
            owner: listed.owner,
            set: None,
            state: match listed.state {
                ListedState::Pending => LeaseState::Pending {
                    reason: short(listed.reason),
                },
                ListedState::Running => LeaseState::Running {
                    host: short(listed.host),
                },
                ListedState::Ended => LeaseState::Ended {
                    why: short(listed.reason),
                },
            },
            time_limit: listed.time_limit_seconds.map(Duration::from_secs),
            starts_unix: listed.starts_unix,
            ends_unix: listed.ends_unix,
        })
    }
}

impl Cluster for CommandCluster {
    async fn request(
        &self,
        shape: &str,
        demand: Option<u64>,
        exclude: &[String],
    ) -> Result<LeaseId, ClusterError> {
        let section = &self.section;
        let shape = find_shape(section, shape)?;
        let input = json!({
            "pool": section.name,
            "owner": demand.map(|_| &self.owner),
            "shape": {
                "name": shape.name,
                "gpus": shape.gpus,
                "memory_bytes": shape.memory.0.0,
                "time_limit_seconds": shape.time_limit.duration().as_secs(),
            },
            "exclude": exclude,
            "node": {
                "program": section.program,
                "controller": section.controller,
                "token_file": section.token_file,
                "fingerprint": section.fingerprint,
                "data": section.node_data,
                "options": section.node_options,
                "demand": demand,
            },
        });
        let command = &section.command.scale_up;
        let output = self.call(command, &input).await?;
        let requested: LeaseResponse = parsed(command, &output)?;
        LeaseId::parse(&requested.id).map_err(|_| unusable(command, "its `id` is not an id"))
    }

    async fn status(&self) -> Result<Vec<NodeLease>, ClusterError> {
        let command = &self.section.command.status;
        let input = json!({"pool": self.section.name});
        let output = self.call(command, &input).await?;
        let listed: LeaseList = parsed(command, &output)?;
        if listed.leases.len() > LEASES_MAX {
            return Err(unusable(command, "it lists more than 10000 leases"));
        }
        let leases = listed.leases.into_iter().map(|lease| self.lease(lease));
        let leases: Result<Vec<NodeLease>, ClusterError> = leases.collect();
        leases.map_err(|error| unusable(command, &error.to_string()))
    }

    async fn release(&self, id: &LeaseId, how: Release) -> Result<(), ClusterError> {
        let input = json!({
            "pool": self.section.name,
            "id": id,
            "drain": how == Release::Drain,
        });
        let command = &self.section.command.scale_down;
        self.call(command, &input).await.map(drop)
    }

    /// A site's programs have no logs.
    async fn log_end(&self, _: &LeaseId) -> Option<String> {
        None
    }
}

fn parsed<T: for<'de> Deserialize<'de>>(
    command: &[String],
    output: &str,
) -> Result<T, ClusterError> {
    let read = serde_json::from_str(output);
    read.map_err(|error| {
        unusable(
            command,
            &format!("it is not the JSON of docs/guides/slurm.md: {error}"),
        )
    })
}

fn unusable(command: &[String], message: &str) -> ClusterError {
    ClusterError::Output {
        program: command.first().cloned().unwrap_or_default(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_ins::{played, read, shape};

    /// A cluster with these scripts as programs. The folder keeps their input.
    fn with_programs(scripts: [&str; 3]) -> (tempfile::TempDir, CommandCluster) {
        let names = ["program0", "program1", "program2"];
        let programs: Vec<(&str, &str)> = names.into_iter().zip(scripts).collect();
        let folder = played(&programs);
        let mut commands = names.iter().map(|name| {
            let path = folder.path().join(name);
            vec![path.display().to_string(), "argument".to_owned()]
        });
        let mut section = ClusterSection {
            controller: Some("https://pool.example.org:8443".into()),
            token_file: Some("/shared/token".into()),
            ..ClusterSection::default()
        };
        section.shapes.push(config::ShapeSection {
            memory: config::Size(pool::Bytes(24 << 30)),
            ..shape("a2", 2, 60)
        });
        section.command.scale_up = commands.next().expect("three");
        section.command.scale_down = commands.next().expect("three");
        section.command.status = commands.next().expect("three");
        drop(commands);
        (folder, CommandCluster::new(&section))
    }

    const KEEPS: &str = "cat > $(dirname $0)/input; echo '{\"id\": \"vm-1\"}'";

    fn input(folder: &tempfile::TempDir) -> Value {
        serde_json::from_str(&read(folder, "input")).expect("JSON")
    }

    #[tokio::test]
    async fn the_programs_exchange_the_documented_json() {
        let listed = "echo '{\"leases\": [{\"id\": \"vm-1\", \"shape\": \"a2\", \"state\": \"running\", \"host\": \"10.0.0.7\", \"starts_unix\": 17},
            {\"id\": \"vm-2\", \"shape\": \"a2\", \"state\": \"pending\", \"reason\": \"no quota\", \"node\": \"b\"}]}'";
        let (folder, cluster) = with_programs([KEEPS, KEEPS, listed]);
        let id = cluster
            .request("a2", None, &["bad".to_owned()])
            .await
            .expect("requested");
        assert_eq!(id.as_str(), "vm-1");
        let request = input(&folder);
        assert_eq!(request["shape"]["memory_bytes"], json!(24_u64 << 30));
        assert_eq!(
            (&request["exclude"], &request["pool"]),
            (&json!(["bad"]), &json!("pool"))
        );
        assert_eq!(request["node"]["token_file"], "/shared/token");
        let leases = cluster.status().await.expect("listed");
        assert_eq!(
            (leases[0].node.as_str(), leases[1].node.as_str()),
            ("vm-1", "b")
        );
        let host = "10.0.0.7".to_owned();
        assert_eq!(leases[0].state, LeaseState::Running { host });
        let reason = "no quota".to_owned();
        assert_eq!(leases[1].state, LeaseState::Pending { reason });
        cluster
            .release(&id, Release::Drain)
            .await
            .expect("released");
        assert_eq!(
            input(&folder),
            json!({"pool": "pool", "id": "vm-1", "drain": true})
        );
    }

    #[tokio::test]
    async fn refusals_outages_and_invalid_output_are_distinct_errors() {
        let scripts = ["echo 'no quota left' >&2; exit 1", "exit 75", "echo Hello"];
        let (_folder, cluster) = with_programs(scripts);
        let refused = cluster.request("a2", None, &[]).await.expect_err("refused");
        assert!(!refused.is_unknown() && refused.to_string().contains("no quota left"));
        let id = LeaseId::parse("vm-1").expect("an id");
        let down = cluster.release(&id, Release::Now).await.expect_err("down");
        assert!(down.is_unknown() && down.to_string().contains("try again later"));
        let nonsense = cluster.status().await.expect_err("nonsense");
        assert!(nonsense.is_unknown() && nonsense.to_string().contains("docs/guides/slurm.md"));
    }

    #[tokio::test]
    async fn ids_that_could_be_options_or_paths_are_refused() {
        let bad = "echo '{\"id\": \"--all\"}'";
        let listed =
            "echo '{\"leases\": [{\"id\": \"../x\", \"shape\": \"a2\", \"state\": \"ended\"}]}'";
        let (_folder, cluster) = with_programs([bad, "", listed]);
        assert!(
            cluster
                .request("a2", None, &[])
                .await
                .expect_err("bad")
                .is_unknown()
        );
        assert!(cluster.status().await.expect_err("bad").is_unknown());
    }
}
