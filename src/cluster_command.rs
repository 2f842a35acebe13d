//! `model-pool cluster`: handles nodes manually. Requests nodes, lists leases and releases them; the node itself joins the
//! controller of the configuration.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster::{Cluster, LeaseId, LeaseState, NodeLease, OpenedCluster, Release};
use config::{ClusterSection, Config};

use crate::cli::{ClusterCommand, ClusterRequestArgs, ConfigArgs};

pub fn run(command: &ClusterCommand) -> Result<(), String> {
    let config = config_args(command).load()?;
    let cluster = open(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    match command {
        ClusterCommand::Request(args) => runtime.block_on(request(&cluster, args)),
        ClusterCommand::Status(args) => {
            let leases = runtime
                .block_on(cluster.status())
                .map_err(|error| error.to_string())?;
            if args.json { print_json(&leases) } else { print_table(&leases, &config.cluster) }
        }
        ClusterCommand::Release(args) => {
            let id = LeaseId::parse(&args.id).map_err(|error| error.to_string())?;
            if args.now && matches!(cluster, OpenedCluster::Kubernetes(_)) {
                return Err(format!(
                    "--now has no effect in Kubernetes, where the pod's template sets the time it has to end; release {id} without it, and then `kubectl delete pod --selector model-pool/deployment={id} --grace-period=1`"
                ));
            }
            let how = if args.now { Release::Now } else { Release::Drain };
            let released = runtime.block_on(cluster.release(&id, how));
            released.map_err(|error| error.to_string())?;
            println!("{id} is being released; `model-pool cluster status` shows when it has ended");
            Ok(())
        }
        ClusterCommand::Script(args) => match &cluster {
            OpenedCluster::Slurm(slurm) => {
                let script = slurm.script(&args.shape, &[], &args.exclude);
                print!("{}", script.map_err(|error| error.to_string())?);
                Ok(())
            }
            OpenedCluster::Pbs(pbs) => {
                no_exclusion_of(&cluster, &args.exclude)?;
                let script = pbs.script(&args.shape, None);
                print!("{}", script.map_err(|error| error.to_string())?);
                Ok(())
            }
            OpenedCluster::Kubernetes(_) => {
                Err("cluster.kind is kubernetes, which has no script; a request sets a Deployment to one pod, and the template of its pods has the command".to_owned())
            }
            OpenedCluster::Ray(ray) => {
                if !args.exclude.is_empty() {
                    return Err("--exclude: Ray's nodes are matched only when a request is submitted; omit the option".to_owned());
                }
                let submission = ray.submission(&args.shape, None);
                let submission = submission.map_err(|error| error.to_string())?;
                println!("{submission:#}");
                Ok(())
            }
            OpenedCluster::Command(_) => {
                Err("cluster.kind is command, which has no script; its program gets the request on standard input".to_owned())
            }
        },
    }
}

fn config_args(command: &ClusterCommand) -> &ConfigArgs {
    match command {
        ClusterCommand::Request(args) | ClusterCommand::Script(args) => &args.config,
        ClusterCommand::Status(args) => &args.config,
        ClusterCommand::Release(args) => &args.config,
    }
}

fn open(config: &Config) -> Result<OpenedCluster, String> {
    OpenedCluster::open(&config.cluster).ok_or_else(|| {
        let place = config.file.as_ref();
        let place = place.map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string());
        format!("cluster.kind is none in {place}; set it to slurm, pbs, kubernetes, ray or command, and list cluster.shapes (docs/guides/slurm.md, docs/guides/pbs.md, docs/guides/kubernetes.md, docs/guides/ray.md)")
    })
}

/// Fails if nodes should be excluded, and the cluster does not let its users do that.
fn no_exclusion_of(cluster: &OpenedCluster, exclude: &[String]) -> Result<(), String> {
    let why = match cluster {
        OpenedCluster::Kubernetes(_) => {
            "--exclude has no effect in Kubernetes, whose scheduler chooses the machine; `kubectl cordon MACHINE` excludes one"
        }
        OpenedCluster::Pbs(_) => {
            "--exclude has no effect in PBS, whose requests cannot exclude a node; ask its administrators to give the good nodes a resource, and name it in cluster.pbs.select (docs/guides/pbs.md)"
        }
        OpenedCluster::Slurm(_) | OpenedCluster::Ray(_) | OpenedCluster::Command(_) => {
            return Ok(());
        }
    };
    if exclude.is_empty() {
        Ok(())
    } else {
        Err(why.to_owned())
    }
}

async fn request(cluster: &OpenedCluster, args: &ClusterRequestArgs) -> Result<(), String> {
    no_exclusion_of(cluster, &args.exclude)?;
    let id = cluster
        .request(&args.shape, None, &args.exclude)
        .await
        .map_err(|error| error.to_string())?;
    println!("{id}");
    eprintln!(
        "a node of shape {} is requested; `model-pool cluster status` shows its state, `model-pool cluster release {id}` releases it",
        args.shape
    );
    Ok(())
}

fn print_json(leases: &[NodeLease]) -> Result<(), String> {
    let text = serde_json::to_string_pretty(leases).map_err(|error| error.to_string())?;
    println!("{text}");
    Ok(())
}

fn print_table(leases: &[NodeLease], section: &ClusterSection) -> Result<(), String> {
    if leases.is_empty() {
        println!("no leases");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or(Duration::ZERO).as_secs();
    let width = |text: fn(&NodeLease) -> &str| leases.iter().map(|lease| text(lease).len()).max();
    let id_width = width(|lease| lease.id.as_str()).unwrap_or(0);
    let shape_width = width(|lease| &lease.shape).unwrap_or(0);
    let node_width = width(|lease| &lease.node).unwrap_or(0);
    for lease in leases {
        let cost = section
            .shapes
            .iter()
            .find(|shape| shape.name == lease.shape);
        let cost = cost.and_then(|shape| shape.cost_per_hour);
        println!(
            "{:id_width$}  {:shape_width$}  {:node_width$}  {}",
            lease.id.as_str(),
            lease.shape,
            lease.node,
            describe(lease, cost, now)
        );
    }
    Ok(())
}

fn describe(lease: &NodeLease, cost_per_hour: Option<f64>, now: u64) -> String {
    match &lease.state {
        LeaseState::Pending { reason } => {
            let start = lease.starts_unix.filter(|start| *start > now);
            let start = start.map(|start| format!("; expected to start in {}", span(start - now)));
            format!("pending: {reason}{}", start.unwrap_or_default())
        }
        LeaseState::Starting { host, reason } => format!("starting on {host}: {reason}"),
        LeaseState::Running { host } => {
            // Ray does not report every start.
            let ran = lease.starts_unix.map(|start| now.saturating_sub(start));
            let ran_for = ran.map(|ran| format!(" for {}", span(ran)));
            let left = lease.ends_by().filter(|end| *end > now);
            let left = left.map(|end| format!(", {} left", span(end - now)));
            let cost = ran.zip(cost_per_hour);
            let cost = cost.map(|(ran, cost)| format!(", cost {:.2}", cost * hours(ran)));
            format!(
                "running on {host}{}{}{}",
                ran_for.unwrap_or_default(),
                left.unwrap_or_default(),
                cost.unwrap_or_default()
            )
        }
        LeaseState::Ended { why } => {
            let ended = lease.ends_unix.filter(|end| *end <= now);
            let ended = ended.map(|end| format!(" {} ago", span(now - end)));
            let cost = lease.starts_unix.zip(lease.ends_unix).zip(cost_per_hour);
            let cost = cost.map(|((start, end), cost)| {
                format!("; cost {:.2}", cost * hours(end.saturating_sub(start)))
            });
            format!(
                "ended{}: {why}{}",
                ended.unwrap_or_default(),
                cost.unwrap_or_default()
            )
        }
    }
}

fn hours(seconds: u64) -> f64 {
    Duration::from_secs(seconds).as_secs_f64() / 3600.0
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_described_with_its_times_and_cost() {
        let lease = |state| NodeLease {
            demand: None,
            owner: None,
            set: None,
            id: LeaseId::parse("13").expect("an id"),
            shape: "a2".to_owned(),
            node: "slurm-13".to_owned(),
            state,
            time_limit: None,
            starts_unix: Some(10_000),
            ends_unix: Some(20_000),
        };
        let host = "n0".to_owned();
        let running = lease(LeaseState::Running { host });
        assert_eq!(
            describe(&running, Some(2.0), 11_800),
            "running on n0 for 30 min, 2 h 16 min left, cost 1.00"
        );
        // Ray reports a start and a limit, but no end.
        let host = "10.0.0.7".to_owned();
        let mut on_ray = lease(LeaseState::Running { host });
        (on_ray.ends_unix, on_ray.time_limit) = (None, Some(Duration::from_secs(3600)));
        assert_eq!(
            describe(&on_ray, Some(2.0), 11_800),
            "running on 10.0.0.7 for 30 min, 30 min left, cost 1.00"
        );
        on_ray.starts_unix = None;
        assert_eq!(describe(&on_ray, Some(2.0), 11_800), "running on 10.0.0.7");
        let reason = "in use".to_owned();
        let pending = lease(LeaseState::Pending { reason });
        assert_eq!(
            describe(&pending, Some(2.0), 9_950),
            "pending: in use; expected to start in 50 s"
        );
        let why = "released".to_owned();
        let ended = lease(LeaseState::Ended { why });
        assert_eq!(
            describe(&ended, Some(3.6), 20_300),
            "ended 5 min ago: released; cost 10.00"
        );
    }
}
