//! The plan of a benchmark, parsed from the command line before anything is sent. Invalid options are rejected here.

use std::time::Duration;

use super::target::Target;
use crate::args::{Arrivals, BenchArgs, BenchRoute};

const CONNECTIONS_MAX: usize = 100_000;
const RATE_MAX: f64 = 1_000_000.0;
const THREADS_MAX: usize = 256;
const AT_ONCE: usize = 1_000;
const DURATION: Duration = Duration::from_secs(10);

/// The pattern in which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A number of connections, each with one request at a time.
    Closed { connections: usize },
    /// A number of requests per second, with a limit on concurrent ones.
    Open {
        per_second: f64,
        arrivals: Arrivals,
        at_once: usize,
    },
    /// A number of streams that stay open.
    Held { streams: usize },
}

/// The condition after which no further request starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCondition {
    Requests(u64),
    Passed(Duration),
    /// The benchmark is interrupted.
    Interrupted,
}

#[derive(Debug)]
pub struct Plan {
    pub target: Target,
    pub route: BenchRoute,
    pub load: Load,
    pub until: StopCondition,
    pub warm_up: Duration,
    pub timeout: Duration,
    pub stream: bool,
    pub seed: u64,
}

impl Plan {
    pub fn from_args(args: &BenchArgs) -> Result<Plan, String> {
        let target = Target::new(&args.url, args.key.as_deref(), args.http2)?;
        let within = |what: &str, number: usize, most: usize| match number {
            0 => Err(format!("--{what} 0 does nothing; give at least 1")),
            number if number > most => Err(format!("--{what} {number} is more than {most}")),
            _ => Ok(number),
        };
        within("threads", args.threads, THREADS_MAX)?;
        let connections = args.connections;
        let connections = connections
            .map(|count| within("connections", count, CONNECTIONS_MAX))
            .transpose()?;
        let load = match (args.idle_streams, args.rate) {
            (Some(streams), _) => Load::Held {
                streams: within("idle-streams", streams, CONNECTIONS_MAX)?,
            },
            (None, Some(rate)) if !(rate > 0.0 && rate <= RATE_MAX) => {
                return Err(format!(
                    "--rate {rate} is not a number of requests a second between 0 and {RATE_MAX}"
                ));
            }
            (None, Some(per_second)) => Load::Open {
                per_second,
                arrivals: args.arrivals,
                at_once: connections.unwrap_or(AT_ONCE),
            },
            (None, None) => Load::Closed {
                connections: connections.unwrap_or(1),
            },
        };
        let held = matches!(load, Load::Held { .. });
        if args.route == BenchRoute::Embeddings {
            for (is_set, option) in [
                (args.stream, "--stream"),
                (held, "--idle-streams"),
                (args.max_tokens.is_some(), "--max-tokens"),
            ] {
                if is_set {
                    return Err(format!(
                        "{option} cannot be combined with --route embeddings, which returns vectors in one response"
                    ));
                }
            }
        }
        if args.requests == Some(0) {
            return Err("--requests 0 does nothing; give at least 1".to_owned());
        }
        let times = [("duration", args.duration), ("timeout", Some(args.timeout))];
        for (name, time) in times {
            if time.is_some_and(|time| time.is_zero()) {
                return Err(format!("--{name} must be longer than 0s"));
            }
        }
        if args.max_tokens == Some(0) {
            return Err("--max-tokens 0 requests no output; give at least 1".to_owned());
        }
        Ok(Plan {
            target,
            route: args.route,
            load,
            until: match (args.requests, args.duration) {
                (Some(requests), _) => StopCondition::Requests(requests),
                (None, Some(duration)) => StopCondition::Passed(duration),
                (None, None) if held => StopCondition::Interrupted,
                (None, None) => StopCondition::Passed(DURATION),
            },
            warm_up: args.warm_up,
            timeout: args.timeout,
            stream: args.stream || held,
            seed: args.seed,
        })
    }

    /// A description for the heading of the table.
    pub fn describe_load(&self) -> String {
        let plural = |count: usize, one: &str| match count {
            1 => format!("1 {one}"),
            many => format!("{many} {one}s"),
        };
        match self.load {
            Load::Closed { connections } => plural(connections, "connection"),
            Load::Open {
                per_second,
                arrivals,
                ..
            } => {
                let spread = match arrivals {
                    Arrivals::Poisson => "Poisson",
                    Arrivals::Constant => "evenly",
                };
                format!("{per_second} requests/s ({spread})")
            }
            Load::Held { streams } => plural(streams, "idle stream"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn plan(words: &[&str]) -> Result<Plan, String> {
        let all = ["bench"].iter().chain(words);
        let line = Line::try_parse_from(all).map_err(|error| error.to_string())?;
        Plan::from_args(&line.args)
    }

    #[test]
    fn the_default_plan_is_one_connection_for_ten_seconds() {
        let plan = plan(&[]).unwrap();
        assert_eq!(plan.load, Load::Closed { connections: 1 });
        assert_eq!(plan.until, StopCondition::Passed(Duration::from_secs(10)));
        assert!(!plan.stream);
    }

    #[test]
    fn a_rate_selects_an_open_loop_limited_by_its_connections() {
        let plan = plan(&["--rate", "50", "--connections", "7", "--requests", "9"]).unwrap();
        let expected = Load::Open {
            per_second: 50.0,
            arrivals: Arrivals::Poisson,
            at_once: 7,
        };
        assert_eq!(
            (plan.load, plan.until),
            (expected, StopCondition::Requests(9))
        );
    }

    #[test]
    fn idle_streams_wait_until_interrupted() {
        let plan = plan(&["--idle-streams", "3"]).unwrap();
        assert_eq!(
            (plan.load, plan.until),
            (Load::Held { streams: 3 }, StopCondition::Interrupted)
        );
        assert!(plan.stream);
    }

    #[test]
    fn invalid_bench_options_are_refused_by_name() {
        let cases: [(&[&str], &str); 12] = [
            (&["--connections", "0"], "--connections 0"),
            (&["--rate", "-1"], "--rate"),
            (&["--rate", "NaN"], "--rate NaN"),
            (&["--arrivals", "constant"], "--rate"),
            (
                &["--requests", "5", "--duration", "5s"],
                "cannot be used with",
            ),
            (&["--duration", "0s"], "--duration must be longer"),
            (&["--duration", "soon"], "--duration"),
            (
                &["--route", "embeddings", "--stream"],
                "--stream cannot be combined",
            ),
            (
                &["--prompt", "a", "--prompt-tokens", "3"],
                "cannot be used with",
            ),
            (
                &["--idle-streams", "3", "--rate", "2"],
                "cannot be used with",
            ),
            (&["--url", "ftp://a/v1"], "ftp"),
            (&["--threads", "1000"], "more than 256"),
        ];
        for (words, expected) in cases {
            let error = plan(words).unwrap_err();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }
}
